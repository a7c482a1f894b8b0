#!/bin/sh
# Takes or renews the phone for TOKEN unless another holds it, and prints the result.
#   claim FOLDER TOKEN SECONDS WORDS TAKE
# The claim (file owner) is valid for SECONDS of the phone's uptime and contains WORDS. TAKE, if not empty: take it from any
# holder. Prints lines: `held LEFT UNTIL WORDS` of another's claim, or `written`; `serial S`, `boot ID`, `stray NAME PID...`
# of foreign benchmark programs, `free`, and df's lines. The caller's next script runs only if the phone is ours; else this
# one exits with 0. Exit code 1: FOLDER can't be used.
[ -d "$1" ] || mkdir -p "$1"
cd "$1" || exit 1
# Only one process can make a folder, so it is the lock; a crash may leave it behind: wait for a while, then go on.
i=0
while ! mkdir owner.lock 2>/dev/null && [ $i -lt 15 ]; do
    i=$((i + 1))
    sleep 0.1 || sleep 1
done
read -r up _ </proc/uptime
up=${up%.*}
boot=
read -r boot </proc/sys/kernel/random/boot_id
ours=
t=
b=
u=0
w=
[ -n "$5" ] || [ ! -f owner ] || read -r t b u w <owner
[ ! -f owner.beats ] || while read -r x y z; do
    [ "$x$y" != "$t$b" ] || [ -z "$z" ] || u=$z
done <owner.beats
if [ -n "$t" ] && [ "$t" != "$2" ] && [ "$b" = "$boot" ] && [ "$u" -gt "$up" ]; then
    echo "held $((u - up)) $u $w"
else
    echo "$2 $boot $((up + $3)) $4" >owner.tmp && mv owner.tmp owner &&
        { [ ! -f owner.beats ] || rm -f owner.beats; } && echo written && ours=1
fi
rmdir owner.lock
echo "serial $(getprop ro.serialno)"
echo "boot $boot"
n="benchmark_model benchmark_model_plus_flex benchmark_litert_model"
# shellcheck disable=SC2086 # three names
! pidof $n >/dev/null || for n in $n; do
    p=$(pidof "$n") && echo "stray $n $p"
done
echo free
df -k .
[ -n "$ours" ] || exit 0
