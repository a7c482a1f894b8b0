#!/bin/sh
# Renews our claim on this phone, in front of another command; ends the shell if the phone isn't ours any more.
#   hold FOLDER BOOT TOKEN SECONDS CODE WORDS
# Does nothing in another boot than BOOT. If the claim isn't TOKEN's: WORDS on standard error, exit code CODE.
# Builtins only, so that the cost on a measuring phone is negligible.
bf_t=
bf_c=
{ read -r bf_c </proc/sys/kernel/random/boot_id; } 2>/dev/null
if [ "$bf_c" = "$2" ]; then
    { read -r bf_t _ <"$1/owner" && read -r bf_u _ </proc/uptime; } 2>/dev/null
    if [ "$bf_t" = "$3" ]; then
        { echo "$3 $bf_c $((${bf_u%.*} + $4))" >>"$1/owner.beats"; } 2>/dev/null
    else
        echo "$6" >&2
        exit "$5"
    fi
fi
