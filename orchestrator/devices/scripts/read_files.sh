#!/bin/sh
# Prints the contents of files, each one a section of its own: a line MARKfile.N, size and checksum (sha256, or md5 on phones
# that have no sha256sum; empty where they have neither) stands before the Nth. In place of both is `-` where there is no such
# file, and `+` for one that is larger than MOST bytes, which isn't printed.
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
