#!/bin/bash
# Passed when every recording lies on the new file system as it was, and none of them on the system disk.
place=/srv/recordings
if ! mountpoint --quiet "$place"; then
    echo "Nothing is mounted on $place."
    exit 1
fi
source=$(findmnt --noheadings --output SOURCE --mountpoint "$place" | tail -n 1)
if [ "$source" != /dev/loop7p1 ]; then
    echo "$source is mounted on $place; it should be /dev/loop7p1."
    exit 1
fi
cd "$place" || exit 1
names=$(mktemp)
trap 'rm -f "$names"' EXIT
find . -mindepth 1 ! -path './lost+found*' -printf '%P %y %m %u:%g %T@ %l\n' | LC_ALL=C sort >"$names"
# A file system keeps times to the nanosecond, but not every tool carries more than whole seconds across.
whole_seconds() { sed -E 's/( [0-9]+)\.[0-9]+ /\1 /' "$1"; }
if ! difference=$(diff <(whole_seconds /var/lib/lab/names) <(whole_seconds "$names")); then
    echo "What is on $place is not what was there before. Lines with < were there, lines with > are there now"
    echo "(name, kind, mode, owner:group, time, where a link leads):"
    head -n 12 <<<"$difference"
    exit 1
fi
if ! sha256sum --quiet --check /var/lib/lab/sums; then
    echo "The content of a recording has changed."
    exit 1
fi
if [ "$(stat --format '%U:%G %a' "$place")" != "camera:camera 750" ]; then
    echo "$place itself belongs to $(stat --format '%U:%G, mode %a' "$place"). It was camera:camera, mode 750."
    exit 1
fi
# The system disk without what is mounted on it shows what still lies below the mount point.
below=$(mktemp --directory)
mount --bind / "$below"
left=$(find "$below$place" -mindepth 1 -print -quit)
umount "$below"
rmdir "$below"
if [ -n "$left" ]; then
    echo "The system disk still holds ${left#"$below"}, hidden below the mount: its space is not free yet."
    exit 1
fi
echo "Every recording is on the new disk, with owner, mode and time, and the system disk is rid of them."
