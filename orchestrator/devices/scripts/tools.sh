#!/bin/sh
# Tries the tools that benchfarm uses on a phone, each with the options that benchfarm gives it.
#   tools FOLDER
# FOLDER may be written. Prints a line for each: NAME works|missing, and the first line that it printed.

cd "$1" || exit 1

# Print whether a command works: its name, the text that it must print (empty: any), the command.
try() {
  name=$1
  wanted=$2
  shift 2
  printed=$("$@" 2>&1 </dev/null)
  code=$?
  result=missing
  if [ $code = 0 ]; then
    case $printed in
      *"$wanted"*) result=works ;;
    esac
  fi
  printed=${printed%%
*}
  echo "$name $result $printed"
}

printf 'a\nb\n' >tools.txt

echo "shell works ${KSH_VERSION:-unknown}"
try cat b cat tools.txt
try chmod '' chmod 700 tools.txt
try df / df -k .
try getprop '' getprop ro.serialno
try grep tools.txt:b grep -H '' tools.txt
try id '' id -u
try ls tools.txt ls -d tools.txt
try md5sum dd8c6a395b5dd36c md5sum tools.txt
try mkdir '' mkdir -p tools.folder
try ps-pgid PGID ps -A -o PID,PPID,PGID,ARGS
try ps PID ps
try renice '' renice -n 19 -p $$
try rm '' rm -rf tools.folder
try setsid '' setsid true
try sha256sum 911169ddaaf146af sha256sum tools.txt
try sleep-fraction '' sleep 0.05
try sleep '' sleep 0
try stat 4 stat -c %s tools.txt
try sync '' sync
try tail b tail -n 1 tools.txt
try taskset '' taskset -p $$
try timeout '' timeout 5 true
try wc 4 wc -c tools.txt

for name in am atrace cmd input log logcat perfetto pidof pm run-as svc; do
  if path=$(command -v $name); then
    echo "$name works $path"
  else
    echo "$name missing"
  fi
done

# What is read beside a run.
for file in /proc/uptime /proc/stat /proc/meminfo /proc/loadavg /proc/$$/comm /proc/sys/kernel/random/boot_id \
  /sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq /sys/devices/system/cpu/cpufreq/policy0/stats/time_in_state \
  /sys/class/thermal/thermal_zone0/temp /sys/class/power_supply/battery/current_now; do
  if (read -r line <"$file") 2>/dev/null; then
    read -r line <"$file"
    echo "$file works $line"
  else
    echo "$file missing"
  fi
done

rm -f tools.txt
