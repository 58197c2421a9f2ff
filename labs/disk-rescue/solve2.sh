mkfs.ext4 -q -L recordings /dev/loop7p1
