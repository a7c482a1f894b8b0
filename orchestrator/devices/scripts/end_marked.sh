#!/bin/sh
# Ends every shell of adb's whose command line holds a mark, with all that it started: each is the leader of a group.
#   end_marked PATTERN
# PATTERN is written so that it doesn't match itself: neither this shell nor its grep is ended.
# shellcheck disable=SC2013 # names without blanks
for f in $(grep -l "$1" /proc/[0-9]*/cmdline); do
    p=${f#/proc/}
    kill -KILL -- "-${p%/cmdline}"
done 2>/dev/null
true
