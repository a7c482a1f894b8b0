"""iPhones behind the Device port, by the commands of ``pymobiledevice3`` (usbmux.py).

An app's Documents folder is all that can be written: a run's app is started with flags, and has
ended when it has written ``benchmark.done``.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import secrets
import shlex
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NoReturn

from orchestrator.clock import Deadline, SystemClock
from orchestrator.errors import (
    DeviceCommandError,
    DeviceError,
    DeviceStorageError,
    DeviceTimeoutError,
    DeviceUnusableError,
    InstallError,
    LinkLostError,
    UsageError,
)
from orchestrator.extensions.iphone.usbmux import (
    ASK_TIMEOUT_S,
    NO_SERVICE,
    VIRTUAL,
    FileAbsentError,
    Usbmux,
    plain,
)
from orchestrator.files import make_private, write_file
from orchestrator.plugins import (
    Found,
    PlainDevice,
    UndoJournal,
    check_content,
    fails,
    make_checks,
    works,
)
from orchestrator.ports import (
    CheckResult,
    DetachedCommand,
    HostFile,
    ListedPhone,
    PackageInfo,
    PhoneCheck,
    PlacedFile,
    ProcessResult,
    SettingChange,
    ShellResult,
)
from orchestrator.records.case import RunId, Serial, content_key
from orchestrator.records.device import (
    CpuCluster,
    DeviceFacts,
    DeviceKind,
    DeviceProfile,
    DeviceState,
)
from orchestrator.records.run import CRASHES_FILE, DONE_FILE

#: Where the app copies its output to.
LOG: Final = "benchmark.log"
_FILE_TIMEOUT_S: Final = 600.0
#: How often the end of a run is polled: each poll wakes the phone a little.
_POLL_S: Final = 2.0
#: Every this many polls check whether the app still runs.
_ALIVE_POLLS: Final = 8
#: The app ends a second after it has written ``benchmark.done``; its log is whole then.
_EXIT_S: Final = 1.0
_MAX_BYTES: Final = 64 << 20
_MAX_CRASHES_BYTES: Final = 256 << 10
_LAUNCHED: Final = re.compile(r"^Process launched with pid (\d{1,9})\s*$", re.ASCII | re.MULTILINE)
_EXIT_CODE: Final = re.compile(rb"\d{1,3}")
_BUNDLE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,200}", re.ASCII)


class IPhoneDevice(PlainDevice):
    """One iPhone; every operation is a process that ends before the call returns."""

    kind = DeviceKind.IOS
    #: The app's own folder, the only one.
    work_folder = "Documents"

    def __init__(
        self,
        usbmux: Usbmux,
        entry: ListedPhone,
        *,
        app: str,
        journal: UndoJournal,
        folder: Path,
    ) -> None:
        """``app``: the bundle identifier of the benchmark app on it.

        ``folder``: this computer's folder for earlier files of an app's folder, and for the sha256
        of the installed .ipa.
        """
        if not _BUNDLE.fullmatch(app):
            raise UsageError(f"BENCHFARM_IPHONE_APP: {app!r} is no bundle identifier")
        self.serial, self.app = Serial(entry.serial), app
        self.clock = SystemClock()
        self._usbmux, self._properties = usbmux, entry.properties
        self._journal, self._folder = journal, folder
        #: The declaration of its kind; None where none fits.
        self.profile: DeviceProfile | None = None
        self._facts: DeviceFacts | None = None
        #: Begins the names of this object's result files; no other file of the app has it.
        self._mark = f"benchfarm-{secrets.token_hex(4)}"
        self._placed: set[str] = set()
        #: App -> sha256 of its measured installation; placed files go with it.
        self._installed: dict[str, str] = {}
        #: Apps whose folders' earlier files are saved.
        self._known_folders: set[str] = set()
        self._was_mounted = False

    def facts(self) -> DeviceFacts:
        """See Device.facts; the owner's name for the phone isn't stored."""
        if self._facts is None:
            app = self.package(self.app)
            profile, product = self.profile, self._properties.get("ProductType", "")
            app_properties = {"app": self.app} | (
                {"app.version": app.version_name, "app.sha256": app.sha256} if app else {}
            )
            ends = list(itertools.accumulate(profile.cluster_cores)) if profile is not None else []
            clusters = [
                CpuCluster(cpus=tuple(range(first, end)), min_khz=None, max_khz=None)
                for first, end in itertools.pairwise([0, *ends])
            ]
            self._facts = DeviceFacts(
                serial=self.serial,
                kind=DeviceKind.IOS,
                is_virtual=self._properties.get(VIRTUAL) == "True",
                manufacturer="Apple",
                model=profile.title if profile is not None else product,
                codename=product,
                os_version=self._properties.get("ProductVersion", ""),
                fingerprint=self._properties.get("BuildVersion", ""),
                soc=profile.soc if profile is not None else "",
                abis=("ios-arm64",),
                clusters=tuple(clusters),
                gpu="Metal",
                profile=profile.name if profile is not None else "",
                properties={**self._properties, **app_properties},
            )
        return self._facts

    def state(self) -> DeviceState:
        """See Device.state: an iPhone reports its battery only; the thermal state stays unknown."""
        try:
            battery = self.ask("diagnostics", "battery", "single")
        except (DeviceCommandError, DeviceTimeoutError):
            battery = None
        battery = battery if isinstance(battery, dict) else {}

        def number(name: str, low: int, high: int) -> int | None:
            value = battery.get(name)
            if not isinstance(value, int) or isinstance(value, bool):
                return None
            return value if low <= value <= high else None

        centi_c = number("Temperature", -4000, 12000)
        return DeviceState(
            at=self.clock.now(),
            battery_percent=number("CurrentCapacity", 0, 100),
            battery_heat_c=centi_c / 100 if centi_c is not None else None,
            plugged={"True": "usb", "False": "none"}.get(str(battery.get("ExternalConnected")), ""),
        )

    def wait_until_ready(self, *, timeout_s: float) -> None:
        """See Device.wait_until_ready; raises LinkLostError when it isn't listed in time."""
        deadline = Deadline(timeout_s, self.clock)
        while True:
            if any(entry.serial == self.serial for entry in self._usbmux.attached()):
                return
            if deadline.expired:
                raise LinkLostError("isn't attached", serial=self.serial, hint="check its cable")
            self.clock.wait(min(_POLL_S, deadline.remaining_s), threading.Event())

    def shell(self, command: str, *, timeout_s: float = 30.0) -> ShellResult:
        """Run the journal's words, a command ``apps`` of pymobiledevice3: an iPhone has no shell."""
        words = shlex.split(command)
        if words[:1] != ["apps"]:
            self.refuse("has no shell")
        # A file is restored: placed files and the folder's content have to be checked again.
        self._placed.clear()
        self._known_folders.clear()
        try:
            text = self._run(*words, timeout_s=max(timeout_s, ASK_TIMEOUT_S))
        except FileAbsentError:
            return ShellResult(exit_code=0, stdout=b"", stderr=b"")
        except (DeviceCommandError, DeviceStorageError, InstallError) as error:
            return ShellResult(exit_code=1, stdout=b"", stderr=str(error).encode())
        return ShellResult(exit_code=0, stdout=text.encode(), stderr=b"")

    def run_detached(self, command: DetachedCommand) -> ProcessResult:
        """See Device.run_detached: start the app with flags, and wait for ``benchmark.done``.

        The command line is its bundle identifier and the flags. Standard output is ``benchmark.log``;
        ``benchmark.done`` comes with the files, where it was written. Without it the exit code is
        None.
        """
        app, stop = shlex.split(command.line)[0], command.cancelled
        deadline, begun_at = Deadline(command.timeout_s, self.clock), self.clock.now()
        prefix = self.run_folder(command.run_id)
        self._check_installed(app)
        results = [name for name in command.files if f"{prefix}.{name}" in command.line]
        self._clear(app, [f"{prefix}.{name}" for name in results])
        pid = self._launch(command.line)
        done: bytes | None = None
        try:
            done = self._wait(app, pid, deadline, stop)
        finally:
            if done is None:
                # Nothing may go on heating the phone after the wait.
                with contextlib.suppress(DeviceError):
                    self._run("developer", "dvt", "kill", str(pid))
        timed_out = done is None and deadline.expired and not stop.is_set()
        self.clock.wait(_EXIT_S, stop)
        outputs = {name: self._pull(app, f"{prefix}.{name}") for name in results}
        outputs[DONE_FILE] = done
        if done is None and not timed_out and not stop.is_set():
            outputs[CRASHES_FILE] = self._crashes(begun_at)
        code = done.strip() if done is not None else b""
        return ProcessResult(
            exit_code=int(code) if _EXIT_CODE.fullmatch(code) else None,
            stdout=self._pull(app, LOG) or b"",
            stderr=b"",
            timed_out=timed_out,
            duration_s=deadline.elapsed_s,
            files={name: data for name, data in outputs.items() if data is not None},
        )

    def run_folder(self, run_id: RunId) -> str:
        """Return the prefix of a run's file names, before a dot: Documents can't have folders."""
        del run_id
        return self._mark

    def discard_run(self, run_id: RunId) -> None:
        """See Device.discard_run: the next run removes this one's files, the journal the last one's."""

    def kill_leftover_runs(self) -> Sequence[str]:
        """See Device.kill_leftover_runs: a launch ends the app that still runs."""
        return ()

    def place(self, file: HostFile) -> PlacedFile:
        """See Device.place: put a file into the app's Documents, under a name with its sha256."""
        remote = f"benchfarm-{file.sha256[:16]}-{file.name}"
        if remote in self._placed:
            return PlacedFile(path=remote, sha256=file.sha256, pushed_bytes=0)
        size = file.size()
        try:
            check_content(file, serial=self.serial)
        except OSError as error:
            raise UsageError(f"{file.source} can't be read: {error.strerror}") from error
        self._note(self.app, f"{file.kind} {file.name}", remote)
        words = _documents("push", self.app, str(file.source), _path(remote))
        self._run(*words, timeout_s=_FILE_TIMEOUT_S)
        self._placed.add(remote)
        return PlacedFile(path=remote, sha256=file.sha256, pushed_bytes=size)

    def read_file(
        self, path: str, *, package: str = "", limit_bytes: int = _MAX_BYTES
    ) -> bytes | None:
        """See Device.read_file: of an app's Documents."""
        return self._pull(package or self.app, path, limit_bytes=limit_bytes)

    def install(
        self, apk: Path, *, sha256: str, package: str, cancelled: threading.Event | None = None
    ) -> int:
        """See Device.install, of an ``.ipa`` that is signed for this phone; it can't be cancelled."""
        del cancelled
        previous = self.package(package)
        self.app = package
        if previous is not None and previous.sha256 == sha256:
            return 0
        self._placed.clear()
        self._run("apps", "install", str(apk), timeout_s=_FILE_TIMEOUT_S)
        installed = self._entry(package)
        if installed is None:
            raise InstallError(
                f"{apk.name} was taken, but the phone has no app {package}", serial=self.serial
            )
        make_private(self._folder)
        write_file(
            self._state_path(package, "ipa"),
            json.dumps({"sha256": sha256, "path": plain(installed.get("Path"))}),
        )
        self._installed[package] = sha256
        return apk.stat().st_size

    def package(self, package: str) -> PackageInfo | None:
        """See Device.package; ``sha256`` is the .ipa's if it was installed from here, else that of
        the installation.
        """
        entry = self._entry(package)
        if entry is None:
            return None
        text = {
            name: plain(entry.get(name))
            for name in ("CFBundleShortVersionString", "CFBundleVersion", "Path")
        }
        version = f"{text['CFBundleShortVersionString']} ({text['CFBundleVersion']})"
        sha256 = content_key({"package": package, **text})
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            record = json.loads(self._state_path(package, "ipa").read_text("utf-8"))
            # Every installation has its own folder: this one is still ours.
            if text["Path"] and record["path"] == text["Path"]:
                sha256 = str(record["sha256"])
        self._installed.setdefault(package, sha256)
        return PackageInfo(
            package=package,
            version_name=version,
            path=text["Path"],
            sha256=sha256,
        )

    def checks(self) -> Iterator[PhoneCheck]:
        """See CheckedDevice.checks."""
        return _checks(self)

    def try_file(self, local: Path) -> bool:
        """Put a file into the app's folder, read it back and remove it; return whether it was whole.

        Raises DeviceError.
        """
        name = f"{self._mark}.check"
        self._note(self.app, "a check's file", name)
        self._run(*_documents("push", self.app, str(local), _path(name)))
        is_whole = self._pull(self.app, name) == local.read_bytes()
        self._run(*_documents("rm", self.app, _path(name)))
        self._journal.keep(
            self.serial,
            [
                change
                for change in self._journal.pending(self.serial)
                if not change.undo.endswith(name)
            ],
        )
        return is_whole

    def ask(self, *words: str) -> object:
        """Return the JSON that a command prints; raises DeviceError kinds."""
        return self._usbmux.json(*words, udid=self.serial)

    # The app's folder
    # -------------------------------------------------------------------------------------------------

    def _note(self, app: str, label: str, remote: str) -> None:
        """Add a file of the app's folder to the journal, before it is put there.

        Raises HostStorageError.
        """
        undo = shlex.join(_documents("rm", app, _path(remote)))
        change = SettingChange(what=f"{label} in the app's folder", undo=undo)
        if change not in self._journal.pending(self.serial):
            self._journal.add(self.serial, change)

    def _clear(self, app: str, results: Sequence[str]) -> None:
        """Remove files of an earlier run, so that none can be taken for this one's.

        Files from before our first run are saved here and restored at the end. Raises DeviceError
        kinds.
        """
        if app not in self._known_folders:
            for name in (LOG, DONE_FILE):
                self._keep_before(app, name)
            for name in results:
                self._note(app, name, name)
            self._known_folders.add(app)
        for name in (DONE_FILE, LOG, *results):
            with contextlib.suppress(FileAbsentError):
                self._run(*_documents("rm", app, _path(name)))

    def _keep_before(self, app: str, name: str) -> None:
        undo = shlex.join(_documents("rm", app, _path(name)))
        if any(change.undo == undo for change in self._journal.pending(self.serial)):
            # A process that crashed saved the original; this file is its own.
            return
        before = self._pull(app, name)
        if before is not None:
            backup = self._state_path(app, name)
            make_private(self._folder)
            backup.write_bytes(before)
            put = shlex.join(_documents("push", app, str(backup), _path(name)))
            self._journal.add(self.serial, SettingChange(what=f"{name} as it was before", undo=put))
        self._note(app, name, name)

    def _pull(self, app: str, name: str, *, limit_bytes: int = _MAX_BYTES) -> bytes | None:
        """Return a file of the app's folder, None when there is none; raises DeviceError kinds."""
        with tempfile.TemporaryDirectory(prefix="benchfarm-") as folder:
            local = Path(folder) / "file"
            try:
                words = _documents("pull", app, _path(name), str(local))
                self._run(*words, timeout_s=_FILE_TIMEOUT_S)
            except FileAbsentError:
                return None
            if not local.is_file():
                return None
            if local.stat().st_size > limit_bytes:
                raise DeviceCommandError(
                    f"{name} is larger than {limit_bytes} bytes", serial=self.serial
                )
            return local.read_bytes()

    def _check_installed(self, app: str) -> None:
        """Raise InstallError when the app was removed or replaced since this object first saw it."""
        now = self.package(app)
        if now is None or now.sha256 != self._installed[app]:
            problem = (
                "isn't on the phone any more"
                if now is None
                else f"was replaced: {now.version_name} is there now"
            )
            raise InstallError(
                f"the app {app} {problem}",
                serial=self.serial,
                hint="begin a new campaign; figures of two apps aren't one",
            )

    # A run
    # ------------------------------------------------------------------------------------------------------------

    def _launch(self, command: str) -> int:
        """Start the app, mounting the developer image first where that is missing; return its
        process number.
        """
        try:
            output = self._run("developer", "dvt", "launch", command)
        except DeviceUnusableError as error:
            if NO_SERVICE not in str(error) or self._was_mounted:
                raise
            self._was_mounted = True
            with contextlib.suppress(DeviceError):
                self._run("mounter", "auto-mount", timeout_s=_FILE_TIMEOUT_S)
            output = self._run("developer", "dvt", "launch", command)
        launched = _LAUNCHED.search(output)
        if launched is None:
            raise DeviceCommandError(
                f"the app wasn't started: {output.strip()[:200]!r}", serial=self.serial
            )
        return int(launched[1])

    def _wait(self, app: str, pid: int, deadline: Deadline, stop: threading.Event) -> bytes | None:
        """Return the content of ``benchmark.done``.

        None: cancelled, out of time, or the app ended without it.
        """
        for poll in itertools.count(1):
            if self.clock.wait(min(_POLL_S, deadline.remaining_s), stop):
                return None
            if (done := self._pull(app, DONE_FILE)) is not None:
                return done
            if deadline.expired:
                return None
            if (poll == 2 or poll % _ALIVE_POLLS == 0) and self._has_ended(pid):
                return self._pull(app, DONE_FILE)
        raise AssertionError("never reached")

    def _has_ended(self, pid: int) -> bool:
        try:
            return self.ask("developer", "dvt", "is-running-pid", str(pid)) is False
        except (DeviceCommandError, DeviceTimeoutError):
            return False

    def _crashes(self, since: datetime) -> bytes | None:
        """Return the names of the system's crash reports since a moment, a line each; None for none."""
        with (
            contextlib.suppress(DeviceError, OSError),
            tempfile.TemporaryDirectory(prefix="benchfarm-") as folder,
        ):
            self._run("crash", "pull", "--match", r".*\.ips", folder, timeout_s=_FILE_TIMEOUT_S)
            names = [
                path.name
                for path in sorted(Path(folder).rglob("*.ips"))
                if plain(path.name)
                and path.is_file()
                and not path.is_symlink()
                and _is_since(path, since)
            ]
            return "".join(f"{name}\n" for name in names).encode()[:_MAX_CRASHES_BYTES] or None
        return None

    # The program
    # ------------------------------------------------------------------------------------------------------

    def _entry(self, package: str) -> Mapping[str, object] | None:
        apps = self.ask("apps", "query", package)
        entry = apps.get(package) if isinstance(apps, dict) else None
        return entry if isinstance(entry, dict) else None

    def _state_path(self, app: str, name: str) -> Path:
        return self._folder / f"{uuid.uuid5(uuid.NAMESPACE_URL, f'{self.serial} {app}')}.{name}"

    def _run(self, *words: str, timeout_s: float = ASK_TIMEOUT_S) -> str:
        return self._usbmux.run(*words, udid=self.serial, timeout_s=timeout_s)

    def refuse(self, what: str) -> NoReturn:
        """Raise UsageError for a feature that an iPhone lacks."""
        raise UsageError(f"the iPhone {self.serial} {what}")


def _documents(verb: str, app: str, *words: str) -> tuple[str, ...]:
    """Return the words of a command on a file of an app's Documents."""
    return "apps", verb, "--documents", app, *words


def _path(name: str) -> str:
    """Return the path of a file of an app's Documents, for commands with ``--documents``."""
    return f"/Documents/{name}"


def _is_since(path: Path, moment: datetime) -> bool:
    """Whether a report of the phone's system, whose first line is JSON, is of this moment or later."""
    try:
        with path.open("rb") as file:
            timestamp = json.loads(file.readline(1 << 16))["timestamp"]
        written_at = datetime.strptime(timestamp, "%Y-%m-%d %H:%M:%S.%f %z")
    except (OSError, ValueError, KeyError, TypeError):
        return False
    # The clocks of phone and computer differ a little.
    return written_at >= moment - timedelta(seconds=5)


def _checks(device: IPhoneDevice) -> Iterator[PhoneCheck]:
    """Yield the result of each check; a failed one names the next step."""
    checks: dict[str, Callable[[], Found]] = {
        "trust and app": lambda: _app(device),
        "push and pull": lambda: _files(device),
        "developer services": lambda: _services(device),
        "battery": lambda: _battery(device),
    }
    yield from make_checks(device.clock, checks)


def _app(device: IPhoneDevice) -> Found:
    package = device.package(device.app)
    if package is None:
        step = "install it, or name an .ipa with --build; $BENCHFARM_IPHONE_APP names another bundle id"
        return fails(f"{device.app} isn't installed", step)
    return works(f"{device.app} {package.version_name}")


def _files(device: IPhoneDevice) -> Found:
    with tempfile.TemporaryDirectory(prefix="benchfarm-") as folder:
        local = Path(folder) / "file"
        local.write_bytes(b"benchfarm looks whether it may put files here\n")
        is_whole = device.try_file(local)
    return (
        works("a file came back as it was sent")
        if is_whole
        else fails("a file came back changed", "try again")
    )


def _services(device: IPhoneDevice) -> Found:
    # It fails without developer mode or image, and without the tunnel that iOS 17.0 requires;
    # whether any process has this number doesn't matter.
    device.ask("developer", "dvt", "is-running-pid", "1")
    return works("apps can be started")


def _battery(device: IPhoneDevice) -> Found:
    state = device.state()
    if state.battery_heat_c is None:
        cost = "runs don't wait for the phone to cool down"
        return CheckResult.MISSING, "the phone reports no battery temperature", cost
    return works(f"{state.battery_percent} %, {state.battery_heat_c:g} C")
