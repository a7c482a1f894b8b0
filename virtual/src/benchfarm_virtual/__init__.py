"""The virtual phone: the device side of the adb protocol on loopback, and a phone's userland behind
it.

It stands in for a phone where none is attached. Nothing here imports the part of benchfarm that
talks to phones, nor adbutils, so that a misunderstanding of adb can't be shared by both sides and
hide.
"""
