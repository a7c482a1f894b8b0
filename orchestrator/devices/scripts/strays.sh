#!/bin/sh
# Prints `run NAME PID` for each run's folder in ROOT, PID empty where none is known.
#   strays ROOT
# Where there is any, an empty line follows, and what the caller sends after it (processes.sh); else it exits with 0.

cd "$1" 2>/dev/null || exit 0
n=
for d in *; do
    [ -d "$d" ] && n=1 && echo "run $d $(cat "$d/pid" 2>/dev/null)"
done
[ -n "$n" ] || exit 0
echo
