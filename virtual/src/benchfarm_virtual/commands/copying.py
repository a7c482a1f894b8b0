"""dd from /dev/zero to /dev/null: memory that is filled, for the time that it takes."""

from __future__ import annotations

from typing import Final

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.commands.registry import command

#: Of the memory's bandwidth, what one core gets by filling it.
_SHARE: Final = 0.3


@command("dd")
def dd(call: Invocation) -> int:
    """Fill a block of memory again and again: ``dd if=/dev/zero of=/dev/null bs=BYTES count=N``."""
    given = dict(arg.partition("=")[::2] for arg in call.args)
    if given.get("if") != "/dev/zero" or given.get("of") != "/dev/null":
        call.error("a virtual phone copies /dev/zero to /dev/null only")
        return 1
    try:
        size = int(given.get("bs", "512")) * int(given["count"])
    except (KeyError, ValueError):
        call.error("bs and count must be whole numbers")
        return 1
    hardware = call.system.hardware
    work = hardware.begin_spin(call.process.pid, memory_share=_SHARE)
    try:
        call.system.time.sleep(
            size / (_SHARE * hardware.profile.cpu.memory_gbps * 1e9), call.process.killed
        )
    finally:
        hardware.end_work(work)
    return 0
