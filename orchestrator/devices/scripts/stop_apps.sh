#!/bin/sh
# Stops these apps if they run.
#   stop_apps PACKAGE...
for app in "$@"; do
    [ -z "$(pidof "$app")" ] || am force-stop "$app"
done
