#!/bin/sh
# Tries a command in our folder: prints `works` or `missing`, and the first line of its output.
#   try FOLDER COMMAND
# COMMAND is a command line, which works when its exit code is 0. The file try.txt there holds the lines a and b.
cd "$1" || exit 1
printf 'a\nb\n' >try.txt
result=works
printed=$(sh -c "$2" </dev/null) || result=missing
rm -f try.txt
echo "$result ${printed%%
*}"
