#!/bin/sh
# Prints `run NAME PID` for each run's folder in ROOT, PID empty where none is known.
#   strays ROOT
# What the caller sends after it (processes.sh) is run where there is any; else it exits with 0.

cd "$1" 2>/dev/null || exit 0
n=
for d in *; do
    [ -d "$d" ] && n=1 && echo "run $d $(cat "$d/pid" 2>/dev/null)"
done
[ -n "$n" ] || exit 0
