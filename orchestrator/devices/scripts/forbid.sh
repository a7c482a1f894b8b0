#!/bin/sh
# Forbids the runs in FOLDER... to start, and prints the process numbers of those that did on one line.
#   forbid FOLDER...
# The mark is written before the numbers are read, and a run writes its number before it looks for the mark: a run that is
# just beginning is seen, or sees that it isn't wanted any more.

p=
for d in "$@"; do
    mkdir -p "$d" && : >"$d/stop"
    p="$p $(cat "$d/pid")"
done 2>/dev/null
# shellcheck disable=SC2086 # one line
echo $p
