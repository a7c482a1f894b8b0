#!/bin/sh
# Prints the cores and the clocks of each cluster, a line FILE:CONTENT for each file.
#   cpu_clusters
cpu=/sys/devices/system/cpu
folders=$(ls -d $cpu/cpufreq/policy[0-9]* 2>/dev/null)
[ -n "$folders" ] || folders=$(ls -d $cpu/cpu[0-9]*/cpufreq)
for d in $folders; do
    grep -H "" "$d/related_cpus" "$d/cpuinfo_min_freq" "$d/cpuinfo_max_freq" 2>/dev/null
done
