#!/bin/sh
# Ends the perfetto whose pid is in PIDFILE and whose command line contains TOKEN; waits at most LOOKS tenths of a second.
#   perfetto_end PIDFILE TOKEN LOOKS
# Does nothing if it has ended: its pid may belong to another process by now. Exit code 1: it doesn't end.
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
