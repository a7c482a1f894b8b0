"""The package manager: APKs that were installed, and the rules by which it refuses one."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.contract import (
    AppInfo,
    LogPriority,
    PhoneFileError,
    ProgramDiedError,
    StreamClosedError,
)
from benchfarm_virtual.launching import Launch, log_tombstone
from benchfarm_virtual.open_files import null_file
from benchfarm_virtual.processes import (
    FIRST_APP_UID,
    SYSTEM_SERVER_PID,
    ZYGOTE_PID,
    Process,
    acting_for,
    as_user,
    user_name,
)
from benchfarm_virtual.shelf import inspect_apk

if TYPE_CHECKING:
    from benchfarm_virtual.files import PhoneTree
    from benchfarm_virtual.system import PhoneProps
    from benchfarm_virtual.userland import PhoneSystem

_FIRST_UID: Final = FIRST_APP_UID + 147
#: What the system keeps free for itself when it installs.
_RESERVE_BYTES: Final = 32 << 20


class InstallRefusedError(Exception):
    """The package manager refuses an APK; the message is its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPackage:
    """One app as it is installed."""

    info: AppInfo
    uid: int
    code_path: str

    @property
    def apk_path(self) -> str:
        """Where its APK is."""
        return f"{self.code_path}/base.apk"

    @property
    def component(self) -> str:
        """Its activity as Android abbreviates it: ``package/.Main``."""
        return f"{self.info.package}/{self.info.activity}"

    @property
    def data_path(self) -> str:
        """Its own folder."""
        return f"/data/data/{self.info.package}"


class PackageStore:
    """The apps of one phone."""

    def __init__(self, props: PhoneProps, files: PhoneTree) -> None:
        self._props = props
        self._lock = threading.RLock()
        self._packages: dict[str, InstalledPackage] = {}
        self.files = files

    def get(self, package: str) -> InstalledPackage | None:
        """Return an installed app, or None."""
        return self._packages.get(package)

    # Installing

    @as_user(0)
    def install(self, apk: bytes) -> InstalledPackage:
        """Install an APK from its bytes, over what is there. Raises InstallRefusedError."""
        with self._lock:
            if len(apk) + _RESERVE_BYTES > self.files.storage.free_bytes:
                raise InstallRefusedError("INSTALL_FAILED_INSUFFICIENT_STORAGE")
            stage = f"/data/app/vmdl{secrets.randbelow(1 << 31)}.tmp"
            try:
                return self._staged(f"{stage}/base.apk", apk)
            finally:
                self._remove_tree(stage)

    def _staged(self, stage: str, apk: bytes) -> InstalledPackage:
        try:
            self.files.make_folders(stage.rpartition("/")[0])
            self.files.open_write(stage).write(apk)
        except PhoneFileError as exc:
            raise InstallRefusedError(f"INSTALL_FAILED_INSUFFICIENT_STORAGE: {exc}") from exc
        info = inspect_apk(apk)
        if info is None:
            raise InstallRefusedError(f"INSTALL_PARSE_FAILED_NOT_APK: Failed to parse {stage}")
        old = self._packages.get(info.package)
        last_uid = max(
            (installed.uid for installed in self._packages.values()), default=_FIRST_UID - 1
        )
        package = InstalledPackage(
            info=info,
            uid=old.uid if old else last_uid + 1,
            code_path=f"/data/app/~~{secrets.token_urlsafe(16)}==/{info.package}",
        )
        self._check_fit(info)
        self.files.make_folders(package.code_path)
        self.files.rename(stage, package.apk_path)
        if old is not None:
            self._remove_tree(old.code_path.rpartition("/")[0])
        self._packages[info.package] = package
        for name in ("", "/files", "/cache"):
            self.files.lay(f"{package.data_path}{name}", 0o700, package.uid)
        return package

    def _check_fit(self, info: AppInfo) -> None:
        """Raise InstallRefusedError for an app that the phone can't run."""
        if info.min_sdk > self._props.sdk:
            raise InstallRefusedError(
                f"INSTALL_FAILED_OLDER_SDK: Requires newer sdk version #{info.min_sdk}"
            )
        if not set(info.abis) & set(self._props["ro.product.cpu.abilist"].split(",")):
            raise InstallRefusedError(
                "INSTALL_FAILED_NO_MATCHING_ABIS: Failed to extract native libraries, res=-113"
            )

    # Changing and removing

    @as_user(0)
    def uninstall(self, package: str) -> bool:
        """Remove an app; False when it isn't there."""
        with self._lock:
            installed = self._packages.get(package)
            if installed is None:
                return False
            self._remove_tree(installed.code_path.rsplit("/", 1)[0])
            self._remove_tree(installed.data_path)
            del self._packages[package]
            return True

    def _remove_tree(self, path: str) -> None:
        try:
            names = self.files.list(path)
        except PhoneFileError:
            names = ()
        for name in names:
            self._remove_tree(f"{path}/{name}")
        try:
            self.files.remove(path)
        except PhoneFileError:
            return


class ActivityMissingError(Exception):
    """There is no such activity."""


class ActivityService:
    """Starts and stops the apps of one phone."""

    def __init__(self, system: PhoneSystem) -> None:
        self._system = system

    def log(self, text: str, priority: LogPriority = "I") -> None:
        """Write a line as the activity manager does."""
        logs = self._system.logs
        logs.append(priority, "ActivityManager", text, pid=SYSTEM_SERVER_PID, buffer="system")

    def log_kill(self, process: Process, reason: str) -> None:
        """Write why it kills an app's process."""
        package, user = process.argv[0], user_name(process.uid).replace("_", "")
        self.log(f"Killing {process.pid}:{package}/{user} (adj 0): {reason}")

    def running(self, package: str) -> list[Process]:
        """Return an app's processes."""
        return [
            p
            for p in self._system.processes.live()
            if p.group == "top-app" and p.argv[:1] == (package,)
        ]

    def start(self, component: str, extras: Mapping[str, str]) -> None:
        """Start an activity, ``package/.Main``. Raises ActivityMissingError."""
        system = self._system
        package = component.partition("/")[0]
        installed = system.packages.get(package)
        if installed is None or component != installed.component:
            raise ActivityMissingError(component)
        system.state.wake()
        process = system.processes.spawn(
            [package], uid=installed.uid, ppid=ZYGOTE_PID, group="top-app"
        )
        user = user_name(process.uid).replace("_", "")
        self.log(f"Start proc {process.pid}:{package}/{user} for top-activity {{{component}}}")
        request = Launch(
            system=system,
            process=process,
            argv=[package],
            cwd="/",
            env={"ANDROID_DATA": "/data", "ANDROID_ROOT": "/system", "ANDROID_STORAGE": "/storage"},
            fds=dict.fromkeys(range(3), null_file()),
        )
        call = Invocation(request)
        program = system.shelf.activity(installed.info, extras)
        process.computes = True

        def run() -> None:
            status = 1
            try:
                with acting_for(process):
                    status = program(call)
            except ProgramDiedError as exc:
                status = 128 + exc.signal
                self._died(package, process, exc.signal)
            except StreamClosedError:
                status = 0
            finally:
                if process.killed.is_set() and not process.done.is_set():
                    self._log_end(package, process)
                system.processes.end(process, status)

        threading.Thread(target=run, daemon=True, name=f"phone-app-{process.pid}").start()

    def force_stop(self, package: str) -> None:
        """End all of an app's processes."""
        stopped = self.running(package)
        for process in stopped:
            self.log_kill(process, f"stop {package}")
            self._system.processes.kill(process, 9)
        for process in stopped:
            process.done.wait(2.0)
            self._system.processes.end(process, 137)

    def _log_end(self, package: str, process: Process) -> None:
        self.log(f"Process {package} (pid {process.pid}) has died: fg  TOP ")

    def _died(self, package: str, process: Process, signal: int) -> None:
        """Log the end of an app by a signal that was its own or the low memory killer's."""
        if process.killed.is_set():
            return
        process.signal = signal
        if signal != 9:  # what kills with SIGKILL writes about it itself
            log_tombstone(self._system.logs, process, signal)
        self._log_end(package, process)
