#!/bin/bash
# Passed when the machine was rebooted, and the boot itself started the service.
if [ "$(cat /proc/sys/kernel/random/boot_id)" = "$(cat /var/lib/lab/first-boot)" ]; then
    echo "The machine has not been rebooted since you got it."
    exit 1
fi
if [ "$(systemctl is-active notes.service)" = inactive ] && systemctl is-system-running | grep -q starting; then
    echo "The machine is still booting; ask again in a moment."
    exit 1
fi
if ! systemctl list-dependencies --plain --all default.target | grep -qE '^ *notes\.(service|socket)$'; then
    echo "Nothing starts notes.service at boot: $(systemctl get-default), to which this machine boots, does not want it."
    exit 1
fi
for _ in $(seq 60); do
    answer=$(curl --silent --max-time 2 http://127.0.0.1:8080/healthz)
    [ "$answer" = ok ] && break
    [ "$(systemctl is-active notes.service)" = failed ] && break
    sleep 0.25
done
if [ "$answer" != ok ]; then
    echo "The machine was rebooted, but the service does not answer on port 8080."
    exit 1
fi
echo "The machine was rebooted and the service is back, without anyone's help."
