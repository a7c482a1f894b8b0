#!/bin/sh
# Measure a program that a change has built against the one before, in turns on the same phone, and say what came of it:
# docs/guides/compare.md. The exit code is that of 'benchfarm ab': 1 when something is slower or broken.
#
# BASELINE   the program before the change: a file, or the name of a build ('benchfarm build list')
# CANDIDATE  the program with the change
# MODELS     .tflite files, with spaces between
# SERIAL     of the phone; empty for all that are attached
# VIRTUAL    profiles of virtual phones to be measured on instead ('pixel-3'); their numbers are no measurements
# OUT        folder of what is written: benchfarm.xml (JUnit), benchfarm.md, benchfarm.html
# ARGUMENTS  more for 'benchfarm ab', for example '--detect 3% --budget 20min'
set -eu
: "${BASELINE:?names no program}" "${CANDIDATE:?names no program}" "${MODELS:?names no model}"
out=${OUT:-benchfarm-results}
mkdir -p "$out"
if [ -n "${VIRTUAL:-}" ]; then
  trap 'benchfarm virtual down' EXIT
  # shellcheck disable=SC2086 # several words
  benchfarm virtual up $VIRTUAL
fi

set -- "$BASELINE" "$CANDIDATE" --format junit --out "$out/benchfarm.xml"
for model in $MODELS; do set -- "$@" --model "$model"; done
if [ -n "${SERIAL:-}" ]; then set -- "$@" --serial "$SERIAL"; fi
code=0
# shellcheck disable=SC2086 # several words
benchfarm ab "$@" ${ARGUMENTS:-} || code=$?
# 0 and 1 are outcomes; anything else is a fault, and nothing was compared.
if [ "$code" -gt 1 ]; then exit "$code"; fi

benchfarm compare newest --fail-on never --out "$out/benchfarm.html"
benchfarm compare newest --fail-on never --out "$out/benchfarm.md"
if [ -n "${GITHUB_ACTIONS:-}" ]; then
  cat "$out/benchfarm.md" >> "${GITHUB_STEP_SUMMARY:-/dev/null}"
fi
exit "$code"
