#!/bin/sh
# Samples the kernel's small files beside a run: at once, every two seconds, and at the end, by TERM or by the file rc.
#   sh sampler.sh PID [SECONDS [LOOKS]]
# PID is the run's shell: when it has ended, or after LOOKS (1800) samples SECONDS (2) apart, the sampler ends by itself.
# Prints for each sample a line `--look`, then lines `PATH:CONTENT`. Before the last sample, at the end, it prints
# `--times` and the file `cpu_times` of the run's shell.
# A sample costs one grep, a pause one sleep. The sampler has the lowest priority and the slowest cluster's cores. The shell
# itself reads nothing over a bus: a hanging sensor delays only grep.
# It contains no backslash: some shells' echo, by which it is written to the phone, would interpret it.

pid=$1
seconds=${2:-2}
looks=${3:-1800}
end=
s=
# A signal must neither wait for the end of a sleep nor leave the sleep behind.
trap 'end=1; [ -z "$s" ] || kill $s 2>/dev/null' TERM

c=/sys/devices/system/cpu/cpufreq/policy
if [ -d ${c}0 ]; then
    c=$c'[0-9]*'
else
    c='/sys/devices/system/cpu/cpu[0-9]*/cpufreq'
fi
g=/sys/class/kgsl/kgsl-3d0
gpu="$g/gpu_busy_percentage $g/gpuclk $g/devfreq/max_freq"
g=/sys/class/misc/mali0/device
gpu="$gpu $g/cur_freq $g/scaling_max_freq $g/utilization $g/time_in_state"
# Reading a sensor may use a slow bus: eight sensors are enough.
z=
i=0
for d in /sys/class/thermal/thermal_zone*; do
    read -r n <"$d/type" || continue
    case $n in
        soc | socd | *ocp_*) ;; # the battery's charge, and limits of currents
        *[cC][pP][uU]* | *[gG][pP][uU]* | *[sS][kK][iI][nN]* | *[sS][oO][cC]* | BIG | MID | LITTLE | G3D | quiet*)
            z="$z $d/type $d/temp"
            i=$((i + 1))
            ;;
    esac
    [ $i -lt 8 ] || break
done 2>/dev/null

# The time comes before and after: a delayed sample spans several moments.
look() {
    echo --look
    read -r u </proc/uptime && read -r l </proc/stat && echo "/proc/uptime:$u" && echo "/proc/stat:$l"
    # shellcheck disable=SC2086 # patterns and lists of paths
    grep -H "" $c/stats/time_in_state /proc/uptime $c/scaling_cur_freq $c/scaling_max_freq $gpu $z
} 2>/dev/null

look

# The slowest cluster's cores, unless all are equal.
a=
b=
r=
for d in $c; do
    read -r x <"$d/cpuinfo_max_freq" || continue
    if [ -z "$b" ] || [ "$x" -gt "$b" ]; then b=$x; fi
    if [ -z "$a" ] || [ "$x" -lt "$a" ]; then
        a=$x
        read -r r <"$d/related_cpus"
    fi
done 2>/dev/null
{
    if [ -n "$a" ] && [ "$a" -lt "$b" ]; then
        k=0
        for x in $r; do k=$((k | (1 << x))); done
        taskset -p "$(printf %x $k)" $$ || taskset -p "$(printf 0x%x $k)" $$
    fi
    renice -n 19 -p $$
} >/dev/null 2>&1

i=0
while [ -z "$end" ] && [ ! -s rc ] && [ -d "/proc/$pid" ] && [ "$i" -lt "$looks" ]; do
    sleep "$seconds" &
    s=$!
    if [ -n "$end" ] || [ -s rc ]; then kill $s; fi
    wait $s
    e=$?
    s=
    # Without a sleep it would sample without a pause.
    [ $e = 0 ] || [ $e -gt 128 ] || break
    [ -n "$end" ] || [ -s rc ] || look
    i=$((i + 1))
done
if [ -n "$end" ] || [ -s rc ]; then
    echo
    echo --times
    while read -r l; do echo "$l"; done <cpu_times
    look
fi 2>/dev/null
