#!/bin/sh
# Clears the tracing properties that name one of these apps: tracers leave them behind.
#   forget_apps PACKAGE...
n=0
while [ $n -lt $# ]; do
    named=$(getprop "debug.atrace.app_$n")
    for app in "$@"; do
        [ "$named" != "$app" ] || setprop "debug.atrace.app_$n" ''
    done
    n=$((n + 1))
done
