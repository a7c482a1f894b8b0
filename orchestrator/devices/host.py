"""This computer behind the Device port."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import NoReturn

from orchestrator.child_environment import child_environment
from orchestrator.clock import Clock, SystemClock
from orchestrator.devices.alone import AloneDevice, check_content
from orchestrator.devices.host_runs import HostRuns, kill_group, shell_code
from orchestrator.devices.probing import host_facts, host_state
from orchestrator.errors import DeviceCommandError, DeviceTimeoutError, UsageError
from orchestrator.ports import PackageInfo, PlacedFile, ShellResult
from orchestrator.records.device import HOST_SERIAL, DeviceFacts, DeviceKind, DeviceState


class HostDevice(HostRuns, AloneDevice):
    """This computer. Files stay where they are, commands run in ``/bin/sh``; apps and logs there are none."""

    serial = HOST_SERIAL
    kind = DeviceKind.HOST

    def __init__(self, work_folder: Path, *, clock: Clock | None = None) -> None:
        """Name the folder that is ours; it is made when it is needed."""
        super().__init__(work_folder / "runs", clock or SystemClock())
        self.work_folder = str(work_folder)
        self._facts: DeviceFacts | None = None
        #: (path, size, modification time) of files whose checksum was compared.
        self._verified: dict[tuple[str, int, int], str] = {}

    def facts(self) -> DeviceFacts:
        """See Device.facts."""
        if self._facts is None:
            self._facts = host_facts()
        return self._facts

    def state(self) -> DeviceState:
        """See Device.state; a computer has no battery and no screen that matter."""
        return host_state(self._clock.now())

    def wait_until_ready(self, *, timeout_s: float) -> None:
        """See Device.wait_until_ready; a computer that runs us is ready."""

    def shell(self, command: str, *, timeout_s: float = 30.0, stdin: bytes = b"") -> ShellResult:
        """See Device.shell; raises DeviceTimeoutError, UsageError."""
        if "\0" in command:
            raise UsageError("a command line can't hold a NUL")
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            env=child_environment(),
        )  # fmt: skip
        try:
            stdout, stderr = process.communicate(stdin, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise DeviceTimeoutError(
                f"shell {command[:60]!r} took longer than {timeout_s:g} s", serial=HOST_SERIAL
            ) from None
        finally:
            if process.poll() is None:
                kill_group(process.pid)
                process.communicate()
        return ShellResult(exit_code=shell_code(process.returncode), stdout=stdout, stderr=stderr)

    def place(
        self, source: Path, *, kind: str, sha256: str, name: str, executable: bool = False, set_sha256: str = ""
    ) -> PlacedFile:
        """See Device.place: the file is used where it lies, once its checksum is right; nothing is copied.

        Raises UsageError (can't be read), TransferError (the file isn't what it was), DeviceCommandError.
        """
        try:
            status = source.stat()
            known = (str(source), status.st_size, status.st_mtime_ns)
            if self._verified.get(known) != sha256:
                check_content(source, sha256, serial=HOST_SERIAL)
                self._verified[known] = sha256
            if executable and not status.st_mode & 0o111:
                raise DeviceCommandError(f"{source} isn't executable", serial=HOST_SERIAL, hint=f"chmod +x {source}")
        except OSError as error:
            raise UsageError(f"{source} can't be read: {error.strerror}") from error
        return PlacedFile(path=str(source.resolve()), sha256=sha256, pushed_bytes=0)

    def read_file(self, path: str, *, package: str = "", limit_bytes: int = 64 << 20) -> bytes | None:
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
                raise DeviceCommandError(f"{path} is larger than {limit_bytes} bytes", serial=HOST_SERIAL)
            return data
        return None

    def install(self, apk: Path, *, sha256: str, package: str) -> int:
        """Not possible; raises UsageError."""
        self.refuse(f"can't install {apk.name} ({package})")

    def package(self, package: str) -> PackageInfo | None:
        """Not possible; raises UsageError."""
        self.refuse(f"has no packages such as {package}")

    def refuse(self, what: str) -> NoReturn:
        """Raise UsageError for what a computer has not."""
        raise UsageError(f"this computer (device 'host') {what}: use the tool 'litert' or 'native' on it, or a phone")
