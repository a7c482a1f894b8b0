#!/bin/sh
# Tries a tool in a folder of ours: prints `works` or `missing`, and the first line that it printed.
#   try FOLDER WANTED COMMAND...
# It works when its exit code is 0 and WANTED is in what it printed. The file try.txt there holds the lines a and b.
cd "$1" || exit 1
wanted=$2
shift 2
printf 'a\nb\n' >try.txt
printed=$("$@" </dev/null)
code=$?
result=missing
if [ $code = 0 ]; then
    case $printed in
        *"$wanted"*) result=works ;;
    esac
fi
rm -f try.txt
echo "$result ${printed%%
*}"
