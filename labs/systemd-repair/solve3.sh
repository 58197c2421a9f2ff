mkdir -p /etc/systemd/system/notes.service.d
printf '[Unit]\nRequires=notes-index.service\nAfter=notes-index.service\n' > /etc/systemd/system/notes.service.d/index.conf
systemctl daemon-reload
systemctl restart notes
