echo 'LABEL=recordings /srv/recordings ext4 defaults 0 2' >> /etc/fstab
findmnt --verify
systemctl reboot
