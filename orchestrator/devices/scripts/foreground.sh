#!/bin/sh
# Prints the command lines of up to four processes in the scheduling group of the app on the screen.
#   foreground
files=
i=0
while read -r p; do
    files="$files /proc/$p/cmdline"
    i=$((i + 1))
    [ $i -lt 4 ] || break
done </dev/cpuset/top-app/cgroup.procs
# shellcheck disable=SC2086 # names without blanks
[ -z "$files" ] || cat $files 2>/dev/null
