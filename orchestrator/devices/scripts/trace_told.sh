#!/bin/sh
# Waits until apps are told that slices are wanted, for LOOKS tenths of a second at most; exits with 0 in any case.
#   trace_told LOOKS
i=0
while [ "$i" -lt "$1" ]; do
    n=$(getprop debug.atrace.app_number)
    [ "${n:-0}" -ge 1 ] && break
    sleep 0.1 || sleep 1
    i=$((i + 1))
done
true
