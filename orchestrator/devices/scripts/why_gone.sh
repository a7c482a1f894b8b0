#!/bin/sh
# Prints what is known of a run's shell that ended without an exit code: lines `shell: TEXT` of what it complained of, and
# `log: LINE` of the phone's log that name its process as killed.
#   why_gone FOLDER

tail -n 5 "$1/shell.err" 2>/dev/null | while read -r l; do echo "shell: $l"; done
p=
[ ! -s "$1/pid" ] || read -r p <"$1/pid"
[ -n "$p" ] || exit 0
logcat -d -v threadtime -b main -b system -b crash -t 2000 2>/dev/null |
    grep -i -e lmkd -e lowmemorykiller -e killinfo -e 'out of memory' | grep -w -e "$p" | tail -n 3 |
    while read -r l; do echo "log: $l"; done
