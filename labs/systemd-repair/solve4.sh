sed -i 's/^WantedBy=.*/WantedBy=multi-user.target/' /etc/systemd/system/notes.service
systemctl reenable notes
systemctl reboot
