#!/bin/sh
# build.sh ROOT: make the read-only file tree that all phones of real parts share.
# Android's own adbd, mksh and toybox come as Debian packages, fetched by apt into folders of its own: apt's lock and the
# packages of this computer are left alone. Needs apt-get, dpkg-deb and Debian's keyring.
set -eu
root=$1 new=$1.new apt=$1.apt
release=trixie # the first release of Debian that has adbd
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
# What Android's toybox has and Debian's leaves out comes from coreutils, diffutils, gzip, util-linux and mawk.
packages="adbd mksh toybox coreutils diffutils gzip util-linux mawk"
others="usr/bin/dd usr/bin/tr usr/bin/expr usr/bin/stty usr/bin/diff usr/bin/gzip usr/bin/getopt"

exec 9>"$root.lock"
flock 9
[ ! -d "$root" ] || exit 0
[ -f "$keyring" ] || { echo "build.sh: $keyring isn't there" >&2; exit 1; }
trap 'rm -rf "$new" "$apt"' EXIT
mkdir -p "$new" "$apt/lists/partial" "$apt/cache/archives/partial"
: >"$apt/status"
# The mirror that this computer's own apt uses.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -m 1 '/debian/*$' || true)
[ -n "$mirror" ] || { echo "build.sh: apt has no mirror of Debian here" >&2; exit 1; }
echo "deb [signed-by=$keyring] $mirror $release main" >"$apt/sources.list"
own_apt() {
  apt-get -q -o Dir::State="$apt" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" \
    -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferences=/dev/null \
    -o Dir::Etc::preferencesparts=/dev/null -o APT::Sandbox::User=root -o Acquire::Languages=none \
    -o Acquire::Retries=5 -o Debug::NoLocking=1 "$@"
}
own_apt update
own_apt install -y --download-only --no-install-recommends $packages
mkdir -p "$new/all/usr/bin" "$new/all/usr/sbin" "$new/all/usr/lib" "$new/all/usr/lib64"
for name in bin sbin lib lib64; do ln -s "usr/$name" "$new/all/$name"; done
for package in "$apt"/cache/archives/*.deb; do dpkg-deb --fsys-tarfile "$package" | tar -x -C "$new/all" --keep-directory-symlink; done

# Of all that, the libraries and a few programs. /system/tools holds them; what of it a phone has in /system/bin is its own
# matter, so that a test can take a tool away.
for name in system/bin system/tools apex/com.android.adbd/bin data sdcard mnt/phone dev proc sys etc .old; do
  mkdir -p "$new/phone/$name"
done
cd "$new/phone"
mkdir usr
mv "$new/all/usr/lib" usr/lib
mv "$new/all/usr/lib64" usr/lib64
rm -rf usr/lib/systemd usr/lib/udev usr/share
ln -s usr/lib lib
ln -s usr/lib64 lib64
ln -s system/bin bin
mv usr/lib/android-sdk/platform-tools/adbd apex/com.android.adbd/bin/adbd
for name in $others; do cp -L "$new/all/$name" system/tools/; done
cp -L "$new/all/usr/bin/mawk" system/tools/awk
cp -L "$new/all/usr/bin/mksh" system/tools/sh
cp -L "$new/all/usr/bin/toybox" system/tools/toybox
cp -L "$new/all/usr/bin/setpriv" usr/lib/setpriv
for name in $(chroot . /system/tools/toybox); do
  case $name in
    # Not on a phone, or of no use there.
    getprop|setprop|log|start|stop|reboot|halt|poweroff|su|login|passwd|httpd|wget|watch|toybox) ;;
    *) [ -e "system/tools/$name" ] || ln -s toybox "system/tools/$name" ;;
  esac
done
for row in root:0 system:1000 shell:2000; do
  echo "${row%:*}:x:${row#*:}:${row#*:}::/:/system/bin/sh" >>etc/passwd
  echo "${row%:*}:x:${row#*:}:" >>etc/group
done
for deb in "$apt"/cache/archives/*.deb; do dpkg-deb --show --showformat '${Package} ${Version}\n' "$deb"; done |
  grep -E '^(adbd|mksh|toybox) ' >etc/versions
mv "$new/phone" "$root"
