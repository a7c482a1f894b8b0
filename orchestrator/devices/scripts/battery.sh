#!/bin/sh
# Prints the battery gauge's values: COUNT lines `UPTIME CURRENT MICROVOLTS MICROAMPEREHOURS`, one every SECONDS (a whole
# number).
#   battery COUNT SECONDS FOLDER
# FOLDER is the kernel's power_supply. CURRENT is in the phone's own unit and sign. A value without a file comes from the
# battery service, and is `-` where that has none either.
n=$1
p=$2
f=$3
of() {
    x=
    read -r x <"$1"
    case ${x#-} in
        '' | *[!0-9]*) x=- ;;
    esac
} 2>/dev/null
said() {
    x=$(echo "$d" | grep -i "^ *$1:")
    x=${x##*: }
    case ${x#-} in
        '' | *[!0-9]*) x=- ;;
    esac
}
b=
for i in "$f"/*; do
    t=
    read -r t 2>/dev/null <"$i/type" || :
    if [ "$t" = Battery ]; then
        of "$i/current_now"
        [ "$x" = - ] || b=$i
    fi
done 2>/dev/null
while [ "$n" -gt 0 ]; do
    c=-
    v=-
    q=-
    if [ -n "$b" ]; then
        of "$b/current_now"
        c=$x
        of "$b/voltage_now"
        v=$x
        of "$b/charge_counter"
        q=$x
    fi
    if [ "$c" = - ] || [ "$v" = - ]; then
        d=$(dumpsys battery </dev/null 2>/dev/null)
        [ "$c" != - ] || { said 'current now' && c=$x; }
        said voltage
        [ "$x" = - ] || v=$((x * 1000))
        said 'charge counter'
        q=$x
    fi
    read -r u _ </proc/uptime && echo "$u $c $v $q"
    n=$((n - 1))
    [ "$n" = 0 ] || sleep "$p"
done
