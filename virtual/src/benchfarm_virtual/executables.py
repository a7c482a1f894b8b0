"""ELF files that were pushed: the program shelf has fake ones for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchfarm_virtual.contract import ProcessContext, ProgramDiedError
from benchfarm_virtual.handles import HandleSink, HandleSource
from benchfarm_virtual.tombstones import CRASHES, log_tombstone

if TYPE_CHECKING:
    from benchfarm_virtual.launching import Launch

#: e_machine -> whether the ABI is 64-bit, for what phones run.
_ARM: Final = {40: False, 183: True}


def is_elf(head: bytes) -> bool:
    """Say whether a file begins as an ELF file does."""
    return head.startswith(b"\x7fELF")


def run_executable(launch: Launch, path: str, head: bytes, size_bytes: int) -> int:
    """Run the ELF file at a phone path; return its exit status.

    Raises LaunchFaultError when the phone can't.
    """
    from benchfarm_virtual.launching import LaunchFaultError

    shown = launch.argv[0]
    machine = int.from_bytes(head[18:20], "little")
    bits = 64 if head[4:5] == b"\x02" else 32
    program = launch.system.shelf.native(path.rsplit("/", 1)[-1], head, size_bytes)
    if machine not in _ARM:
        raise LaunchFaultError(f"{shown}: not executable: {bits}-bit ELF file", 126)
    if _ARM[machine] and not launch.system.props.get("ro.product.cpu.abilist64", "arm64-v8a"):
        # A 64-bit program on a 32-bit userland: its loader, /system/bin/linker64, isn't there.
        raise LaunchFaultError(f"{shown}: No such file or directory", 127)
    if program is None:
        raise LaunchFaultError(
            f"{shown}: not executable: this virtual phone has no fake binary for the program", 126
        )
    try:
        return program.run(program_context(launch))
    except ProgramDiedError as exc:
        if exc.signal in CRASHES and not launch.process.killed.is_set():
            log_tombstone(
                launch.system.logs,
                launch.system.props,
                launch.process,
                exc.signal,
                abi="arm64" if bits == 64 else "arm",
            )
        raise
    finally:
        launch.process.context = None


def program_context(launch: Launch) -> ProcessContext:
    """Return what a program gets to work with, and tie it to its process."""
    system, process = launch.system, launch.process
    context = ProcessContext(
        pid=process.pid,
        argv=list(launch.argv),
        env=dict(launch.env),
        cwd=launch.cwd,
        uid=process.uid,
        stdin=HandleSource(launch.handle(0), process),
        stdout=HandleSink(launch.handle(1), process),
        stderr=HandleSink(launch.handle(2), process),
        files=system.files,
        logs=system.logs,
        time=system.time,
        hardware=system.hardware,
        props=system.props,
        affinity=process.affinity,
        group=process.group,
        killed=process.killed,
        signal=process.signal,
        moment=system.moment,
        trace=system.tracing,
    )
    process.context = context
    return context
