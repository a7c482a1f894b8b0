#!/bin/sh
# Prints what the phone logged since a run began.
#   log_since FOLDER LINES
# The file FOLDER/pid is as old as the run, by the phone's own clock; if its time is unknown, prints the last LINES.
t=$(stat -c %y "$1/pid" 2>/dev/null)
t=${t#*-}
t=${t%%.*}
if [ -n "$t" ]; then t=$t.000; else t=$2; fi
logcat -d -v threadtime -b main -b system -b crash -t "$t" 2>/dev/null
