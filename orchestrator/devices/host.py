"""This computer behind the Device port; each run has its own process group and folder."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

from orchestrator.clock import Deadline
from orchestrator.devices.probes import (
    HOST_COMMANDS,
    HOST_STATE_COMMANDS,
    host_facts,
    host_state_from,
)
from orchestrator.errors import (
    DeviceCommandError,
    DeviceTimeoutError,
    HostStorageError,
    LinkLostError,
    TransferError,
    UsageError,
)
from orchestrator.files import head_and_tail, known_sha256, make_private
from orchestrator.ports import (
    DetachedCommand,
    HostFile,
    PackageInfo,
    PlacedFile,
    ProcessResult,
    ShellResult,
)
from orchestrator.processes import (
    child_environment,
    is_still,
    kill_group,
    run_program,
    shell_code,
    started_at,
)
from orchestrator.records.case import RunId, run_folder_name
from orchestrator.records.device import HOST_SERIAL, DeviceFacts, DeviceKind, DeviceState
from orchestrator.scripts import run_scripts, script_text

_POLL_S: Final = 0.05
#: How long the sampler of a run may continue after the program; then it is killed.
_SAMPLER_END_S: Final = 2.0
_LEADER_FILE: Final = "leader"


class PlainDevice:
    """A device with nothing to close."""

    def close(self) -> None:
        """See Device.close: nothing is held."""

    def follow_log(
        self, *, buffers: Sequence[str] = ("main", "crash")
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Not possible; raises UsageError."""
        self.refuse(f"has no logcat ({', '.join(buffers)})")

    def refuse(self, limitation: str) -> NoReturn:
        """Raise UsageError for a missing feature of the device."""
        raise NotImplementedError(limitation)


class HostDevice(PlainDevice):
    """This computer. Files stay in place, commands run in ``/bin/sh``; it has no apps and no log."""

    serial = HOST_SERIAL
    kind = DeviceKind.HOST

    def __init__(self, work_folder: Path) -> None:
        """Set our folder; it is created on demand."""
        self._runs_folder = work_folder / "runs"
        self.work_folder = str(work_folder)
        #: Whether the state is sampled during runs (benchmarks/sampler_disturbance.py).
        self.is_watching = True
        self._facts: DeviceFacts | None = None

    def facts(self) -> DeviceFacts:
        """See Device.facts."""
        if self._facts is None:
            self._facts = host_facts(self._ask(HOST_COMMANDS))
        return self._facts

    def state(self) -> DeviceState:
        """See Device.state; a computer's battery and screen don't matter.

        Unreadable values stay unknown, so that no run is lost.
        """
        sections: Mapping[str, str] = {}
        with contextlib.suppress(DeviceTimeoutError, LinkLostError, OSError):
            sections = self._ask(HOST_STATE_COMMANDS)
        return host_state_from(sections, read_at=datetime.now(UTC))

    def _ask(self, scripts: Mapping[str, str]) -> dict[str, str]:
        return run_scripts(self.shell, scripts, serial=HOST_SERIAL).texts()

    def wait_until_ready(self, *, timeout_s: float) -> None:
        """See Device.wait_until_ready; this computer is always ready."""

    def shell(self, command: str, *, timeout_s: float = 30.0) -> ShellResult:
        """See Device.shell; raises DeviceTimeoutError, UsageError."""
        if "\0" in command:
            raise UsageError("a command line can't hold a NUL")
        try:
            code, stdout, stderr = run_program(
                ["/bin/sh", "-c", command],
                environ=child_environment(),
                timeout_s=timeout_s,
            )
        except subprocess.TimeoutExpired:
            raise DeviceTimeoutError(
                f"shell {command[:60]!r} took longer than {timeout_s:g} s", serial=HOST_SERIAL
            ) from None
        return ShellResult(exit_code=shell_code(code), stdout=stdout, stderr=stderr)

    def place(self, file: HostFile) -> PlacedFile:
        """See Device.place: the file is used in place after a check of its checksum; nothing is
        copied.

        Raises UsageError (can't be read), TransferError (the file was changed), DeviceCommandError.
        """
        source = file.source
        try:
            check_content(file, serial=HOST_SERIAL)
            if file.executable and not source.stat().st_mode & 0o111:
                raise DeviceCommandError(
                    f"{source} isn't executable", serial=HOST_SERIAL, hint=f"chmod +x {source}"
                )
        except OSError as error:
            raise UsageError(f"{source} can't be read: {error.strerror}") from error
        return PlacedFile(path=str(source.resolve()), sha256=file.sha256, pushed_bytes=0)

    def read_file(
        self, path: str, *, package: str = "", limit_bytes: int = 64 << 20
    ) -> bytes | None:
        """See Device.read_file."""
        if package:
            self.refuse("has no apps whose files could be read")
        with contextlib.suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError):
            try:
                with Path(path).open("rb") as file:
                    data = file.read(limit_bytes + 1)
            except PermissionError as error:
                raise DeviceCommandError(f"{path}: {error.strerror}", serial=HOST_SERIAL) from error
            if len(data) > limit_bytes:
                raise DeviceCommandError(
                    f"{path} is larger than {limit_bytes} bytes", serial=HOST_SERIAL
                )
            return data
        return None

    def install(
        self, apk: Path, *, sha256: str, package: str, cancelled: threading.Event | None = None
    ) -> int:
        """Not possible; raises UsageError."""
        del sha256, cancelled
        self.refuse(f"can't install {apk.name} ({package})")

    def package(self, package: str) -> PackageInfo | None:
        """Not possible; raises UsageError."""
        self.refuse(f"has no packages such as {package}")

    def refuse(self, limitation: str) -> NoReturn:
        """Raise UsageError for a missing feature of a computer."""
        raise UsageError(
            f"this computer (device 'host') {limitation}: use the tool 'litert' or 'native' on it, or a phone"
        )

    def run_folder(self, run_id: RunId) -> str:
        """See Device.run_folder; raises UsageError for an id that can't be the name of one."""
        return str(self._runs_folder / run_folder_name(run_id))

    def run_detached(self, command: DetachedCommand) -> ProcessResult:
        """See Device.run_detached.

        Raises HostStorageError, DeviceCommandError (there is such a run already).
        """
        folder = Path(self.run_folder(command.run_id))
        deadline = Deadline(command.timeout_s)
        try:
            make_private(folder.parent)
            folder.mkdir()
            (folder / "run.sh").write_text(script_text("run"))
            # Without /proc there is nothing to sample.
            if self.is_watching and Path("/proc/stat").exists():
                (folder / "sampler.sh").write_text(script_text("sampler"))
        except FileExistsError:
            raise DeviceCommandError(
                f"there is a run {command.run_id} already in {folder}"
            ) from None
        except OSError as error:
            raise HostStorageError(f"{folder} can't be made: {error}") from error
        with (folder / "out").open("w+b") as out, (folder / "err").open("w+b") as err:
            process = subprocess.Popen(
                ["/bin/sh", "run.sh", "run", command.line],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                start_new_session=True,
                env=child_environment(),
            )
            try:
                (folder / _LEADER_FILE).write_text(f"{process.pid} {started_at(process.pid)}")
                exit_code = self._wait(process, folder / "rc", deadline, command.cancelled)
                duration_s = deadline.elapsed_s
            finally:
                # Also the command's background processes: nothing may keep using the cores.
                kill_group(process.pid)
                process.wait()
            return ProcessResult(
                exit_code=exit_code,
                stdout=head_and_tail(out),
                stderr=head_and_tail(err),
                timed_out=exit_code is None and not command.cancelled.is_set(),
                duration_s=duration_s,
                files={
                    name: path.read_bytes()
                    for name in command.files
                    if (path := folder / name).is_file()
                },
            )

    def discard_run(self, run_id: RunId) -> None:
        """Remove a run's folder; not an error when it is missing."""
        shutil.rmtree(self.run_folder(run_id), ignore_errors=True)

    def kill_leftover_runs(self) -> Sequence[str]:
        """Kill the leftover runs of crashed processes, and remove their folders."""
        killed: list[str] = []
        for folder in sorted(self._runs_folder.glob("*")):
            with contextlib.suppress(OSError, ValueError):
                pid, started = (folder / _LEADER_FILE).read_text().split()
                # A foreign process may have its number by now.
                if is_still(int(pid), float(started), folder=folder):
                    kill_group(int(pid))
                    killed.append(f"run {folder.name} (pid {pid})")
            shutil.rmtree(folder, ignore_errors=True)
        return tuple(killed)

    def _wait(
        self,
        process: subprocess.Popen[bytes],
        exit_file: Path,
        deadline: Deadline,
        cancelled: threading.Event,
    ) -> int | None:
        """Return the exit code, from ``exit_file`` when only the sampler continues.

        None: not ended.
        """
        sampler_deadline: Deadline | None = None
        while True:
            try:
                code = process.wait(timeout=min(_POLL_S, deadline.remaining_s))
            except subprocess.TimeoutExpired:
                if sampler_deadline is None and exit_file.exists():
                    sampler_deadline = Deadline(_SAMPLER_END_S)
                if (
                    sampler_deadline is not None
                    and sampler_deadline.expired
                    and (exit_code := exit_file.read_text().strip()).isdigit()
                ):
                    return int(exit_code)
                if deadline.expired or cancelled.is_set():
                    return None
            else:
                return shell_code(code)


def check_content(file: HostFile, *, serial: str) -> None:
    """Raise TransferError when a file was changed; OSError when it can't be read."""
    sha256 = known_sha256(file.source)
    if sha256 != file.sha256:
        raise TransferError(
            f"{file.source} has checksum {sha256} instead of {file.sha256}: it was changed meanwhile",
            serial=serial,
        )
