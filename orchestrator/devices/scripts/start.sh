#!/bin/sh
# Starts a run in the background, once, even if it is sent repeatedly over broken links.
#   start ROOT FOLDER TOKEN COMMAND RUN SAMPLER
# FOLDER is the run's own, in ROOT. TOKEN identifies this start in the folder. RUN and SAMPLER are the texts of run.sh and
# sampler.sh, SAMPLER empty for a run without sampler.
# Continues if the run was started, now or before. Otherwise it exits with 1, also if an earlier start was cut off, or is
# slow.

mkdir -p "$1"
# The end of the link sends HUP to this shell: a start that is cut off halfway would leave a run that never begins. Its
# children keep ignoring it.
trap '' HUP
if mkdir "$2"; then
    cd "$2" && cat /proc/sys/kernel/random/boot_id >boot && echo "$5" >run.sh && echo "$3" >token || exit 1
    [ -z "$6" ] || echo "$6" >sampler.sh 2>/dev/null || rm -f sampler.sh
    # Only the exit code counts: `command -v` may print an alias.
    s=
    command -v setsid >/dev/null && s=setsid
    $s sh run.sh "benchfarm-run:$2" "$4" >/dev/null 2>shell.err </dev/null &
elif [ "$(cat "$2/token" 2>/dev/null)" != "$3" ]; then
    exit 1
fi
trap - HUP
