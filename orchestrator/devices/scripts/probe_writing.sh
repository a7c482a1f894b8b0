#!/bin/sh
# Writes a file in FOLDER, or in ROOT where FOLDER is gone, and removes it: a run fails in many ways without space, few of
# which say so.
#   probe_writing FOLDER ROOT
cd "$1" 2>/dev/null || cd "$2" && echo x >probe && rm probe
