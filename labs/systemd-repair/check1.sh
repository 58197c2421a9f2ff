#!/bin/bash
# Passed when systemd can load notes.service and would start the notes program with it.
state=$(systemctl show --property LoadState --value notes.service)
if [ "$(systemctl show --property NeedDaemonReload --value notes.service)" = yes ]; then
    echo "notes.service was changed on disk, but systemd has not read it again."
    exit 1
fi
if [ "$state" != loaded ]; then
    echo "systemd cannot use notes.service: its LoadState is \"$state\"."
    echo "\"systemctl status notes\" says more."
    exit 1
fi
if ! systemctl show --property ExecStart --value notes.service | grep -q /usr/local/lib/notes/notes; then
    echo "notes.service loads, but it does not start /usr/local/lib/notes/notes."
    exit 1
fi
echo "systemd reads notes.service and knows what to start."
