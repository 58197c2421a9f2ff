#!/bin/bash
# Passed when starting notes alone, with nothing of it running before, brings up a service that answers.
systemctl stop notes.service notes-index.service notes.socket notes-index.socket 2>/dev/null
systemctl reset-failed notes.service notes-index.service 2>/dev/null
systemctl start notes.service
for _ in $(seq 40); do
    answer=$(curl --silent --max-time 2 http://127.0.0.1:8080/healthz)
    [ "$answer" = ok ] && break
    # With Restart= it may still come; failed or never started, it will not.
    case $(systemctl is-active notes.service) in failed | inactive) break ;; esac
    sleep 0.25
done
if [ "$answer" = ok ]; then
    echo "Starting notes.service alone brings up everything that it needs, and it answers on port 8080."
    exit 0
fi
echo "I stopped notes and notes-index, then ran: systemctl start notes.service"
echo "But http://127.0.0.1:8080/healthz does not answer. The last lines of its journal:"
journalctl --unit notes.service --lines 4 --output cat --no-pager
exit 1
