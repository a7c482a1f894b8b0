#!/bin/sh
# Tells whether a file lies in its place, whole.
#   place_look BLOB NAME SHA256 MODE ACCEPTED
# BLOB/NAME is the file; BLOB.verified says what was compared, and when. MODE, if not
# empty, is set first. ACCEPTED, if not empty, is another checksum (md5) of the same file. The line printed is `same` (compared
# before, unchanged since), the checksum that was computed now, or `absent`. What is sent after this script isn't run where the
# file is there, whole.
stamp=
h=absent
if [ -f "$1/$2" ]; then
    [ -z "$4" ] || [ -x "$1/$2" ] || chmod "$4" "$1/$2"
    # Where stat can't tell size and time, no stamp is like another: the checksum is compared each time.
    s=$(stat -c '%s %Y' "$1/$2" 2>/dev/null) || s=unknown-$$
    stamp="$3 $s $(cat /proc/sys/kernel/random/boot_id)"
    if [ "$(cat "$1.verified" 2>/dev/null)" = "$stamp" ]; then
        echo same
        exit 0
    fi
    h=$({ sha256sum <"$1/$2" || md5sum <"$1/$2"; } 2>/dev/null)
    h=${h%% *}
fi
echo "$h"
if [ "$h" = "$3" ] || [ "$h" = "$5" ]; then
    echo "$stamp" >"$1.verified"
    exit 0
fi
mkdir -p "$1"
