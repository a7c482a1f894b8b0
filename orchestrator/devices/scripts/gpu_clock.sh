#!/bin/sh
# Prints the GPU's smallest and largest clock, or raises the smallest to the largest. Needs root on most phones.
#   gpu_clock read     prints FOLDER SMALLEST LARGEST, or nothing where one of them is missing
#   gpu_clock raise
for d in /sys/class/kgsl/kgsl-3d0/devfreq /sys/class/devfreq/*gpu* /sys/class/devfreq/*mali*; do
    [ -f "$d/min_freq" ] || continue
    if [ "$1" = raise ]; then
        cat "$d/max_freq" >"$d/min_freq"
    else
        least=$(cat "$d/min_freq")
        most=$(cat "$d/max_freq")
        # Both or nothing: the largest clock mustn't be read as the smallest.
        [ -z "$least" ] || [ -z "$most" ] || echo "$d $least $most"
    fi
    break
done
