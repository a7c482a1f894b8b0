#!/bin/sh
# Prints the governors and smallest clocks of CPU and GPU, a line FILE=CONTENT for each.
#   snapshot_files
for f in /sys/devices/system/cpu/cpufreq/policy[0-9]*/scaling_governor \
    /sys/devices/system/cpu/cpufreq/policy[0-9]*/scaling_min_freq \
    /sys/class/kgsl/kgsl-3d0/devfreq/min_freq /sys/class/devfreq/*gpu*/min_freq /sys/class/devfreq/*mali*/min_freq; do
    [ ! -f "$f" ] || echo "$f=$(cat "$f")"
done
