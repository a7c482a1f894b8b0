#!/bin/sh
# Ends those of some apps that run.
#   stop_apps PACKAGE...
for app in "$@"; do
    [ -z "$(pidof "$app")" ] || am force-stop "$app"
done
