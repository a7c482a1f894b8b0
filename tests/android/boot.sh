#!/bin/sh
# boot.sh ROOT PHONE PORT: runs as the first process of a phone's namespaces (mounts, pids, host name); puts its file tree
# together, leaves this computer's behind and becomes the phone's init, which starts adbd again whenever it ends.
set -eu
root=$1 phone=$2 port=$3 to=$2/mount
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount --bind -o ro "$root" "$to"
mount --bind "$phone/bin" "$to/system/bin"
mount --bind "$phone/sys" "$to/sys"
mount --bind "$phone/state" "$to/mnt/phone"
mount --bind "$phone/data" "$to/data"
[ ! -e "$phone/noexec" ] || mount -o remount,bind,noexec "$to/data"
mkdir -p "$phone/data/media"
chmod 777 "$phone/data/media"
mount --bind "$phone/data/media" "$to/sdcard"
mount -t proc proc "$to/proc"
mount --bind -o ro "$to/proc/sys" "$to/proc/sys" # this computer's own
mount --bind "$phone/boot_id" "$to/proc/sys/kernel/random/boot_id"
mount -t tmpfs -o mode=755 phone "$to/dev"
for name in null zero full random urandom tty; do
  : >"$to/dev/$name"
  mount --bind "/dev/$name" "$to/dev/$name"
done
mkdir "$to/dev/pts" "$to/dev/socket"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$to/dev/pts"
ln -s pts/ptmx "$to/dev/ptmx"
ln -s /proc/self/fd "$to/dev/fd"
hostname localhost
cd "$to"
pivot_root . .old
# From here on only the phone's own programs. Groups and variables are those that Android gives adbd's shell.
exec /system/bin/env -i port="$port" /system/bin/chroot . /system/bin/sh -c '
  umount -l /.old
  while :; do
    env -i PATH=/product/bin:/apex/com.android.runtime/bin:/system/bin:/system/xbin:/vendor/bin HOME=/ \
      ANDROID_ROOT=/system ANDROID_DATA=/data ANDROID_STORAGE=/storage EXTERNAL_STORAGE=/sdcard TMPDIR=/data/local/tmp \
      ADBD_PORT=$port \
      /usr/lib/setpriv --reuid 2000 --regid 2000 --inh-caps=-all --bounding-set=-all \
      --groups 1004,1007,1011,1015,1028,3001,3002,3003,3006,3009,3011 \
      /apex/com.android.adbd/bin/adbd </dev/null &
    wait $!
    sleep 0.2
  done'
