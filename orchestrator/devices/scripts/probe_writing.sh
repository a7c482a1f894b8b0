#!/bin/sh
# Writes a file in FOLDER, or in ROOT if FOLDER is missing, and removes it: without space a run fails in many ways, few of
# which say so.
#   probe_writing FOLDER ROOT
cd "$1" 2>/dev/null || cd "$2" && echo x >probe && rm probe
