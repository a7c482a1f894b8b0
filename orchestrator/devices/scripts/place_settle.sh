#!/bin/sh
# Compares a sent file and moves it into place; prints its checksum (sha256, md5, or nothing if the phone has neither).
#   place_settle DRAFT BLOB NAME SHA256 MODE ACCEPTED
# It is moved if its checksum is SHA256, or ACCEPTED (the md5 that the sender computed) if that isn't empty.
# When the script is repeated, the file is in place already.
f=$1
[ -f "$f" ] || f=$2/$3
h=$({ sha256sum <"$f" || md5sum <"$f"; } 2>/dev/null)
h=${h%% *}
echo "$h"
[ -n "$h" ] || exit 0
[ "$h" = "$4" ] || [ "$h" = "$6" ] || exit 0
chmod "$5" "$f" && { [ "$f" = "$2/$3" ] || mv -f "$f" "$2/$3"; } && rm -f "$2"/.*.part || exit 1
s=$(stat -c '%s %Y' "$2/$3" 2>/dev/null) || s=unknown-$$
echo "$4 $s $(cat /proc/sys/kernel/random/boot_id)" >"$2.verified"
