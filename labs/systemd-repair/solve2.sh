chown -R notes:notes /var/lib/notes
