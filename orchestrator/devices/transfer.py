"""Transfers to a phone: files under their content's hash, pushed once and verified there; and APKs,
streamed to the package manager once and checked afterwards.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Final

from orchestrator.clock import Deadline
from orchestrator.devices.link import (
    PUSHES,
    PhoneLink,
    no_checksum,
    push_timeout_s,
    stream_checksum,
)
from orchestrator.devices.probes import parse_free_bytes
from orchestrator.devices.retries import DAMAGED
from orchestrator.devices.sockets import CANCEL_POLL_S
from orchestrator.errors import (
    DeviceError,
    DeviceStorageError,
    InstallError,
    InterruptedByUserError,
    LinkLostError,
    TransferError,
    UsageError,
)
from orchestrator.ports import HostFile, PackageInfo, PlacedFile
from orchestrator.processes import hold_slot
from orchestrator.records.failures import INSTALL_STEPS
from orchestrator.scripts import Answer, script_command, service_failure, without_stack

#: Minimum of free space, as a phone with a full data partition misbehaves: files of earlier
#: campaigns are removed for it.
_KEEP_FREE_BYTES: Final = 1 << 30
_PREFIX_LENGTH: Final = 16
#: A folder of placed files, as ls prints it.
_BLOB: Final = rf"^([a-z][a-z0-9_-]*/[0-9a-f]{{{_PREFIX_LENGTH}}})/$"
#: This many folder names fit into one command.
_REMOVED_MOST: Final = 1000
_MD5_DIGITS: Final = 32
#: A phone that computes a checksum more slowly hangs: an old core without instructions for it
#: processes some 30 MB in a second.
_SLOWEST_HASH_BYTES_PER_S: Final = 10_000_000.0

#: Called with a file's name, the bytes sent so far, and its size.
PushProgress = Callable[[str, int, int], None]


class PlacedFiles(PhoneLink):
    """The placed files of a phone, ``<folder>/<kind>/<sha256 prefix>/<name>``: a part of AdbDevice.

    Beside each hash's folder a file ``<prefix>.verified`` records the compared checksum, size,
    modification time and boot.
    """

    def __init__(self, folder: str) -> None:
        """Set the folder on the phone."""
        self._files_folder = folder
        #: Called during pushes.
        self.progress: PushProgress = lambda name, sent_bytes, size_bytes: None
        #: Folders in use by this process, which it never removes.
        self._used: set[str] = set()

    def place(self, file: HostFile) -> PlacedFile:
        """See Device.place.

        Raises UsageError, DeviceStorageError, TransferError, DeviceCommandError.
        """
        name = file.name
        if name in {"", ".", ".."} or "/" in name or "\0" in name or len(name.encode()) > 200:
            raise UsageError(f"{name!r} can't be the name of a placed file")
        size_bytes = file.size()
        folder = (file.set_sha256 or file.sha256)[:_PREFIX_LENGTH]
        blob = f"{self._files_folder}/{file.kind}/{folder}"
        placed = PlacedFile(path=f"{blob}/{name}", sha256=file.sha256, pushed_bytes=0)
        self._used.add(blob)
        answer = self.retry(lambda: self._check_placed(file, blob))
        if answer is None:
            return placed
        self._make_room(answer, size_bytes)
        DAMAGED.run(lambda: self.retry(lambda: self._push(file, blob)), clock=self.clock)
        return replace(placed, pushed_bytes=size_bytes)

    def _check_placed(self, file: HostFile, blob: str) -> Answer | None:
        """Return None when the file is in place and whole; else an answer with the free space and
        the folders there.

        The phone reads a file once per boot to compare its checksum; later its size and time count.
        """

        def inspect(accepted: str) -> Answer:
            mode, folder = "755" if file.executable else "", quote(self._files_folder)
            scripts = {
                "look": script_command("place_look", blob, file.name, file.sha256, mode, accepted),
                "space": f"df -k {folder}",
                "blobs": f"cd {folder} && ls -d */*/",
            }
            return self.ask(
                scripts,
                timeout_s=_hash_timeout_s(file),
                action=f"looking for {file.name}",
                must=True,
            )

        answer = inspect("")
        checksum = answer.value("look")
        if checksum in {"same", file.sha256}:
            return None
        if checksum == _expected_checksum(file, like=checksum):
            # A phone without sha256sum: its md5 equals this computer's; let the phone record that.
            inspect(checksum)
            return None
        return answer

    def _push(self, file: HostFile, blob: str) -> None:
        draft, name, size_bytes = f"{blob}/.{secrets.token_hex(6)}.part", file.name, file.size()
        mode = 0o755 if file.executable else 0o644

        def settle(accepted: str) -> str:
            arguments = (draft, blob, name, file.sha256, f"{mode:o}", accepted)
            answer = self.ask(
                {"sum": script_command("place_settle", *arguments)},
                timeout_s=_hash_timeout_s(file),
                action=f"moving {name} into place",
                must=True,
            )
            return answer.value("sum")

        try:
            self.push(
                file.source,
                draft,
                mode=mode,
                progress=lambda sent_bytes: self.progress(name, sent_bytes, size_bytes),
            )
            checksum = settle("")
            if checksum == file.sha256:
                return
            if not checksum:
                raise no_checksum(self.serial)
            expected = _expected_checksum(file, like=checksum)
            if checksum != expected:
                raise TransferError(
                    f"{name} arrived with checksum {checksum} instead of {expected}",
                    serial=self.serial,
                    hint="try another cable or port if it happens often; was the file changed meanwhile?",
                )
            settle(checksum)
        except (DeviceStorageError, TransferError):
            with contextlib.suppress(DeviceError):
                self.shell(f"rm -f {quote(draft)}", action="removing a partial push")
            raise

    def _make_room(self, answer: Answer, size_bytes: int) -> None:
        """Remove files that this process doesn't use if the phone lacks space for these bytes."""
        free_bytes = parse_free_bytes(answer.text("space"))
        if free_bytes is None or free_bytes >= size_bytes + _KEEP_FREE_BYTES:
            return
        blobs = re.findall(_BLOB, answer.text("blobs"), re.M)
        unused = [path for path in blobs if f"{self._files_folder}/{path}" not in self._used]
        names = " ".join(f"{path}*" for path in unused[:_REMOVED_MOST])
        scripts = {"space": f"cd {quote(self._files_folder)} && rm -rf {names}; df -k ."}
        answer = self.retry(
            lambda: self.ask(scripts, timeout_s=60.0, action="removing old files", must=True)
        )
        free_bytes = parse_free_bytes(answer.text("space"))
        if free_bytes is not None and free_bytes < size_bytes:
            raise DeviceStorageError(
                f"{size_bytes} bytes are needed, but only {free_bytes} are free",
                serial=self.serial,
                hint="free some space on the phone",
            )


def _hash_timeout_s(file: HostFile) -> float:
    return 30.0 + file.size() / _SLOWEST_HASH_BYTES_PER_S


def _expected_checksum(file: HostFile, *, like: str) -> str:
    """Return the checksum that a phone should compute: the file's sha256, or its md5 if ``like`` is
    one.
    """
    if len(like) != _MD5_DIGITS:
        return file.sha256
    with file.source.open("rb") as stream:
        return stream_checksum(stream, like=like)


#: The package manager checks, compiles and copies after the last byte.
_SETTLE_S: Final = 180.0
_CHUNK_BYTES: Final = 1 << 18

_STORAGE: Final = frozenset({"INSTALL_FAILED_INSUFFICIENT_STORAGE"})


class InstalledApps(PhoneLink):
    """The apps on a phone: a part of AdbDevice."""

    def install(
        self, apk: Path, *, sha256: str, package: str, cancelled: threading.Event | None = None
    ) -> int:
        """See Device.install.

        Raises InstallError, DeviceStorageError, LinkLostError, SystemDownError, DeviceTimeoutError,
        InterruptedByUserError.
        """
        installed = self.package(package)
        if installed is not None and installed.sha256 == sha256:
            return 0
        try:
            size_bytes = apk.stat().st_size
        except OSError as error:
            raise UsageError(f"{apk} can't be read: {error.strerror}") from error
        answer = self._stream(apk, size_bytes, cancelled or threading.Event())
        self._raise_install_error(answer, package)
        installed = self.package(package)
        if installed is None:
            raise InstallError(
                f"the phone said Success, but {package} isn't installed",
                serial=self.serial,
                hint="does the APK hold this package?",
            )
        if installed.sha256 and installed.sha256 != sha256:
            raise InstallError(
                f"{package} is installed, but its APK has checksum {installed.sha256} instead of {sha256}",
                serial=self.serial,
            )
        return size_bytes

    def package(self, package: str) -> PackageInfo | None:
        """Return the installed package of this name, or None, in one round trip."""
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+", package):
            raise UsageError(f"{package!r} isn't the name of an Android package")
        scripts, action = {"package": script_command("package", package)}, f"looking for {package}"
        output = self.retry(lambda: self.ask(scripts, timeout_s=60.0, action=action)).text(
            "package"
        )
        path = re.search(r"^path (.+)$", output, re.M)
        if path is None:
            return None
        checksum = re.search(r"^hash ([0-9a-f]{64})\b", output, re.M)
        name = re.search(r"versionName=(\S+)", output)
        return PackageInfo(
            package=package,
            version_name=name[1] if name else "",
            path=path[1].strip(),
            sha256=checksum[1] if checksum else "",
        )

    def _stream(self, apk: Path, size_bytes: int, cancelled: threading.Event) -> str:
        answer, outgoing = bytearray(), memoryview(b"")
        command = f"exec:cmd package install -r -d -g -S {size_bytes}"
        with contextlib.ExitStack() as sending:
            sending.enter_context(hold_slot(PUSHES, self.pushes_cancelled))
            deadline = Deadline(push_timeout_s(apk) + _SETTLE_S, self.clock)
            with (
                self.open(
                    command, deadline=deadline, action=f"install of {apk.name}"
                ) as connection,
                apk.open("rb") as file,
            ):
                data: bytes | None = None
                while data != b"":
                    # A phone may wait minutes for somebody to tap on its screen.
                    if cancelled.is_set():
                        raise InterruptedByUserError
                    outgoing = outgoing or memoryview(file.read(_CHUNK_BYTES))
                    if not outgoing:
                        # Others may send meanwhile.
                        sending.close()
                    # A refusal closes the phone's end; other early output (a linker's warning) is
                    # noise.
                    has_output = connection.readable(0)
                    try:
                        sent, data = connection.exchange(
                            outgoing[:0] if has_output else outgoing, wait_s=CANCEL_POLL_S
                        )
                    except LinkLostError:
                        # Its last output may still be readable.
                        sent, data = len(outgoing), connection.read_some()
                    outgoing = outgoing[sent:]
                    answer += data or b""
        return answer.decode("utf-8", "replace")

    def _raise_install_error(self, answer: str, package: str) -> None:
        if re.search(r"^Success\b", answer, re.M):
            return
        action = f"install of {package}"
        output = without_stack(answer)[-400:]
        if (failure := service_failure(output, serial=self.serial, action=action)) is not None:
            raise failure
        match = re.search(r"\b(INSTALL_[A-Z_]+|DELETE_FAILED_[A-Z_]+)|(?<=Failure \[)-\d+", answer)
        if (
            match is None
            and "Failure" not in answer
            and "Error" not in answer
            and "Exception" not in answer
        ):
            raise LinkLostError(
                f"{action}: the link ended before the package manager answered ({output[-200:]!r})",
                serial=self.serial,
            )
        install_code = match[0] if match else ""
        hint = INSTALL_STEPS.get(install_code, "look into the phone's log: adb logcat").replace(
            "PACKAGE", package
        )
        message = f"{action}: {output}"
        if install_code in _STORAGE or (
            not install_code and re.search(r"not enough space|no space left", answer, re.I)
        ):
            raise DeviceStorageError(message, serial=self.serial, hint=hint)
        raise InstallError(message, install_code=install_code, serial=self.serial, hint=hint)
