#!/bin/sh
# Prints the user id of this shell, and that of its su if the phone has one: 0 is root.
#   root_user
id -u
# Android's own su takes a user first, Magisk's takes -c.
command -v su >/dev/null && { su 0 id -u || su -c 'id -u'; } 2>/dev/null
