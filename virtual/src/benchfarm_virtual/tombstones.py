"""What the crash log shows when a program dies of a signal of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchfarm_virtual.logs import PhoneLogs
from benchfarm_virtual.processes import Process

_NAMES: Final[Mapping[int, tuple[str, str]]] = {
    6: ("SIGABRT", "-1 (SI_QUEUE)"),
    11: ("SIGSEGV", "1 (SEGV_MAPERR)"),
}
#: Signals after which crash_dump writes a tombstone.
CRASHES: Final = frozenset(_NAMES)


def log_tombstone(
    logs: PhoneLogs, props: Mapping[str, str], process: Process, signal: int, *, abi: str
) -> None:
    """Write the lines of libc and of crash_dump into the crash buffer."""
    name, code = _NAMES[signal]
    thread = process.name[-15:]
    address = "--------" if signal == 6 else "0x0"
    logs.append(
        "F",
        "libc",
        f"Fatal signal {signal} ({name}), code {code}, fault addr {address} in tid {process.pid} ({thread}), "
        f"pid {process.pid} ({thread})",
        pid=process.pid,
        uid=process.uid,
        buffer="crash",
    )
    fingerprint = props.get("ro.build.fingerprint", "")
    lines = [
        "*** *** *** *** *** *** *** *** *** *** *** *** *** *** *** ***",
        f"Build fingerprint: '{fingerprint}'",
        f"Revision: '{props.get('ro.revision', '0')}'",
        f"ABI: '{'arm64' if abi.startswith('arm64') or not abi else 'arm'}'",
        f"pid: {process.pid}, tid: {process.pid}, name: {thread}  >>> {process.argv[0]} <<<",
        f"uid: {process.uid}",
        f"signal {signal} ({name}), code {code}, fault addr {address}",
        "backtrace:",
        f"      #00 pc 00000000001d2c54  {process.argv[0]}",
    ]
    dumper = process.pid + 9
    for line in lines:
        logs.append("F", "DEBUG", line, pid=dumper, uid=process.uid, buffer="crash")
