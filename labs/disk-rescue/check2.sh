#!/bin/bash
# Passed when the partition holds an ext4 file system with the label "recordings".
partition=/dev/loop7p1
if ! [ -b "$partition" ]; then
    echo "$partition is not there. Does the disk have a partition? \"lsblk /dev/loop7\" shows what the kernel sees."
    exit 1
fi
# What is on the disk itself, not what a cache remembers.
type=$(blkid --probe --match-tag TYPE --output value "$partition")
label=$(blkid --probe --match-tag LABEL --output value "$partition")
if [ "$type" != ext4 ]; then
    echo "$partition holds ${type:-no file system}; it should be ext4."
    exit 1
fi
if [ "$label" != recordings ]; then
    echo "The file system on $partition has ${label:+the label \"$label\"}${label:-no label}; it should be \"recordings\"."
    exit 1
fi
echo "$partition holds an ext4 file system with the label \"recordings\"."
