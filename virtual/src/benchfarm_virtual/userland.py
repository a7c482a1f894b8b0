"""What happens when a command comes over adb, and how a phone's userland is put together."""

from __future__ import annotations

import copy
import errno
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from benchfarm_virtual.commands.invocation import Invocation, commands_of
from benchfarm_virtual.contract import SHELL_UID, ShellSession
from benchfarm_virtual.data import DEFAULTS
from benchfarm_virtual.faults import FaultKind, FaultTable
from benchfarm_virtual.files import PhoneTree, Storage
from benchfarm_virtual.hardware import VirtualHardware
from benchfarm_virtual.launching import Launch
from benchfarm_virtual.logs import PhoneLogs
from benchfarm_virtual.open_files import OpenFile, client_input
from benchfarm_virtual.packages import ActivityService, PackageStore
from benchfarm_virtual.processes import (
    FIRST_APP_UID,
    ZYGOTE_PID,
    Process,
    ProcessTable,
    current_process,
)
from benchfarm_virtual.shelf import ProgramShelf
from benchfarm_virtual.shell.interpreter import Shell
from benchfarm_virtual.system import PhoneProps, PhoneState, ScaledTime
from benchfarm_virtual.tracing import TraceService, task_name
from benchfarm_virtual.trees.proc import computed_trees

_SHELL: Final = "/system/bin/sh"


def run_command(system: PhoneSystem, command: str, session: ShellSession) -> int:
    """Interpret one command line on a phone and return its exit code.

    Returns when the shell has ended and no process holds the session's output any more (or the
    client has gone), as adbd closes a stream.
    """
    process = system.processes.spawn([_SHELL, "-c", command], uid=SHELL_UID, is_shell=True)
    released = threading.Event(), threading.Event()
    stdout, stderr = (
        OpenFile(put=sink, close=over.set)
        for sink, over in zip((session.stdout, session.stderr), released, strict=True)
    )
    launch = Launch(
        system=system,
        process=process,
        argv=process.argv,
        env={**DEFAULTS["environment"], "PWD": "/"},
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
    status = shell.live(lambda: shell.run(command))
    for over in released:
        over.wait()
    return status & 0xFF


#: The storage that a phone of 64 GB shows, and the part that is used when it ships.
_STORAGE_BYTES: Final = 54 << 30
_SHIPPED_BYTES: Final = 11 << 30


#: How long a reboot waits, in real seconds, for each process to be really gone (its last lines in
#: the log with it).
_LAST_WORDS_S: Final = 0.2

#: Called by a program at a named moment; may make it die (ProgramDiedError), print garbage or hang.
MomentHook = Callable[[str, Invocation], None]


class PhoneSystem:
    """The parts of one phone's system as its commands see them."""

    def __init__(
        self,
        *,
        props: Mapping[str, str],
        time: ScaledTime,
        hardware: VirtualHardware,
        faults: FaultTable,
        shelf: ProgramShelf | None = None,
        rooted: bool = False,
        moment: MomentHook = lambda name, call: None,
    ) -> None:
        """``rooted``: ``su`` works, and sysfs can be written through it. ``moment`` is
        for programs.
        """
        self.rooted = rooted
        self.time = time
        self.hardware = hardware
        self.faults = faults
        self.shelf = shelf or ProgramShelf()
        self.moment = moment
        self._boot_props = dict(props)
        self.boot_id = str(uuid.uuid4())
        self.props = PhoneProps(props)
        self.processes = ProcessTable(time, hardware.profile.cpu_count)
        self.logs = PhoneLogs(time)
        self.files = PhoneTree(
            storage=Storage(total_bytes=_STORAGE_BYTES, shipped_bytes=_SHIPPED_BYTES),
            denied=self._denied,
            passing=lambda path, size: faults.advance(FaultKind.NO_SPACE, size, subject=path)[0],
        )
        self.packages = PackageStore(self.props, self.files)
        #: They outlive a reboot.
        self.settings: dict[str, dict[str, str]] = copy.deepcopy(DEFAULTS["settings"])
        self.state = PhoneState()
        self.tracing = TraceService(time, self.props)
        self.activities = ActivityService(self)
        self.commands = commands_of(self)
        self.files.root.nodes |= computed_trees(self)
        _lay_out(self.files)
        faults.handle(FaultKind.SCREEN_LOCK, lambda fault: self.state.lock())
        faults.handle(FaultKind.LOG_GARBAGE, lambda fault: _log_noise(self.logs))

    def restart(self) -> None:
        """What a reboot does: processes end, logs and volatile properties are gone, a new boot id."""
        for process in self.processes.kill_all():
            process.done.wait(_LAST_WORDS_S)
        self.logs.clear()
        self.state = PhoneState()
        self.tracing.restart()
        self.boot_id = str(uuid.uuid4())
        self.props.forget_volatile(self._boot_props)

    def _denied(self, operation: str, path: str) -> int:
        """Return the errno of a fault that denies access to a file, or 0."""
        faults, process = self.faults, current_process()
        if faults.is_empty:
            return 0
        if operation != "stat" and faults.active(FaultKind.PERMISSION_DENIED, path):
            return errno.EACCES
        if process is None or not process.computes:
            return 0
        if faults.active(FaultKind.SELINUX_DENIAL, path) is None:
            return 0
        _log_denial(self.logs, process, path)
        return errno.EACCES


def _log_denial(logs: PhoneLogs, process: Process, path: str) -> None:
    """Log a denial of SELinux for a benchmark program, as the kernel does."""
    is_app = process.uid >= FIRST_APP_UID
    context = "u:r:untrusted_app:s0:c120,c256,c512,c768" if is_app else "u:r:shell:s0"
    app = f" app={process.argv[0]}" if is_app else ""
    number, name = logs.last_number + 1, path.rpartition("/")[2]
    text = (
        f'type=1400 audit(0.0:{number}): avc: denied {{ read }} for name="{name}" dev="dm-5" ino=81374 '
        f"scontext={context} tcontext=u:object_r:shell_data_file:s0 tclass=file permissive=0{app}"
    )
    logs.append("W", task_name(process.argv[0]), text, pid=process.pid)


_NOISE: Final = b"\xff\xfe\x80\x00 garbage \xc3\x28 \xf0\x9f hot \xf0\x9f\x94\xa5"


def _log_noise(logs: PhoneLogs) -> None:
    """Log garbage in the name of the program that runs now, if any does."""
    process = current_process()
    logs.append("I", "tflite", _NOISE, pid=process.pid if process else ZYGOTE_PID)


def _lay_out(files: PhoneTree) -> None:
    """Create the folders that every phone has."""
    for path, (mode, uid) in DEFAULTS["folders"].items():
        files.lay(path, mode, uid)
