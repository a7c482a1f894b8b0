#!/bin/sh
# Prints the names of the tracers that the phone has, a line each. Each is asked for alone: `command -v a b` tells nothing
# of b in some shells when there is no a.
for n in perfetto atrace; do
    command -v $n >/dev/null && echo $n
done
true
