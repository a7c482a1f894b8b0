#!/bin/sh
# Runs a command as root by any way that this phone has: already root, Android's su (takes a user first), Magisk's (-c).
#   as_root COMMAND
# Exit code: the command's.
if [ "$(id -u)" = 0 ]; then
    sh -c "$1"
elif [ "$(su 0 id -u 2>/dev/null)" = 0 ]; then
    su 0 sh -c "$1"
else
    su -c "$1"
fi
