#!/bin/sh
# Prints the files NAME... of the current folder, those that there are, one after the other.
#   bundle LIMIT NAME...
# Their sizes (as wc tells them) and checksums (sha256, or md5 where the phone knows no other) go to standard error. When
# they have more than LIMIT bytes together, only sizes and checksums come. NAME has no white space.
# Three processes for all of them: what a phone spends on reading is taken from its next measurement.

limit=$1
shift
i=$#
while [ $i -gt 0 ]; do
    [ ! -f "$1" ] || set -- "$@" "$1"
    shift
    i=$((i - 1))
done
if [ $# != 0 ]; then
    h=$(wc -c "$@")
    echo "$h" >&2
    { if command -v sha256sum >/dev/null; then sha256sum "$@"; else md5sum "$@"; fi; } >&2
    # The last number is the sum, or the only file's size.
    t=${h% *}
    t=${t##*[!0-9]}
    [ "$t" -gt "$limit" ] || cat "$@"
fi
