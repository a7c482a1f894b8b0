#!/bin/sh
# Starts perfetto in the background; ten tries, for a tracing service that was switched on just now takes a moment.
#   perfetto_begin CONFIG TRACE PIDFILE
# CONFIG is a TraceConfig as text. PIDFILE gets perfetto's process number. Exits with 1, and what perfetto said on standard
# error, when it doesn't start.
i=0
until printf %s "$1" | perfetto --background --txt -c - -o "$2" >"$3" 2>"$3.err"; do
    i=$((i + 1))
    if [ $i -ge 10 ]; then
        cat "$3.err" >&2
        exit 1
    fi
    sleep 0.3 || sleep 1
done
