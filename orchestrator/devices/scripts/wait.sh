#!/bin/sh
# Waits in a run's folder for its end.
#   wait FOLDER STEP STEPS
# It sleeps at most STEPS times STEP seconds; 1 second if the phone's sleep takes whole seconds only. The run's end (run.sh)
# ends the sleep; if it can't, the step ends soon. Prints, a line each:
#   done CODE | running | begins (the run's shell hasn't written its pid yet) | gone (no such process, no exit code);
#     `done CODE left` if a process of the run still runs after its program's end
#   the boot id when the run began
#   the boot id now
#   the phone's uptime at the run's end, if it has ended completely; and now
# If the run has ended completely, the caller's next script runs in FOLDER; else this one exits with 0.
# Exit code 1: FOLDER is missing. 143: this shell got a signal, from its link's end or anybody.

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
    # The program has ended, but not its sampler: wait at most four steps for that.
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
    # A sleep that takes whole seconds only fails, or doesn't sleep at all: don't spin.
    if [ $e -le 128 ] && { [ $e != 0 ] || { [ -n "$u" ] && [ "${u%?}" = "${v%?}" ]; }; }; then
        step=1
        n=2
    fi
    i=$((i + n))
done 2>/dev/null
[ ! -f waiter ] || rm -f waiter
trap - HUP TERM
# The exit code appears before its writer ends: by checking the process first, one of them is seen.
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
u=
[ ! -s end ] || read -r u <end
v=
read -r v _ </proc/uptime
echo "$u $v"
[ -f end ] || exit 0
