#!/bin/sh
# Starts perfetto in the background; ten tries, as a tracing service that was just switched on takes a moment.
#   perfetto_begin CONFIG TRACE PIDFILE
# CONFIG is a TraceConfig as text. PIDFILE gets perfetto's pid. If it doesn't start: exit code 1, and perfetto's errors on
# standard error.
i=0
until printf %s "$1" | perfetto --background --txt -c - -o "$2" >"$3" 2>"$3.err"; do
    i=$((i + 1))
    if [ $i -ge 10 ]; then
        cat "$3.err" >&2
        exit 1
    fi
    sleep 0.3 || sleep 1
done
