#!/bin/sh
# Prints df's lines of the file system of a folder, an empty line, and what lies in the folder of placed files:
# `used SECONDS PATH` for each file that says when it was used, `size BYTES PATH` for each placed or half-sent file.
#   place_list FOLDER
# FOLDER may not be there yet; the one above is.
above=${1%/*}
df -k "${above:-/}"
echo
cd "$1" 2>/dev/null || exit 0
# shellcheck disable=SC2035 # kinds begin with a letter
stat -c 'used %Y %n' */*.verified 2>/dev/null
# shellcheck disable=SC2035
stat -c 'size %s %n' */*/* */*/.*.part 2>/dev/null
true
