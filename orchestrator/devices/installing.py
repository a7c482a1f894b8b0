"""APKs: streamed to the package manager once, and checked afterwards."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Final

from orchestrator.clock import Deadline
from orchestrator.devices.connection import service_failure, without_stack
from orchestrator.devices.link import PhoneLink, push_timeout_s
from orchestrator.devices.shell import CANCEL_LOOK_S
from orchestrator.errors import (
    DeviceStorageError,
    InstallError,
    InterruptedByUserError,
    LinkLostError,
    UsageError,
)
from orchestrator.ports import PackageInfo
from orchestrator.records.failures import INSTALL_STEPS
from orchestrator.scripts import call

#: The package manager checks, compiles and copies after the last byte has come.
_SETTLE_S: Final = 180.0
_CHUNK_BYTES: Final = 1 << 18

_STORAGE: Final = frozenset({"INSTALL_FAILED_INSUFFICIENT_STORAGE"})


class InstalledApps:
    """The apps on a phone: a part of AdbDevice."""

    _link: PhoneLink

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
        with self._link.slots.pushing():
            answer = self._stream(apk, size_bytes, cancelled or threading.Event())
        self._judge(answer, package)
        installed = self._link.again(lambda: self.package(package))
        if installed is None:
            raise InstallError(
                f"the phone said Success, but {package} isn't installed",
                serial=self._link.serial,
                hint="does the APK hold this package?",
            )
        if installed.sha256 and installed.sha256 != sha256:
            raise InstallError(
                f"{package} is installed, but its APK has checksum {installed.sha256} instead of {sha256}",
                serial=self._link.serial,
            )
        return size_bytes

    def package(self, package: str) -> PackageInfo | None:
        """Return what is installed under this name, in one round trip."""
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+", package):
            raise UsageError(f"{package!r} isn't the name of an Android package")
        scripts, what = {"package": call("package", package)}, f"looking for {package}"
        told = self._link.again(lambda: self._link.ask(scripts, timeout_s=60.0, what=what)).text(
            "package"
        )
        path = re.search(r"^path (.+)$", told, re.M)
        if path is None:
            return None
        checksum = re.search(r"^hash ([0-9a-f]{64})\b", told, re.M)
        code = re.search(r"versionCode=(\d+)", told)
        name = re.search(r"versionName=(\S+)", told)
        return PackageInfo(
            package=package,
            version_code=int(code[1]) if code else None,
            version_name=name[1] if name else "",
            path=path[1].strip(),
            sha256=checksum[1] if checksum else "",
            flags=frozenset(
                word for line in re.findall(r"[fF]lags=\[([^\]]*)\]", told) for word in line.split()
            ),
        )

    def _stream(self, apk: Path, size_bytes: int, cancelled: threading.Event) -> str:
        deadline = Deadline(push_timeout_s(apk) + _SETTLE_S, self._link.clock)
        answer, outgoing = bytearray(), memoryview(b"")
        command = f"exec:cmd package install -r -d -g -S {size_bytes}"
        with (
            self._link.open(command, deadline, what=f"install of {apk.name}") as connection,
            apk.open("rb") as file,
        ):
            data: bytes | None = None
            while data != b"":
                # A phone may wait minutes for somebody to tap on its screen.
                if cancelled.is_set():
                    raise InterruptedByUserError
                # Who refuses closes its end; what else is said early (a linker's warning) is noise.
                outgoing = outgoing or memoryview(file.read(_CHUNK_BYTES))
                speaks = connection.readable(0)
                try:
                    sent, data = connection.exchange(
                        outgoing[:0] if speaks else outgoing, wait_s=CANCEL_LOOK_S
                    )
                except LinkLostError:
                    # Its last words may be there to read.
                    sent, data = len(outgoing), connection.read_some()
                outgoing = outgoing[sent:]
                answer += data or b""
        return answer.decode("utf-8", "replace")

    def _judge(self, answer: str, package: str) -> None:
        if re.search(r"^Success\b", answer, re.M):
            return
        what = f"install of {package}"
        told = without_stack(answer)[-400:]
        if (failure := service_failure(told, serial=self._link.serial, what=what)) is not None:
            raise failure
        code = re.search(r"\b(INSTALL_[A-Z_]+|DELETE_FAILED_[A-Z_]+)|(?<=Failure \[)-\d+", answer)
        if (
            code is None
            and "Failure" not in answer
            and "Error" not in answer
            and "Exception" not in answer
        ):
            raise LinkLostError(
                f"{what}: the link ended before the package manager answered ({told[-200:]!r})",
                serial=self._link.serial,
            )
        word = code[0] if code else ""
        hint = INSTALL_STEPS.get(word, "look into the phone's log: adb logcat").replace(
            "PACKAGE", package
        )
        text = f"{what}: {told}"
        if word in _STORAGE or (
            not word and re.search(r"not enough space|no space left", answer, re.I)
        ):
            raise DeviceStorageError(text, serial=self._link.serial, hint=hint)
        raise InstallError(text, install_code=word, serial=self._link.serial, hint=hint)
