sed -i 's/^ExcStart=/ExecStart=/' /etc/systemd/system/notes.service
systemctl daemon-reload
