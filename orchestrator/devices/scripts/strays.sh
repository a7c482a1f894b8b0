#!/bin/sh
# Prints `run NAME PID` for each run's folder in ROOT, PID empty if it is unknown.
#   strays ROOT
# The caller's next script (processes.sh) runs only if there is a folder; else this one exits with 0.

cd "$1" 2>/dev/null || exit 0
n=
for d in *; do
    [ -d "$d" ] && n=1 && echo "run $d $(cat "$d/pid" 2>/dev/null)"
done
[ -n "$n" ] || exit 0
