#!/bin/sh
# Compare two builds of benchmark_model on one phone, in turns: examples/ab.sh SERIAL OLD NEW MODEL...
# OLD and NEW are names, sha256 or files of programs ('benchfarm build list'). Exit code 1: NEW is slower, or broken.
set -eu
[ $# -ge 4 ] || { echo "usage: $0 SERIAL OLD NEW MODEL..." >&2; exit 2; }
serial=$1 old=$2 new=$3
shift 3
for model; do set -- "$@" -m "$model"; shift; done
exec benchfarm ab "build:$old" "build:$new" -s "$serial" -d xnnpack -t 4 --detect 2% --format markdown "$@"
