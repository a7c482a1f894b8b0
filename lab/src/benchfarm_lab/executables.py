"""ELF files that were pushed: stood in for by the program shelf, or, where the phone allows it, run for real."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from benchfarm_lab.contract import PhoneFileError, ProcessContext, ProgramDiedError, StreamClosedError
from benchfarm_lab.handles import HandleSink, HandleSource
from benchfarm_lab.tombstones import CRASHES, log_tombstone

if TYPE_CHECKING:
    from benchfarm_lab.launching import Launch

_X86_64: Final = 62
#: e_machine -> whether the ABI is 64-bit, for what phones run.
_ARM: Final = {40: False, 183: True}
_CHUNK_BYTES: Final = 1 << 16


def is_elf(head: bytes) -> bool:
    """Say whether a file begins as an ELF file does."""
    return head.startswith(b"\x7fELF")


def run_executable(launch: Launch, path: str, head: bytes, size_bytes: int) -> int:
    """Run the ELF file at a phone path; return its exit status. Raises LaunchFaultError when the phone can't."""
    from benchfarm_lab.launching import LaunchFaultError

    shown = launch.argv[0]
    machine = int.from_bytes(head[18:20], "little")
    bits = 64 if head[4:5] == b"\x02" else 32
    if launch.system.build.execute and machine == _X86_64:
        return _run_for_real(launch, path)
    program = launch.system.shelf.native(path.rsplit("/", 1)[-1], head, size_bytes)
    if machine not in _ARM:
        raise LaunchFaultError(f"{shown}: not executable: {bits}-bit ELF file", 126)
    if _ARM[machine] and not launch.system.props.get("ro.product.cpu.abilist64", "arm64-v8a"):
        # A 64-bit program on a 32-bit userland: its loader, /system/bin/linker64, isn't there.
        raise LaunchFaultError(f"{shown}: No such file or directory", 127)
    if program is None:
        raise LaunchFaultError(f"{shown}: not executable: this virtual phone has no fake binary for the program", 126)
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
        pid=process.pid, argv=list(launch.argv), env=dict(launch.env), cwd=launch.cwd, uid=process.uid,
        stdin=HandleSource(launch.handle(0), process), stdout=HandleSink(launch.handle(1), process),
        stderr=HandleSink(launch.handle(2), process), files=system.files, logs=system.logs, time=system.time,
        hardware=system.hardware, props=system.props, affinity=process.affinity, group=process.group,
        killed=process.killed, signal=process.signal, moment=system.moment, trace=system.tracing,
    )  # fmt: skip
    process.context = context
    return context


def _run_for_real(launch: Launch, path: str) -> int:
    """Run an x86-64 program of this computer in the phone's folder, its phone paths translated."""
    from benchfarm_lab.launching import LaunchFaultError

    if sys.platform != "linux" or platform.machine() not in {"x86_64", "AMD64"}:
        raise LaunchFaultError(f"{launch.argv[0]}: not executable: 64-bit ELF file", 126)
    files = launch.system.files
    program = files.host_path(path)
    cwd = files.host_path(launch.cwd)
    environment = {name: _translated(launch, value) for name, value in launch.env.items() if name != "PATH"}
    environment["PATH"] = os.defpath
    arguments = [_translated(launch, argument) for argument in launch.argv[1:]]
    try:
        child = subprocess.Popen(
            [str(program), *arguments], cwd=cwd, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
    except OSError as exc:
        raise LaunchFaultError(f"{launch.argv[0]}: {exc.strerror}", 126) from exc
    return _attend(launch, child)


def _translated(launch: Launch, text: str) -> str:
    """Turn phone paths in an argument (``/data/x``, ``--graph=/data/x``, ``a:/data/x``) into the host's.

    What an argument says about a host folder that the phone doesn't have stays as it is: it isn't there either.
    """
    prefix, equals, value = text.partition("=")
    if not equals or not value.startswith("/"):
        prefix, value = "", text
    else:
        prefix += "="
    pieces = value.split(":") if "://" not in value else [value]
    return prefix + ":".join(_host(launch, piece) for piece in pieces)


def _host(launch: Launch, value: str) -> str:
    if not value.startswith("/"):
        return value
    try:
        path: Path = launch.system.files.host_path(value)
    except PhoneFileError:
        return value
    return str(path)


def _attend(launch: Launch, child: subprocess.Popen[bytes]) -> int:
    """Carry the child's streams until it ends, and signals to it."""
    process = launch.process
    threads = [
        threading.Thread(target=_copy_out, args=(child, stream, HandleSink(launch.handle(fd), process)), daemon=True)
        for fd, stream in ((1, child.stdout), (2, child.stderr))
    ]
    threads.append(
        threading.Thread(target=_copy_in, args=(child, HandleSource(launch.handle(0), process)), daemon=True)
    )
    for thread in threads:
        thread.start()

    def forward() -> None:
        if process.killed.is_set() and child.poll() is None:
            child.send_signal(process.signal)

    process.add_waker(forward)
    try:
        forward()
        status = child.wait()
        for thread in threads[:2]:
            thread.join()
    finally:
        process.remove_waker(forward)
    if status < 0 and process.signal == 0:
        process.signal = -status
    return 128 - status if status < 0 else status


def _copy_out(child: subprocess.Popen[bytes], stream: IO[bytes] | None, sink: HandleSink) -> None:
    if stream is None:
        return
    while data := os.read(stream.fileno(), _CHUNK_BYTES):
        try:
            sink.write(data)
        except (StreamClosedError, PhoneFileError):
            child.terminate()
            return
        except ProgramDiedError:  # the process was killed; its own end is seen by wait
            return


def _copy_in(child: subprocess.Popen[bytes], source: HandleSource) -> None:
    if child.stdin is None:
        return
    try:
        while data := source.read(_CHUNK_BYTES):
            child.stdin.write(data)
            child.stdin.flush()
    except ProgramDiedError:
        # The signal is on its way; with its input closed the child could end by itself before it comes.
        return
    except (OSError, PhoneFileError):
        pass
    try:
        child.stdin.close()
    except OSError:
        pass
