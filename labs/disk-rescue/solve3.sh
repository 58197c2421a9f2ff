mount /dev/loop7p1 /mnt
cp -a /srv/recordings/. /mnt/
find /srv/recordings -mindepth 1 -delete
umount /mnt
mount /dev/loop7p1 /srv/recordings
