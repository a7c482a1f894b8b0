#!/bin/sh
# Tells the GPU's smallest and largest clock, or raises the smallest to the largest. It needs root on most phones.
#   gpu_clock read     prints FOLDER SMALLEST LARGEST, or nothing where one of the two isn't there
#   gpu_clock raise
for d in /sys/class/kgsl/kgsl-3d0/devfreq /sys/class/devfreq/*gpu* /sys/class/devfreq/*mali*; do
    [ -f "$d/min_freq" ] || continue
    if [ "$1" = raise ]; then
        cat "$d/max_freq" >"$d/min_freq"
    else
        least=$(cat "$d/min_freq")
        most=$(cat "$d/max_freq")
        # Both or nothing: the largest clock mustn't stand where the smallest is looked for.
        [ -z "$least" ] || [ -z "$most" ] || echo "$d $least $most"
    fi
    break
done
