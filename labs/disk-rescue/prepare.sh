#!/bin/bash
# Attaches the empty second disk, fills /srv/recordings and writes down what is in there.
set -euo pipefail

install -d -m 700 /var/lib/lab
truncate --size 256M /var/lib/lab/disk.img
systemctl start lab-disk.service

useradd --system --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin camera
install -d -o camera -g camera -m 750 /srv/recordings
cd /srv/recordings
for camera in door yard; do
    mkdir "$camera"
    for hour in 08 09 10; do
        head -c 400000 /dev/urandom >"$camera/2026-11-27T$hour.rec"
        touch --date "2026-11-27 $hour:59:00" "$camera/2026-11-27T$hour.rec"
    done
done
ln -s yard/2026-11-27T10.rec latest
ln door/2026-11-27T08.rec "door/keep - insurance.rec"
echo "days = 30" >.retention
chown -R -h camera:camera .
chmod 640 door/*.rec yard/*.rec
chmod 600 .retention
touch --date "2026-11-27 11:00:00" door yard .retention

# Everything about each file: the third step's check writes the same list and compares.
find . -mindepth 1 ! -path './lost+found*' -printf '%P %y %m %u:%g %T@ %l\n' | LC_ALL=C sort >/var/lib/lab/names
find . -type f ! -path './lost+found*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum >/var/lib/lab/sums
chmod 600 /var/lib/lab/names /var/lib/lab/sums
cat /proc/sys/kernel/random/boot_id >/var/lib/lab/first-boot
