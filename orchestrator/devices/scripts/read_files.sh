#!/bin/sh
# Prints the contents of files, one after the other, and on standard error a line for each: its size and its checksum
# (sha256, or md5 on phones that have no sha256sum), `-` where there is no such file, or `+` for one that is larger than MOST
# bytes, which isn't printed.
#   read_files MOST FILE...
most=$1
shift
for f in "$@"; do
    if [ -f "$f" ]; then
        n=$(wc -c <"$f")
        # Some shells count in 32 bits: ten digits are too many in any case.
        if [ ${#n} -gt 9 ] || [ "$n" -gt "$most" ]; then
            echo + >&2
            continue
        fi
        echo "$n $({ sha256sum <"$f" || md5sum <"$f"; } 2>/dev/null)" >&2
        cat "$f"
    else
        echo - >&2
    fi
done
