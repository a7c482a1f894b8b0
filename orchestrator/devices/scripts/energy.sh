#!/bin/sh
# Runs a command between two rests and writes down when each began and ended.
#   energy SECONDS SAMPLER COMMAND
# Each rest lasts SECONDS, a whole number. The file `energy` in the current folder gets lines `NAME UPTIME` (rest, work, end,
# over: seconds since boot) and the battery service's lines of its power sources. SAMPLER, a command line, runs meanwhile
# and writes to the file `battery`; it is empty for none. Exits with COMMAND's code; COMMAND runs even if no file can be
# written.
mark() {
    read -r u _ </proc/uptime && echo "$1 $u" >>energy
} 2>/dev/null
charger() {
    dumpsys battery </dev/null | grep powered: >>energy
} 2>/dev/null
s=
if [ -n "$2" ]; then
    sh -c "$2" </dev/null >battery 2>/dev/null &
    s=$!
fi
mark rest
sleep "$1"
charger
mark work
sh -c "$3"
r=$?
mark end
sleep "$1"
mark over
charger
[ -z "$s" ] || kill $s 2>/dev/null
exit $r
