#!/bin/bash
# Passed when the service's user can use the data, without having opened it to everyone or become root.
data=/var/lib/notes
user=$(systemctl show --property User --value notes.service)
if [ "$user" != notes ]; then
    echo "notes.service runs as \"${user:-root}\". It shall go on running as notes: give notes its data instead."
    exit 1
fi
if [ "$(find "$data" -maxdepth 1 -name '*.txt' | wc -l)" -lt 3 ]; then
    echo "Some of the notes in $data are gone."
    exit 1
fi
if ! runuser -u notes -- test -x "$data" -a -w "$data"; then
    echo "The user notes cannot enter $data and write in it."
    exit 1
fi
while IFS= read -r file; do
    if ! runuser -u notes -- test -r "$file"; then
        echo "The user notes cannot read $file."
        exit 1
    fi
done < <(find "$data" -maxdepth 1 -type f)
if [ -e "$data/notes.log" ] && ! runuser -u notes -- test -w "$data/notes.log"; then
    echo "The user notes cannot write $data/notes.log."
    exit 1
fi
open=$(find "$data" -perm /0002 ! -type l -print -quit)
if [ -n "$open" ]; then
    echo "Everyone on this machine may write to $open. That works, but it is not a repair: only notes should."
    exit 1
fi
echo "The user notes can use its data, and nobody else can write to it."
