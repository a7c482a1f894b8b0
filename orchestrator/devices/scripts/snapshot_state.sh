#!/bin/sh
# Prints whether the screen is on and whether each kind of doze is enabled, a line NAME=VALUE for each.
#   snapshot_state
dumpsys power | grep -m 1 mWakefulness=
for k in deep light; do
    echo "doze $k=$(dumpsys deviceidle enabled $k)"
done
