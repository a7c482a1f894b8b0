#!/bin/sh
# Runs a program in the current folder, its run's folder, and records its end. It outlives its starter.
#   sh run.sh LABEL COMMAND
# LABEL is only for the process list. COMMAND is a command line. Files that it writes:
#   pid      its own pid, which is also its process group if the phone has setsid
#   out err  the command's standard output and standard error
#   cpu_times  the processor time of the command and its children, as printed by the shell
#   rc       the command's exit code, written as soon as it ends
#   samples  the sampler's output and errors, if the file sampler.sh exists
#   end      the phone's uptime in seconds, written last: nothing more is written here
# A file `stop` prevents the start: the killer of a run writes it before reading `pid`.
# The sampler is another process. Even if it fails, the command runs, and its exit code is written before the sampler is
# waited for.

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
# A sampler that hasn't begun yet would be killed by the signal; it notices the exit code by itself.
if [ -n "$w" ]; then
    [ ! -s samples ] || kill "$w"
    wait "$w"
fi 2>/dev/null
u=
{ read -r u _ </proc/uptime; } 2>/dev/null
echo "$u" >end
# Wake wait.sh. Its sleep may have ended and another process may have its pid: check the name, which is still the shell's
# just after the fork.
s=
n=
[ ! -s waiter ] || read -r s <waiter
[ -n "$s" ] && read -r n <"/proc/$s/comm" && case $n in
    sleep | *sh | toybox | busybox) kill "$s" ;;
esac 2>/dev/null
exit "$r"
