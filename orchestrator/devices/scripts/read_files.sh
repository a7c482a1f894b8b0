#!/bin/sh
# Prints the contents of files, each as a section: before the Nth a line MARKfile.N, size and checksum (sha256, or md5 on
# phones without sha256sum; empty if they have neither). In place of size and checksum: `-` for a missing file, and `+` for
# one larger than MOST bytes, which isn't printed.
#   read_files MARK MOST FILE...
mark=$1
most=$2
shift 2
i=0
for f in "$@"; do
    i=$((i + 1))
    echo
    if [ -f "$f" ]; then
        n=$(wc -c <"$f")
        n=${n##* }
        # Some shells count in 32 bits: ten digits are too many in any case.
        if [ ${#n} -gt 9 ] || [ "$n" -gt "$most" ]; then
            echo "${mark}file.$i +"
            continue
        fi
        h=$({ sha256sum <"$f" || md5sum <"$f"; } 2>/dev/null)
        echo "${mark}file.$i $n ${h%% *}"
        cat "$f"
    else
        echo "${mark}file.$i -"
    fi
done
