"""The commands in the phone's /system/bin, done in this process."""
