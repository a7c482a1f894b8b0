"""APKs: streamed to the package manager once, and checked afterwards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orchestrator.clock import Deadline
from orchestrator.devices.link import PhoneLink, push_timeout_s
from orchestrator.errors import DeviceStorageError, InstallError, LinkLostError, UsageError
from orchestrator.ports import PackageInfo
from orchestrator.scripts import call

#: The package manager checks, compiles and copies after the last byte has come.
_SETTLE_S: Final = 180.0
_CHUNK_BYTES: Final = 1 << 18

#: The package manager's codes -> what to do.
NEXT_STEPS: Final[Mapping[str, str]] = {
    "INSTALL_FAILED_ALREADY_EXISTS": "uninstall the package first: adb uninstall PACKAGE",
    "INSTALL_FAILED_UPDATE_INCOMPATIBLE": (
        "another build of this package with another signature is installed: adb uninstall PACKAGE"
    ),
    "INSTALL_FAILED_SHARED_USER_INCOMPATIBLE": "uninstall the package that shares its user id first",
    "INSTALL_FAILED_VERSION_DOWNGRADE": "a newer version is installed: adb uninstall PACKAGE",
    "INSTALL_FAILED_INSUFFICIENT_STORAGE": "free some space on the phone",
    "INSTALL_FAILED_NO_MATCHING_ABIS": "this APK has no code for the phone's processor: choose a build for its ABI",
    "INSTALL_FAILED_CPU_ABI_INCOMPATIBLE": "this APK has no code for the phone's processor: choose a build for its ABI",
    "INSTALL_FAILED_OLDER_SDK": "this APK asks for a newer Android than the phone has: choose an older build",
    "INSTALL_FAILED_NEWER_SDK": "this APK was made for an older Android only: choose a newer build",
    "INSTALL_FAILED_DEPRECATED_SDK_VERSION": (
        "this APK targets an Android too old for the phone: choose a newer build"
    ),
    "INSTALL_FAILED_MISSING_SHARED_LIBRARY": "the phone lacks a library that the APK asks for: choose another build",
    "INSTALL_FAILED_MISSING_SPLIT": "this is one part of a split APK: choose a build that is one whole APK",
    "INSTALL_FAILED_TEST_ONLY": "this APK is marked test-only: build it for release or with the test-only flag off",
    "INSTALL_FAILED_USER_RESTRICTED": (
        "allow 'Install via USB' in the developer options (some makers ask on the screen, some for an account)"
    ),
    "INSTALL_FAILED_VERIFICATION_FAILURE": "turn off 'Verify apps over USB' in the developer options",
    "INSTALL_FAILED_VERIFICATION_TIMEOUT": "turn off 'Verify apps over USB' in the developer options",
    "INSTALL_FAILED_ABORTED": "the phone aborted it: look at its screen for a question, then try again",
    "INSTALL_FAILED_DEXOPT": "the phone couldn't compile the app: free some space, then try again",
    "INSTALL_FAILED_CONFLICTING_PROVIDER": "another app provides the same content: uninstall that one",
    "INSTALL_FAILED_DUPLICATE_PERMISSION": "another app defines the same permission: uninstall that one",
    "INSTALL_FAILED_INVALID_APK": "the file isn't a sound APK: fetch or build it again",
    "INSTALL_FAILED_INVALID_URI": "the phone couldn't read the pushed file: try again",
    "INSTALL_FAILED_INTERNAL_ERROR": "look into the phone's log (adb logcat), reboot it and try again",
    "INSTALL_FAILED_MEDIA_UNAVAILABLE": "the phone's storage isn't mounted: reboot it",
    "INSTALL_PARSE_FAILED_NOT_APK": "the file isn't an APK: fetch or build it again",
    "INSTALL_PARSE_FAILED_BAD_MANIFEST": "the APK's manifest can't be read: fetch or build it again",
    "INSTALL_PARSE_FAILED_UNEXPECTED_EXCEPTION": "the APK can't be read: fetch or build it again",
    "INSTALL_PARSE_FAILED_NO_CERTIFICATES": "the APK isn't signed (or was damaged): sign it",
    "INSTALL_PARSE_FAILED_INCONSISTENT_CERTIFICATES": "the APK's signatures contradict each other: sign it again",
    "INSTALL_PARSE_FAILED_MANIFEST_MALFORMED": "the APK's manifest is malformed: fetch or build it again",
}
_STORAGE: Final = frozenset({"INSTALL_FAILED_INSUFFICIENT_STORAGE"})


class InstalledApps:
    """The apps on a phone: a part of AdbDevice."""

    _link: PhoneLink

    def install(self, apk: Path, *, sha256: str, package: str) -> int:
        """See Device.install. Raises InstallError, DeviceStorageError, LinkLostError, DeviceTimeoutError."""
        installed = self.package(package)
        if installed is not None and installed.sha256 == sha256:
            return 0
        try:
            size_bytes = apk.stat().st_size
        except OSError as error:
            raise UsageError(f"{apk} can't be read: {error.strerror}") from error
        with self._link.slots.pushing():
            answer = self._stream(apk, size_bytes)
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
        told = self._link.again(lambda: self._link.ask(scripts, timeout_s=60.0, what=what)).text("package")
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
            flags=frozenset(word for line in re.findall(r"[fF]lags=\[([^\]]*)\]", told) for word in line.split()),
        )

    def _stream(self, apk: Path, size_bytes: int) -> str:
        deadline = Deadline(push_timeout_s(apk) + _SETTLE_S, self._link.clock)
        answer = bytearray()
        command = f"exec:cmd package install -r -d -g -S {size_bytes}"
        with self._link.open(command, deadline, what=f"install of {apk.name}") as connection, apk.open("rb") as file:
            try:
                while chunk := file.read(_CHUNK_BYTES):
                    connection.send(chunk)
                    if connection.readable(0):
                        break  # the package manager speaks early only to refuse
            except LinkLostError:
                # A package manager that refuses closes its end; what it said is read below, if it said anything.
                pass
            while data := connection.read_some():
                answer += data
        return answer.decode("utf-8", "replace")

    def _judge(self, answer: str, package: str) -> None:
        if re.search(r"^Success\b", answer, re.M):
            return
        code = re.search(r"\b(INSTALL_[A-Z_]+|DELETE_FAILED_[A-Z_]+)", answer)
        if code is None and "Failure" not in answer and "Error" not in answer and "Exception" not in answer:
            raise LinkLostError(
                f"install of {package}: the link ended before the package manager answered ({answer.strip()[-200:]!r})",
                serial=self._link.serial,
            )
        word = code[1] if code else ""
        hint = NEXT_STEPS.get(word, "look into the phone's log: adb logcat").replace("PACKAGE", package)
        text = f"install of {package}: {answer.strip()[-400:]}"
        if word in _STORAGE or (not word and re.search(r"not enough space|no space left", answer, re.I)):
            raise DeviceStorageError(text, serial=self._link.serial, hint=hint)
        raise InstallError(text, install_code=word, serial=self._link.serial, hint=hint)
