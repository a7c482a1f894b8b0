#!/bin/sh
# Tells which of some init services run, or stops those.
#   running_services read SERVICE...     prints their names on one line
#   running_services stop SERVICE...
what=$1
shift
running=
for s in "$@"; do
    [ "$(getprop "init.svc.$s")" = running ] || continue
    running="$running $s"
    [ "$what" = read ] || stop "$s"
done
# shellcheck disable=SC2086 # blanks between names are one
[ "$what" = stop ] || echo $running
