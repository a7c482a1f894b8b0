#!/bin/sh
# Kills every adb shell whose command line contains a mark, with all its processes: each is the leader of a group.
#   end_marked PATTERN
# PATTERN doesn't match itself: neither this shell nor its grep is killed.
# shellcheck disable=SC2013 # names without blanks
for f in $(grep -l "$1" /proc/[0-9]*/cmdline); do
    p=${f#/proc/}
    kill -KILL -- "-${p%/cmdline}"
done 2>/dev/null
true
