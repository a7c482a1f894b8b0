#!/bin/sh
# Prints the table of all processes, with a headline. toybox (Android 8 and later) takes -A and -o; older phones' ps lists
# every process without options.
ps -A -o PID,PPID,PGID,ARGS 2>/dev/null || ps -A -o PID,PPID,ARGS 2>/dev/null || ps
