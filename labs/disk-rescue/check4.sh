#!/bin/bash
# Passed when the machine was rebooted, and the boot itself mounted the recordings.
if [ "$(cat /proc/sys/kernel/random/boot_id)" = "$(cat /var/lib/lab/first-boot)" ]; then
    echo "The machine has not been rebooted since you got it."
    exit 1
fi
place=/srv/recordings
source=$(findmnt --noheadings --output SOURCE --mountpoint "$place" | tail -n 1)
if [ "$source" != /dev/loop7p1 ]; then
    echo "The machine was rebooted, but ${source:-nothing} is mounted on $place."
    exit 1
fi
fragment=$(systemctl show --property FragmentPath --value srv-recordings.mount)
if [ -z "$fragment" ] || [ "$fragment" = /proc/self/mountinfo ]; then
    echo "It is mounted now, but neither /etc/fstab nor a mount unit says so: it would not be at the next boot."
    exit 1
fi
if ! systemctl list-dependencies --plain default.target | grep -qE '^ *srv-recordings\.(mount|automount)$'; then
    echo "The mount is known, but nothing asks for it at boot."
    exit 1
fi
if ! (cd "$place" && sha256sum --quiet --check /var/lib/lab/sums); then
    echo "It is mounted, but recordings are missing or changed."
    exit 1
fi
echo "The machine was rebooted and the recordings are where they belong."
