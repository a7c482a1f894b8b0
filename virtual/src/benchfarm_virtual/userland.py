"""What happens when a command comes over adb, and how a phone's userland is put together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from benchfarm_virtual.contract import SHELL_UID, ShellSession
from benchfarm_virtual.data import DEFAULTS
from benchfarm_virtual.faults import FaultKind, FaultTable
from benchfarm_virtual.files import PhoneTree, Storage
from benchfarm_virtual.launching import DEFAULT_PATH, Launch
from benchfarm_virtual.logs import PhoneLogs
from benchfarm_virtual.open_files import OpenFile, client_input
from benchfarm_virtual.packages import ActivityService, PackageStore
from benchfarm_virtual.processes import FIRST_APP_UID, ZYGOTE_PID, ProcessTable, current_process
from benchfarm_virtual.shell.interpreter import Shell
from benchfarm_virtual.system import (
    MomentHook,
    PhoneProps,
    PhoneSettings,
    PhoneState,
    PhoneSystem,
)
from benchfarm_virtual.tracing import TraceService, comm_of
from benchfarm_virtual.trees.node import LinkNode
from benchfarm_virtual.trees.proc import computed_trees

if TYPE_CHECKING:
    from benchfarm_virtual.hardware import VirtualHardware
    from benchfarm_virtual.shelf import ProgramShelf
    from benchfarm_virtual.system import ScaledTime

_SHELL: Final = "/system/bin/sh"


def run_command(system: PhoneSystem, command: str, session: ShellSession) -> int:
    """Interpret one command line on a phone and return its exit code.

    Returns when the shell has ended and no process holds the session's output any more (or the
    client has gone), as adbd closes a stream.
    """
    process = system.processes.spawn([_SHELL, "-c", command], uid=SHELL_UID, is_shell=True)
    released = threading.Event(), threading.Event()
    stdout, stderr = (
        OpenFile(put=sink.write, close=over.set)
        for sink, over in zip((session.stdout, session.stderr), released, strict=True)
    )
    launch = Launch(
        system=system,
        process=process,
        argv=process.argv,
        env={**DEFAULTS["environment"], "PATH": DEFAULT_PATH, "PWD": "/"},
        cwd="/",
        fds={0: client_input(session.stdin), 1: stdout, 2: stderr},
    )
    shell = Shell(launch, name=_SHELL)
    shell.owns_fds = True

    def hang_up() -> None:
        if not process.done.is_set():
            system.processes.kill(process, 1)
        for over in released:
            over.set()

    session.hangup.then(hang_up)
    status = 1
    try:
        status = shell.run(command, exec_last=True)
    finally:
        shell.close()
        system.processes.end(process, status)
    for over in released:
        over.wait()
    return status & 0xFF


#: What a phone of 64 GB shows, and what of it is taken as it leaves the factory.
_STORAGE_BYTES: Final = 54 << 30
_SHIPPED_BYTES: Final = 11 << 30


def build_userland(
    *,
    props: Mapping[str, str],
    time: ScaledTime,
    hardware: VirtualHardware,
    shelf: ProgramShelf,
    rooted: bool = False,
    faults: FaultTable | None = None,
    on_reboot: Callable[[str], None] = lambda reason: None,
    moment: MomentHook | None = None,
) -> PhoneSystem:
    """Put the userland of one phone together.

    ``on_reboot`` is called with the reason ("", "recovery" ...) from a command's thread and
    shouldn't wait for that command. ``moment`` is handed to programs.
    """
    faults = faults or FaultTable()
    phone_props = PhoneProps(props)
    processes = ProcessTable(time, sum(len(cluster.cpus) for cluster in hardware.clusters()))
    logs = PhoneLogs(time)
    storage = Storage(total_bytes=_STORAGE_BYTES, shipped_bytes=_SHIPPED_BYTES)
    files = PhoneTree(
        storage=storage,
        denied=lambda operation, path: (
            0
            if faults.is_empty
            else _denied(faults, operation, path) or _denied_by_selinux(system, faults, path)
        ),
        passing=lambda path, size: faults.advance(FaultKind.NO_SPACE, size, subject=path)[0],
    )
    packages = PackageStore(phone_props, files)
    activities = ActivityService()
    system = PhoneSystem(
        rooted=rooted,
        time=time,
        hardware=hardware,
        shelf=shelf,
        props=phone_props,
        processes=processes,
        logs=logs,
        storage=storage,
        files=files,
        packages=packages,
        activities=activities,
        settings=PhoneSettings(),
        state=PhoneState(),
        tracing=TraceService(time, phone_props),
        faults=faults,
        on_reboot=on_reboot,
        moment=moment,
        default_props=dict(props),
    )
    files.root.nodes |= computed_trees(system)
    activities.attach(system)
    _lay_out(files)
    faults.handle(FaultKind.SCREEN_LOCK, lambda fault: system.state.lock())
    faults.handle(FaultKind.LOG_GARBAGE, lambda fault: _log_noise(logs, _NO_UTF8))
    faults.handle(FaultKind.LOG_UTF8, lambda fault: _log_noise(logs, _EMOJI))
    return system


def _denied(faults: FaultTable, operation: str, path: str) -> int:
    if operation == "stat" or faults.active(FaultKind.PERMISSION_DENIED, path) is None:
        return 0
    return 13


def _denied_by_selinux(system: PhoneSystem, faults: FaultTable, path: str) -> int:
    """Return 13 for a benchmark program that a fault keeps from a path, and log the denial as the
    kernel does.
    """
    process = current_process()
    if (
        process is None
        or not process.computes
        or faults.active(FaultKind.SELINUX_DENIAL, path) is None
    ):
        return 0
    is_app = process.uid >= FIRST_APP_UID
    who = "u:r:untrusted_app:s0:c120,c256,c512,c768" if is_app else "u:r:shell:s0"
    app = f" app={process.argv[0]}" if is_app else ""
    number, name = system.logs.last_number() + 1, path.rpartition("/")[2]
    text = (
        f'type=1400 audit(0.0:{number}): avc: denied {{ read }} for name="{name}" dev="dm-5" ino=81374 '
        f"scontext={who} tcontext=u:object_r:shell_data_file:s0 tclass=file permissive=0{app}"
    )
    system.logs.append("W", comm_of(process.argv[0]), text, pid=process.pid)
    return 13


_NO_UTF8: Final = b"\xff\xfe\x80\x00 garbage \xc3\x28 \xf0\x9f"
_EMOJI: Final = "\U0001f525 hot \U0001f4f1 phone".encode()


def _log_noise(logs: PhoneLogs, words: bytes) -> None:
    """Log something in the name of the program that runs now, if any does."""
    process = current_process()
    logs.append("I", "tflite", words, pid=process.pid if process else ZYGOTE_PID)


def _lay_out(files: PhoneTree) -> None:
    """Create the folders that every phone has."""
    for path, (mode, uid, gid) in DEFAULTS["folders"].items():
        files.lay(path, mode, uid, gid)
    files.lay("storage/self").nodes["primary"] = LinkNode("/storage/emulated/0")
    files.lay("data/user").nodes["0"] = LinkNode("/data/data")
