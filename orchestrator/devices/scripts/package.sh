#!/bin/sh
# Tells what is installed under a package's name: `path FILE`, `hash SHA256`, and dumpsys's lines of its versions.
#   package PACKAGE
# Prints nothing where it isn't installed. An app in several APKs is told by the first.
p=$(pm path "$1" 2>/dev/null | grep ^package:)
p=${p%%
*}
p=${p#package:}
[ -n "$p" ] || exit 0
echo "path $p"
echo "hash $({ sha256sum <"$p"; } 2>/dev/null)"
dumpsys package "$1" | grep -e versionCode= -e versionName=
