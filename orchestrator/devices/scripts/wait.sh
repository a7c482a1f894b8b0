#!/bin/sh
# Waits in a run's folder for its end.
#   wait FOLDER STEP STEPS
# It sleeps at most STEPS times STEP seconds; 1 second where the phone's sleep takes whole ones only. The run's end (run.sh)
# ends the sleep; where it can't, the step's end is soon. Prints, a line each:
#   done CODE | running | begins (the run's shell hasn't told its number yet) | gone (no such process, no exit code);
#     `done CODE left` when something of the run still holds on after its program's end
#   the boot id when the run began
#   the boot id now
# Where nothing of the run holds on any more, what the caller sends after this script is run in FOLDER; else it exits with 0.
# Exit code 1: FOLDER is gone. 143: this shell was told to end, by its link's end or by anybody.

cd "$1" || exit 1
step=$2
steps=$3
s=
trap '[ -z "$s" ] || kill $s; rm -f waiter; trap - EXIT; exit 143' HUP TERM
i=0
n=1
late=0
while [ ! -f end ] && [ "$i" -lt "$steps" ]; do
    p=
    [ ! -s pid ] || read -r p <pid
    [ -z "$p" ] || [ -d "/proc/$p" ] || break
    # The program has ended, and what looked at it doesn't: nobody waits for that longer than four steps.
    if [ -s rc ]; then
        [ $late -lt 4 ] || break
        late=$((late + 1))
    fi
    u=
    read -r u _ </proc/uptime
    # shellcheck disable=SC2217 # the link's own input mustn't be held open
    sleep "$step" </dev/null >/dev/null 2>&1 &
    s=$!
    echo $s >waiter
    [ ! -f end ] || kill $s
    wait $s
    e=$?
    s=
    v=
    read -r v _ </proc/uptime
    # A sleep that takes whole seconds only fails, or doesn't sleep at all; it mustn't make this spin.
    if [ $e -le 128 ] && { [ $e != 0 ] || { [ -n "$u" ] && [ "${u%?}" = "${v%?}" ]; }; }; then
        step=1
        n=2
    fi
    i=$((i + n))
done 2>/dev/null
[ ! -f waiter ] || rm -f waiter
trap - HUP TERM
# The exit code appears before its writer ends: looking for the process first, one of both is seen.
a=
p=
[ ! -s pid ] || read -r p <pid
[ -z "$p" ] || [ ! -d "/proc/$p" ] || a=1
if [ -s rc ]; then
    read -r r <rc
    if [ -f end ] || [ -z "$a" ]; then echo "done $r"; else echo "done $r left"; fi
elif [ -n "$a" ]; then
    echo running
elif [ -z "$p" ]; then
    echo begins
else
    echo gone
fi
b=
read -r b <boot
echo "$b"
cat /proc/sys/kernel/random/boot_id
[ -f end ] || exit 0
