#!/bin/sh
# Ends the perfetto whose number is in PIDFILE and whose command line holds TOKEN, and waits for LOOKS tenths of a second.
#   perfetto_end PIDFILE TOKEN LOOKS
# Nothing is done when it has ended: its number may be another's by now. Exits with 1 when it doesn't end.
p=$(cat "$1" 2>/dev/null)
grep -q "$2" "/proc/${p:-none}/cmdline" 2>/dev/null || p=
[ -z "$p" ] || kill -TERM "$p"
i=0
while [ -n "$p" ] && [ -d "/proc/$p" ]; do
    if [ "$i" -ge "$3" ]; then
        echo it goes on after SIGTERM >&2
        exit 1
    fi
    i=$((i + 1))
    sleep 0.1 || sleep 1
done
