#!/bin/sh
# Shortens long outputs of a run: whole lines of both ends stay, and a line between them says so.
#   shorten BLOCKS FOLDER FILE...
# Of a larger file about twice BLOCKS times 64 KiB stay. Without space for the copy a file stays as it is.

blocks=$1
cd "$2" || exit 1
shift 2
half=$((blocks * 65536))
for f in "$@"; do
    [ -f "$f" ] || continue
    n=$(wc -c <"$f")
    n=${n##* }
    # Some shells count in 32 bits: ten digits are too many in any case.
    [ ${#n} -gt 9 ] || [ "$n" -gt $((2 * half)) ] || continue
    if {
        dd if="$f" bs=65536 count="$blocks" 2>/dev/null | sed '$d' &&
            echo "benchfarm: the middle of $n bytes of output is left out here" &&
            tail -c "$half" "$f" | sed 1d
    } >"$f.short"; then
        mv "$f.short" "$f"
    else
        rm -f "$f.short"
    fi
done
