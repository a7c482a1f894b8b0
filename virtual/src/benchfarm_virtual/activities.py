"""The activity manager: apps as processes, started, stopped, and what the log says of it."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from benchfarm_virtual.contract import LogPriority, ProgramDiedError, StreamClosedError
from benchfarm_virtual.launching import Launch, log_tombstone, program_context
from benchfarm_virtual.open_files import DeviceFile
from benchfarm_virtual.packages import InstalledPackage
from benchfarm_virtual.processes import SYSTEM_SERVER_PID, ZYGOTE_PID, Process, acting_for
from benchfarm_virtual.system import PhoneSystem


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedActivity:
    """What came of starting an activity."""

    process: Process
    #: From the request to the window, in phone milliseconds.
    launch_ms: int
    warm: bool


class ActivityMissingError(Exception):
    """There is no such activity."""


def full_class(package: str, activity: str) -> str:
    """Return an activity's full class name (``.Main`` is short for ``package.Main``)."""
    return package + activity if activity.startswith(".") else activity


def short_component(package: str, activity: str) -> str:
    """Return a component as Android abbreviates it: ``package/.Main``."""
    name = full_class(package, activity)
    return f"{package}/{name[len(package) :] if name.startswith(package + '.') else name}"


class ActivityService:
    """Starts and stops the apps of one phone."""

    def __init__(self) -> None:
        self._system: PhoneSystem
        self._lock = threading.Lock()

    def attach(self, system: PhoneSystem) -> None:
        """Take the rest of the phone into use."""
        self._system = system

    def log(self, tag: str, text: str, *, priority: LogPriority = "I") -> None:
        """Write a line as system_server does."""
        self._system.logs.append(
            priority,
            tag,
            text,
            pid=SYSTEM_SERVER_PID,
            tid=SYSTEM_SERVER_PID + 57,
            uid=1000,
            buffer="system",
        )

    def running(self, package: str) -> list[Process]:
        """Return an app's processes."""
        found = self._system.packages.get(package)
        if found is None:
            return []
        return [
            p
            for p in self._system.processes.live()
            if p.group == "top-app" and p.argv[:1] == (package,)
        ]

    def start(
        self, package: str, activity: str, extras: Mapping[str, str], *, from_uid: int, shown: str
    ) -> StartedActivity:
        """Start an activity. Raises ActivityMissingError."""
        system = self._system
        found = system.packages.get(package)
        name = full_class(package, activity)
        known = found is not None and name == found.info.activity
        program = system.shelf.activity(package, extras) if known else None
        component = short_component(package, activity)
        self.log("ActivityTaskManager", f"START u0 {{{shown}}} from uid {from_uid}")
        if found is None or program is None:
            raise ActivityMissingError(component)
        system.state.wake()
        before = self.running(package)
        process = system.processes.spawn([package], uid=found.uid, ppid=ZYGOTE_PID, group="top-app")
        process.rss_bytes = 96 << 20
        self.log(
            "ActivityManager",
            f"Start proc {process.pid}:{package}/u0a{found.uid - 10000} for top-activity {{{component}}}",
        )
        request = Launch(
            system=system,
            process=process,
            argv=[package],
            cwd="/",
            env={"ANDROID_DATA": "/data", "ANDROID_ROOT": "/system", "ANDROID_STORAGE": "/storage"},
            fds={0: DeviceFile(), 1: DeviceFile(), 2: DeviceFile()},
        )
        context = program_context(request)

        def run() -> None:
            status = 1
            try:
                with acting_for(process):
                    status = program.run(context)
            except ProgramDiedError as exc:
                status = 128 + exc.signal
                self._died(found, process, exc.signal)
            except StreamClosedError:
                status = 0
            finally:
                if process.killed.is_set() and not process.done.is_set():
                    self._gone(package, process)
                system.processes.end(process, status)

        threading.Thread(target=run, daemon=True, name=f"phone-app-{process.pid}").start()
        launch_ms = (90 if before else 180) + random.Random(process.pid).randrange(60)  # noqa: S311 -- a figure for show
        return StartedActivity(process=process, launch_ms=launch_ms, warm=bool(before))

    def force_stop(self, package: str, *, reason: str = "from pid 0") -> int:
        """End all of an app's processes; return how many there were."""
        stopped = self.running(package)
        if not stopped:
            return 0
        self.log(
            "ActivityManager", f"Force stopping {package} appid={stopped[0].uid} user=0: {reason}"
        )
        for process in stopped:
            self.log(
                "ActivityManager",
                f"Killing {process.pid}:{package}/u0a{process.uid - 10000} (adj 0): stop {package} due to {reason}",
            )
            self._system.processes.kill(process, 9)
        for process in stopped:
            process.done.wait(2.0)
            self._system.processes.end(process, 137)
        return len(stopped)

    def _gone(self, package: str, process: Process) -> None:
        self.log("ActivityManager", f"Process {package} (pid {process.pid}) has died: fg  TOP ")
        self._system.logs.append(
            "I",
            "Zygote",
            f"Process {process.pid} exited due to signal {process.signal}",
            pid=ZYGOTE_PID,
            uid=0,
        )

    def _died(self, found: InstalledPackage, process: Process, signal: int) -> None:
        """Log the end of an app by a signal that was its own or the low memory killer's."""
        if process.killed.is_set():
            return
        package = found.info.package
        process.signal = signal
        if signal != 9:  # what kills with SIGKILL writes about it itself
            log_tombstone(
                self._system.logs, self._system.props, process, signal, abi=found.primary_abi
            )
        self._gone(package, process)
