#!/bin/sh
# Prints the line with the GPU's maker, name and driver; nothing where the phone's compositor doesn't tell it in time.
#   gpu_driver SECONDS
# Who asks a compositor that hangs is ended: the phone's other answers come after this one.
{
    dumpsys SurfaceFlinger </dev/null &
    d=$!
    {
        sleep "$1"
        kill -9 $d
    } </dev/null >/dev/null &
    w=$!
    wait $d
    kill -9 $w
} 2>/dev/null | grep GLES:
