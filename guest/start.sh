#!/bin/sh
# The last line of cloud-init. It lays the lab's files, opens the serial line to root and starts the agent, which
# runs prepare.sh under its time limit, once, and says "ready" only after exit 0 (runcmd itself would go on after a
# failure). Run again, by a new instance-id or by hand, it changes nothing.
set -u
code=/opt/ttlab state=/var/lib/ttlab units=/etc/systemd/system
[ -e "$state/phase" ] && exit 0
mkdir -p "$state"

# The name that cloud-init gave must resolve, or every sudo and every mail tool waits for DNS.
host=$(hostname)
grep -qw "$host" /etc/hosts || echo "127.0.1.1 $host" >>/etc/hosts

# What is there keeps its mode, and /lib stays the symbolic link that it is on a merged /usr.
if tar -xzpf "$code/files.tar.gz" -C / --numeric-owner --no-overwrite-dir --keep-directory-symlink \
    >"$state/prepare.log" 2>&1; then
    printf booting >"$state/phase"
else
    echo '{"cause": "cloud_init", "exit_code": null}' >"$state/prepare.exit"
    printf failed >"$state/phase"
fi
rm -f "$code/files.tar.gz"

mkdir -p $units/multi-user.target.wants $units/getty.target.wants
ln -sf ../ttlab-agent.service $units/multi-user.target.wants/
ln -sf /lib/systemd/system/serial-getty@.service $units/getty.target.wants/serial-getty@ttyS0.service
systemctl daemon-reload
systemctl --no-block restart ttlab-agent.service serial-getty@ttyS0.service
