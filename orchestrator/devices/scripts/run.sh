#!/bin/sh
# Runs a program in the current folder, a run's own, and writes down how it ended. It goes on without its starter.
#   sh run.sh LABEL COMMAND
# LABEL is for the process list alone. COMMAND is a command line. Files that it writes:
#   pid      its own process number, which is its process group's too where the phone has setsid
#   out err  the command's standard output and standard error
#   cpu_times  the processor time of the command and its children, as the shell tells it
#   rc       the command's exit code, written the moment it ends
#   samples  what the sampler saw and complained of, if there is the file sampler.sh
#   end      empty, the last: nothing more is written here
# A file `stop` keeps it from starting: who kills a run writes it before reading `pid`.
# The sampler is another process. Whatever becomes of it, the command runs, and its exit code is written before the
# sampler is waited for.

echo $$ >pid || exit 1
[ ! -e stop ] || exit 1
w=
if [ -f sampler.sh ]; then
    sh sampler.sh $$ >samples 2>&1 </dev/null &
    w=$!
fi
sh -c "$2" >out 2>err </dev/null
r=$?
times >cpu_times
echo $r >rc
# One that hasn't begun yet would die of the signal; it sees for itself that there is an exit code.
if [ -n "$w" ]; then
    [ ! -s samples ] || kill "$w"
    wait "$w"
fi 2>/dev/null
: >end
# Wake who waits (wait.sh). Its sleep may have ended and a stranger may have its number: it is asked for its name,
# which is still the shell's own just after its begin.
s=
n=
[ ! -s waiter ] || read -r s <waiter
[ -n "$s" ] && read -r n <"/proc/$s/comm" && case $n in
    sleep | *sh | toybox | busybox) kill "$s" ;;
esac 2>/dev/null
exit "$r"
