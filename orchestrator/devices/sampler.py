"""A watcher on the device while a run measures: a line of figures every two seconds, from the kernel's small files.

It is started by the run's own wrapper, inside the run's process group, so that whatever ends the run ends it too. One
look costs the device one ``grep`` and one ``sleep``; the watcher is the lowest in priority and pinned to the slowest
cluster where there is more than one. Right before and right after the program there is a look as well, so that what
the clocks did and how busy the cores were is known for exactly the run's time, however short it is.

``analysis.samples`` reads what it wrote.
"""

from __future__ import annotations

from typing import Final

from orchestrator.records.sample import SAMPLES_FILE

#: What the script is called in the run's folder.
SCRIPT_FILE: Final = "sampler"
#: How long it sleeps between two looks, and after how many it stops for good (an hour).
INTERVAL_S: Final = 2
_LOOKS_MAX: Final = 1800
#: Reading a sensor may go over a slow bus: as many as say what is wanted.
_ZONES_MAX: Final = 8

_CPU: Final = "/sys/devices/system/cpu"
_GPU: Final = (
    "/sys/class/kgsl/kgsl-3d0/gpu_busy_percentage /sys/class/kgsl/kgsl-3d0/gpuclk "
    "/sys/class/kgsl/kgsl-3d0/devfreq/max_freq "
    "/sys/class/misc/mali0/device/cur_freq /sys/class/misc/mali0/device/scaling_max_freq "
    "/sys/class/misc/mali0/device/utilization /sys/class/misc/mali0/device/time_in_state"
)

#: Read by a shell (``. SCRIPT``) it makes ``look`` known, which looks once; ``m=loop sh SCRIPT PID`` looks until that
#: process is gone, without searching for the sensors in ``t`` and ``z`` again. Everything but grep, sleep, and the
#: pinning at the start is the shell's own. It holds no backslash, which some shells' echo would take for its own.
SAMPLER_SCRIPT: Final = (
    f"c={_CPU}/cpufreq/policy; [ -d ${{c}}0 ] && c=$c'[0-9]*' || c='{_CPU}/cpu[0-9]*/cpufreq'\n"
    "i=0\n"
    '[ -n "$z" ] || for d in /sys/class/thermal/thermal_zone*; do\n'
    " read n <$d/type || continue\n"
    " case $n in\n"
    "  *[cC][pP][uU]*|*[gG][pP][uU]*|*[sS][kK][iI][nN]*|*[sS][oO][cC]*|BIG|MID|LITTLE|G3D|quiet*)\n"
    '   t="$t $d/type"; z="$z $d/temp"; i=$((i+1));;\n'
    " esac\n"
    f" [ $i -lt {_ZONES_MAX} ] || break\n"
    "done 2>/dev/null\n"
    "look() {\n"
    " echo --look\n"
    # The time before and after: a look that was held up is of no one moment.
    ' read u </proc/uptime && read l </proc/stat && echo "/proc/uptime:$u" && echo "/proc/stat:$l"\n'
    f' grep -H "" $c/stats/time_in_state /proc/uptime $c/scaling_cur_freq $c/scaling_max_freq {_GPU} $t $z\n'
    "} 2>/dev/null\n"
    '[ "$m" = loop ] || return 0\n'
    # The slowest cluster's cores, unless all are equal.
    "a=; b=; r=\n"
    "for d in $c; do\n"
    " read m <$d/cpuinfo_max_freq || continue\n"
    ' [ -n "$b" ] && [ $m -le $b ] || b=$m\n'
    ' if [ -z "$a" ] || [ $m -lt $a ]; then a=$m; read r <$d/related_cpus; fi\n'
    "done 2>/dev/null\n"
    "{\n"
    ' if [ -n "$a" ] && [ $a -lt $b ]; then\n'
    "  k=0; for x in $r; do k=$((k|(1<<x))); done\n"
    '  taskset -p $(printf %x $k) $$ || taskset -p "$(printf 0x%x $k)" $$\n'
    " fi\n"
    " renice -n 19 -p $$\n"
    "} >/dev/null 2>&1\n"
    # A signal must not wait for the sleep's end, nor leave the sleep behind.
    "trap 'kill $s 2>/dev/null; exit 0' TERM\n"
    "i=0\n"
    f"while [ -d /proc/$1 ] && [ $i -lt {_LOOKS_MAX} ]; do\n"
    f" sleep {INTERVAL_S} & s=$!; wait $s; look; i=$((i+1))\n"
    "done"
)

#: Runs ``$1`` with its streams in ``out`` and ``err``, watched where the script above lies beside them. Leaves the exit
#: code in r. On one line: a process list shows it among the words of the run's shell.
SAMPLED_RUN: Final = (
    f"if [ -f {SCRIPT_FILE} ]; then m=; t=; z=; . ./{SCRIPT_FILE}; look >{SAMPLES_FILE} </dev/null; "
    f'm=loop t="$t" z="$z" sh {SCRIPT_FILE} $$ >>{SAMPLES_FILE} 2>/dev/null </dev/null & w=$!; fi; '
    'sh -c "$1" >out 2>err </dev/null; r=$?; '
    f"if [ -f {SCRIPT_FILE} ]; then {{ echo; echo --times; times; }} >>{SAMPLES_FILE}; "
    f"kill $w; wait $w; look >>{SAMPLES_FILE} </dev/null; fi 2>/dev/null; "
)
