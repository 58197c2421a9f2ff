#!/bin/bash
# Lays the faults: the data was "restored from a backup by root", so the service's own user cannot read it.
set -euo pipefail

useradd --system --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin notes

# The modes do not depend on the umask of whoever cloned the repository.
chmod 755 /usr/local/lib/notes /usr/local/lib/notes/notes /usr/local/lib/notes/notes-index
chmod 644 /etc/systemd/system/notes.service /etc/systemd/system/notes-index.service

install -d -m 700 /var/lib/notes
echo "Welcome: the printer on floor 2 answers to 'lp2', not to shouting." >/var/lib/notes/printer.txt
echo "Backup restored by root on Friday evening. What could go wrong?" >/var/lib/notes/backup.txt
echo "午餐：周三食堂有饺子。" >/var/lib/notes/lunch.txt
chmod 600 /var/lib/notes/*.txt

# The last step's check compares with it.
install -d -m 700 /var/lib/lab
cp /proc/sys/kernel/random/boot_id /var/lib/lab/first-boot
