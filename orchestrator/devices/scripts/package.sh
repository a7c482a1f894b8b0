#!/bin/sh
# Prints an installed package: `path FILE`, `hash SHA256`, and dumpsys's lines of its versions.
#   package PACKAGE
# Prints nothing if it isn't installed. Of an app in several APKs the first counts.
p=$(pm path "$1" 2>/dev/null | grep ^package:)
p=${p%%
*}
p=${p#package:}
[ -n "$p" ] || exit 0
echo "path $p"
echo "hash $({ sha256sum <"$p"; } 2>/dev/null)"
dumpsys package "$1" | grep -e versionCode= -e versionName=
