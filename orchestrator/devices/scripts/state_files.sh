#!/bin/sh
# Prints the small kernel files of the device state, a line FILE:CONTENT for each of their lines.
#   state_files
# One grep reads them all: a process costs a phone a few milliseconds. It continues after a missing file.
c=/sys/devices/system/cpu/cpufreq/policy
if [ -d ${c}0 ]; then
    c=$c'[0-9]*'
else
    c='/sys/devices/system/cpu/cpu[0-9]*/cpufreq'
fi
adreno=/sys/class/kgsl/kgsl-3d0
mali=/sys/class/misc/mali0/device
# shellcheck disable=SC2086 # patterns
grep -H "" /proc/sys/kernel/random/boot_id /proc/uptime /proc/loadavg \
    /sys/class/thermal/thermal_zone*/type /sys/class/thermal/thermal_zone*/temp \
    $c/related_cpus $c/scaling_cur_freq $c/scaling_min_freq $c/scaling_max_freq $c/scaling_governor \
    $c/stats/time_in_state \
    $adreno/gpu_busy_percentage $adreno/gpuclk $adreno/devfreq/max_freq $adreno/devfreq/trans_stat \
    $mali/cur_freq $mali/scaling_max_freq $mali/utilization $mali/time_in_state \
    /sys/kernel/gpu/gpu_clock /sys/kernel/gpu/gpu_max_clock /sys/kernel/gpu/gpu_busy \
    /sys/class/devfreq/*mali*/cur_freq /sys/class/devfreq/*mali*/max_freq /sys/class/devfreq/*mali*/trans_stat 2>/dev/null
