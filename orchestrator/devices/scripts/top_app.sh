#!/bin/sh
# Moves this shell into the scheduling groups of the app on the screen; ends it if the phone refuses.
#   top_app FILE CODE
# FILE gets the content of /proc/PID/cgroup. If that isn't top-app: a line on standard error, and exit code CODE. The
# cgroups belong to the system: root may write them, settaskprofile (Android 13) only if the system lets it.
is_there() { grep -q cpuset:/top-app /proc/$$/cgroup; }
(
    echo $$ >/dev/cpuset/top-app/cgroup.procs
    echo $$ >/dev/cpuctl/top-app/cgroup.procs
) 2>/dev/null
is_there || settaskprofile $$ SCHED_SP_TOP_APP CPUSET_SP_TOP_APP MaxPerformance >/dev/null 2>&1
move="echo $$ >/dev/cpuset/top-app/cgroup.procs; echo $$ >/dev/cpuctl/top-app/cgroup.procs"
if command -v su >/dev/null; then
    is_there || su 0 sh -c "$move" >/dev/null 2>&1
    is_there || su -c "$move" >/dev/null 2>&1
fi
cat /proc/$$/cgroup >"$1"
if ! is_there; then
    echo "benchfarm: mode not reached: this phone keeps a shell's process out of top-app ($(grep cpuset "$1"))" >&2
    exit "$2"
fi
