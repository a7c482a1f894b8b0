#!/bin/sh
# Install the Debian packages that some tests use, where that can be done without asking anyone.
missing=""
command -v adb >/dev/null || missing="$missing adb"
command -v chromium-headless-shell >/dev/null || missing="$missing chromium-headless-shell"
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
command -v cc >/dev/null || missing="$missing gcc libc6-dev"
for shell in dash mksh busybox toybox; do
    command -v $shell >/dev/null || missing="$missing $shell"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing for the tests:$missing"
    apt-get update -qq
    # One by one: apt-get installs none where it doesn't know one of them.
    packages=$missing missing=""
    for package in $packages; do
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $package >/dev/null ||
            missing="$missing $package"
    done
fi
[ -z "$missing" ] || echo "not installed, tests that use them are skipped or have something older:$missing"
