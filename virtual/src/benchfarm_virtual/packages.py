"""The package manager: APKs that were installed, and the rules by which it refuses one."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchfarm_virtual.contract import AppInfo, PhoneFileError
from benchfarm_virtual.processes import FIRST_APP_UID

if TYPE_CHECKING:
    from benchfarm_virtual.files import PhoneTree
    from benchfarm_virtual.open_files import OpenFile
    from benchfarm_virtual.shelf import VirtualProgramShelf
    from benchfarm_virtual.system import PhoneProps

_FIRST_UID: Final = FIRST_APP_UID + 147
_CHUNK_BYTES: Final = 1 << 20
#: What the system keeps free for itself when it installs.
_RESERVE_BYTES: Final = 32 << 20


class InstallRefusedError(Exception):
    """The package manager refuses an APK; ``code`` is its word for it."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPackage:
    """One app as it is installed."""

    info: AppInfo
    uid: int
    code_path: str
    primary_abi: str

    @property
    def apk_path(self) -> str:
        """Where its APK is."""
        return f"{self.code_path}/base.apk"

    @property
    def data_path(self) -> str:
        """Its own folder."""
        return f"/data/data/{self.info.package}"


class PackageStore:
    """The apps of one phone."""

    def __init__(self, shelf: VirtualProgramShelf, props: PhoneProps, files: PhoneTree) -> None:
        self._shelf = shelf
        self._props = props
        self._lock = threading.RLock()
        self._packages: dict[str, InstalledPackage] = {}
        self.files = files

    def get(self, package: str) -> InstalledPackage | None:
        """Return an installed app, or None."""
        return self._packages.get(package)

    def _next_uid(self) -> int:
        return max((package.uid for package in self._packages.values()), default=_FIRST_UID - 1) + 1

    # Installing

    def install(self, source: Iterable[bytes], size_bytes: int) -> InstalledPackage:
        """Install an APK from its bytes. Raises InstallRefusedError."""
        with self._lock:
            if size_bytes + _RESERVE_BYTES > self.files.storage.free_bytes:
                raise InstallRefusedError("INSTALL_FAILED_INSUFFICIENT_STORAGE")
            stage = f"/data/app/vmdl{secrets.randbelow(1 << 31)}.tmp"
            try:
                return self._staged(stage, source)
            finally:
                self._remove_tree(stage)

    def _staged(self, stage: str, source: Iterable[bytes]) -> InstalledPackage:
        apk = f"{stage}/base.apk"
        try:
            self.files.make_folders(stage, uid=0)
            writer = self.files.open_write(apk, mode=0o644, uid=0)
            for piece in source:
                writer.write(piece)
        except PhoneFileError as exc:
            raise InstallRefusedError("INSTALL_FAILED_INSUFFICIENT_STORAGE", str(exc)) from exc
        info = self._shelf.inspect_apk(_pieces(self.files.open_read(apk, uid=0)))
        if info is None:
            raise InstallRefusedError("INSTALL_PARSE_FAILED_NOT_APK", f"Failed to parse {apk}")
        abi = self._abi(info, apk)
        old = self._packages.get(info.package)
        code_path = f"/data/app/~~{secrets.token_urlsafe(16)}==/{info.package}-{secrets.token_urlsafe(16)}=="
        self.files.make_folders(code_path, uid=0)
        self.files.rename(apk, f"{code_path}/base.apk", uid=0)
        package = InstalledPackage(
            info=info,
            uid=old.uid if old else self._next_uid(),
            code_path=code_path,
            primary_abi=abi,
        )
        self._packages[info.package] = package
        if old is not None:
            self._remove_tree(old.code_path.rsplit("/", 1)[0])
        self._make_data_folders(package)
        return package

    def _abi(self, info: AppInfo, apk: str) -> str:
        """Return the ABI that an app will run with, "" for one without native code.

        Raise InstallRefusedError when the phone won't have it.
        """
        sdk = self._props.sdk
        if info.min_sdk > sdk:
            raise InstallRefusedError(
                "INSTALL_FAILED_OLDER_SDK",
                f"Failed parse during installPackageLI: {apk} (at Binary XML file line #7): "
                f"Requires newer sdk version #{info.min_sdk} (current version is #{sdk})",
            )
        known = self._props.get("ro.product.cpu.abilist", "arm64-v8a,armeabi-v7a,armeabi")
        abi = next((abi for abi in known.split(",") if abi in info.abis), None)
        if info.abis and abi is None:
            raise InstallRefusedError(
                "INSTALL_FAILED_NO_MATCHING_ABIS",
                "INSTALL_FAILED_NO_MATCHING_ABIS: Failed to extract native libraries, res=-113",
            )
        return abi or ""

    def _make_data_folders(self, package: InstalledPackage) -> None:
        for path in (package.data_path, f"{package.data_path}/files", f"{package.data_path}/cache"):
            self.files.lay(path, 0o700, package.uid)

    # Changing and removing

    def uninstall(self, package: str) -> bool:
        """Remove an app; False when it isn't there."""
        with self._lock:
            found = self._packages.get(package)
            if found is None:
                return False
            self._remove_tree(found.code_path.rsplit("/", 1)[0])
            self._remove_tree(found.data_path)
            self._remove_tree(f"/storage/emulated/0/Android/data/{package}")
            del self._packages[package]
            return True

    def _remove_tree(self, path: str) -> None:
        try:
            names = self.files.list(path, uid=0)
        except PhoneFileError:
            names = ()
        for name in names:
            self._remove_tree(f"{path}/{name}")
        try:
            self.files.remove(path, uid=0)
        except PhoneFileError:
            return


def _pieces(source: OpenFile) -> Iterator[bytes]:
    while piece := source.read(_CHUNK_BYTES):
        yield piece
