#!/bin/sh
# Removes the holder's claim from FOLDER if it is TOKEN's. Exit code 1: it exists and can't be read or removed.
#   release FOLDER TOKEN
cd "$1" 2>/dev/null || exit 0
t=
[ ! -f owner ] || read -r t _ <owner || exit 1
[ "$t" != "$2" ] || rm -f owner owner.beats || exit 1
rm -f ./*.tmp
rmdir owner.lock 2>/dev/null
true
