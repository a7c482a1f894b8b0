#!/bin/sh
# Removes the note of who uses the phone from FOLDER if it is TOKEN's.
#   release FOLDER TOKEN
cd "$1" 2>/dev/null || exit 0
t=
[ ! -f owner ] || read -r t _ <owner
[ "$t" != "$2" ] || rm -f owner owner.beats
rm -f ./*.tmp
rmdir owner.lock 2>/dev/null
true
