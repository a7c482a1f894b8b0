#!/bin/sh
# Forbids the runs in FOLDER... to start, and prints the pids of those that have started on one line.
#   forbid FOLDER...
# The mark is written before the pids are read, and a run writes its pid before it checks the mark: so a run that is just
# beginning is listed, or doesn't start.

p=
for d in "$@"; do
    mkdir -p "$d" && : >"$d/stop"
    p="$p $(cat "$d/pid")"
done 2>/dev/null
# shellcheck disable=SC2086 # one line
echo $p
