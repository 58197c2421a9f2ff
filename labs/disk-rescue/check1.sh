#!/bin/bash
# Passed when the second disk has one partition that takes most of it.
disk=/dev/loop7
if ! [ -b "$disk" ] || [ "$(blockdev --getsize64 "$disk")" = 0 ]; then
    echo "$disk is not there. \"systemctl restart lab-disk\" attaches it again."
    exit 1
fi
table=$(lsblk --noheadings --nodeps --output PTTYPE "$disk" | tr -d ' ')
[ -n "$table" ] || table=$(blkid --probe --match-tag PTTYPE --output value "$disk")
if [ -z "$table" ]; then
    echo "$disk has no partition table."
    exit 1
fi
partitions=$(lsblk --noheadings --list --output TYPE "$disk" | grep -c part)
if [ "$partitions" != 1 ]; then
    echo "$disk has a partition table ($table) with $partitions partitions that the kernel sees. One is asked for."
    exit 1
fi
size=$(blockdev --getsize64 "$(lsblk --noheadings --list --paths --output NAME,TYPE "$disk" | awk '$2 == "part" {print $1}')")
all=$(blockdev --getsize64 "$disk")
if [ $((size * 10)) -lt $((all * 9)) ]; then
    echo "The partition has $((size >> 20)) MiB, but the disk has $((all >> 20)). Let it take all of it."
    exit 1
fi
echo "$disk has a partition table ($table) and one partition of $((size >> 20)) MiB."
