#!/bin/sh
# Runs a command beside a load, which ends with the command, with this shell, or after SECONDS.
#   contention CPU MEMORY OTHER SECONDS COMMAND
# CPU shells count, MEMORY processes fill 16 MiB of their memory repeatedly (dd), and OTHER, a command line, runs once; it
# is empty for none. The file `load` in the current folder gets, before and after COMMAND, a line `begin UPTIME` or
# `end UPTIME` and for each load a line `KIND PID TICKS`: the processor time of it and its children, in hundredths of a
# second, or `gone`. Exits with COMMAND's code.
o=$3
s=$4
c=$5
own=$$
read -r t _ </proc/uptime
t=$((${t%.*} + s))
goes_on() {
    read -r u _ </proc/uptime && [ "${u%.*}" -lt $t ] && [ -d /proc/$own ]
}
work() {
    case $1 in
        cpu)
            while goes_on; do
                i=0
                while [ $i -lt 20000 ]; do i=$((i + 1)); done
            done
            ;;
        memory) while goes_on && dd if=/dev/zero of=/dev/null bs=16777216 count=64; do :; done ;;
        other) eval "$o" ;;
    esac
}
k=
: >load.err
begin() {
    n=0
    while [ $n -lt "$2" ]; do
        work "$1" </dev/null >/dev/null 2>>load.err &
        k="$k $1:$!"
        n=$((n + 1))
    done
}
look() {
    read -r u _ </proc/uptime && echo "$1 $u"
    for w in $k; do
        p=${w#*:}
        if read -r l <"/proc/$p/stat"; then
            # shellcheck disable=SC2086 # fields
            set -- ${l##*) }
            case $1 in
                Z | X) echo "${w%:*} $p gone" ;;
                *) echo "${w%:*} $p $((${12} + ${13} + ${14} + ${15}))" ;;
            esac
        else
            echo "${w%:*} $p gone"
        fi
    done
} >>load 2>/dev/null
begin cpu "$1"
begin memory "$2"
[ -z "$o" ] || begin other 1
[ -z "$k" ] || sleep 1
look begin
sh -c "$c"
r=$?
look end
for w in $k; do
    kill "${w#*:}"
done 2>/dev/null
exit $r
