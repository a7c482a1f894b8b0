#!/bin/sh
# Prints the contents of files, one after the other, and on standard error a line for each: its size and its checksum
# (sha256, or md5 on phones that have no sha256sum), or `-` where there is no such file.
#   read_files FILE...
for f in "$@"; do
    if [ -f "$f" ]; then
        echo "$(wc -c <"$f") $({ sha256sum <"$f" || md5sum <"$f"; } 2>/dev/null)" >&2
        cat "$f"
    else
        echo - >&2
    fi
done
