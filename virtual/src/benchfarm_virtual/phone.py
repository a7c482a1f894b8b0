"""One virtual phone: its parts put together, and what happens to it as a whole."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, NoReturn

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.contract import SIGKILL, ProgramDiedError
from benchfarm_virtual.faults import Cut, Fault, FaultKind, FaultTable
from benchfarm_virtual.hardware import VirtualHardware, Work
from benchfarm_virtual.link import LOOPBACK, PhoneServer
from benchfarm_virtual.open_files import OpenFile
from benchfarm_virtual.services import FEATURES, ServiceDesk
from benchfarm_virtual.spec import PhoneSpec
from benchfarm_virtual.system import ScaledTime
from benchfarm_virtual.userland import PhoneSystem

#: How long a reboot takes, in the phone's seconds.
BOOT_S: Final = 2.0
#: adbd answers some time before the system is up, which these properties show.
_SYSTEM_START_S: Final = 1.0
_BOOT_PROPS: Final = ("sys.boot_completed", "dev.bootcomplete")
_PORT_RETRY_S: Final = 0.5
#: Another app, which logs with that fault.
_CHATTER_PID: Final = 1999


class Phone:
    """A phone that listens on 127.0.0.1 from :meth:`start` to :meth:`close`.

    Methods may be called from any thread.
    """

    def __init__(
        self,
        spec: PhoneSpec,
        *,
        allowed_keys: Sequence[RSAPublicKey],
        seed: int,
        time_factor: float = 1.0,
    ) -> None:
        """Make the phone's parts. ``allowed_keys`` are the adb servers that it lets in.

        Raises UsageError when the spec names what doesn't exist.
        """
        profile = spec.resolve_profile()
        self.spec = spec
        self.faults = FaultTable()
        self.time = ScaledTime(time_factor)
        # How fast its uptime runs beside others' clocks.
        props = {**profile.system_props(spec.serial), "ro.benchfarm.speed": f"{time_factor:g}"}
        self.hardware = VirtualHardware(profile, self.time, seed)
        self._foreign: Work | None = None
        self._silent: threading.Event | None = None
        self.userland = PhoneSystem(
            props=props,
            time=self.time,
            hardware=self.hardware,
            rooted=spec.rooted,
            faults=self.faults,
            moment=ProgramMoments(self.faults),
        )
        desk = ServiceDesk(
            system=self.userland,
            faults=self.faults,
            legacy=spec.legacy,
            reboot=self.reboot,
        )
        self._server = PhoneServer(
            spec.serial,
            allowed_keys,
            self.faults,
            banner=self._banner,
            service_for=desk.service_for,
        )
        self._lock = threading.Lock()
        self._booting = False
        self._closed = threading.Event()
        self._handle_faults()

    @property
    def serial(self) -> str:
        """What ``ro.serialno`` says; adb itself calls the phone by its address."""
        return self.spec.serial

    @property
    def port(self) -> int:
        """The TCP port on 127.0.0.1; 0 before :meth:`start`."""
        return self._server.port

    @property
    def address(self) -> str:
        """What ``adb connect`` takes."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def listening(self) -> bool:
        """False while it reboots and when it is closed."""
        return self._server.listening

    def start(self) -> None:
        """Listen; raise OSError when the requested port isn't available."""
        self._server.listen(self.spec.port)

    def close(self) -> None:
        """Switch off: connections end, processes die, the port is free."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._server.close()
        self._server.hang(hung=False)  # waiting threads see the end
        self.userland.processes.kill_all()

    def reboot(self, *, away_s: float = BOOT_S) -> None:
        """Restart: it is gone at once, and after ``away_s`` phone seconds listens on the same port
        with a new boot id.
        """
        with self._lock:
            if self._booting or self._closed.is_set():
                return
            self._booting = True
        self._server.go_offline()
        down = threading.Event()
        threading.Thread(
            target=self._boot, args=(away_s, down), name=f"{self.serial} boot", daemon=True
        ).start()
        down.wait()

    def _boot(self, away_s: float, down: threading.Event) -> None:
        try:
            self.userland.restart()
            self.hardware.reboot()
            self.time.restart()
            for name in _BOOT_PROPS:
                self.userland.props[name] = ""
        finally:
            down.set()
        self.time.sleep(away_s, self._closed)
        boot_id = self.userland.boot_id
        while not self._closed.is_set():
            try:
                self._server.go_online()
                break
            except OSError:
                self._closed.wait(
                    _PORT_RETRY_S
                )  # someone else has the port; it is this phone's when they let go
        with self._lock:
            self._booting = False
        if self.time.sleep(_SYSTEM_START_S, self._closed):
            return
        with self._lock:
            if boot_id == self.userland.boot_id:  # else it was restarted meanwhile
                for name in _BOOT_PROPS:
                    self.userland.props[name] = "1"

    def _banner(self) -> bytes:
        features = () if self.spec.legacy else FEATURES
        about = [
            f"{key}={self.userland.props.get(key, '')}"
            for key in ("ro.product.name", "ro.product.model", "ro.product.device")
        ]
        return ("device::" + ";".join([*about, "features=" + ",".join(features)])).encode()

    # Faults

    def _handle_faults(self) -> None:
        handle = self.faults.handle
        handle(FaultKind.CUT, lambda fault: self._server.drop_connections())
        handle(FaultKind.HANG, self._hang, lambda fault: self._server.hang(hung=False))
        handle(
            FaultKind.SLOW,
            lambda fault: setattr(self._server, "bytes_per_s", fault.number("bytes_per_s")),
            lambda fault: setattr(self._server, "bytes_per_s", 0.0),
        )
        handle(FaultKind.REBOOT, lambda fault: self.reboot(away_s=fault.number("seconds")))
        handle(
            FaultKind.UNAUTHORIZED,
            lambda fault: self._server.drop_connections(),
            lambda fault: self._server.admit(),
        )
        handle(FaultKind.CLOCK_JUMP, lambda fault: self.time.jump(fault.number("seconds")))
        handle(FaultKind.OVERHEAT, lambda fault: self.hardware.force(heat_c=fault.number("heat_c")))
        handle(
            FaultKind.THROTTLE,
            lambda fault: self.hardware.hold_clocks(int(fault.number("steps"))),
            lambda fault: self.hardware.hold_clocks(0),
        )
        handle(
            FaultKind.CABLE_OUT,
            lambda fault: self.hardware.set_plugged(plugged=False),
            lambda fault: self.hardware.set_plugged(plugged=True),
        )
        handle(FaultKind.FOREIGN_LOAD, self._load, lambda fault: self._unload())
        handle(
            FaultKind.BATTERY_HEALTH,
            lambda fault: setattr(self.hardware, "battery_health", int(fault.number("health"))),
            lambda fault: setattr(self.hardware, "battery_health", 0),
        )
        handle(FaultKind.NOISY_LOG, self._chatter, lambda fault: self._hush())
        handle(
            FaultKind.BATTERY_LOW,
            lambda fault: self.hardware.force(battery_percent=int(fault.number("percent"))),
        )

    def _chatter(self, fault: Fault) -> None:
        """Have another app log line after line."""
        self._hush()
        self._silent = silent = threading.Event()

        def talk() -> None:
            while not silent.wait(1 / fault.number("lines_per_s")) and not self._closed.is_set():
                self.userland.logs.append(
                    "I", "Chatter", "nothing that matters", pid=_CHATTER_PID, buffer="main"
                )

        threading.Thread(target=talk, name=f"{self.serial} chatter", daemon=True).start()

    def _hush(self) -> None:
        if self._silent is not None:
            self._silent.set()
            self._silent = None

    def _hang(self, fault: Fault) -> None:
        self._server.hang(hung=True)
        if seconds := fault.number("seconds"):
            timer = threading.Timer(seconds, self.faults.remove, [fault.fault_id])
            timer.daemon = True
            timer.start()

    def _load(self, fault: Fault) -> None:
        """Keep cores, memory and GPU busy with something that is no process of a user's."""
        self._unload()
        fastest = [
            cpu for cluster in reversed(self.hardware.clusters()) for cpu in reversed(cluster.cpus)
        ]
        cores = fastest[: round(fault.number("cores"))]
        self._foreign = self.hardware.begin_work(
            cores, memory_share=fault.number("memory"), gpu_share=fault.number("gpu")
        )

    def _unload(self) -> None:
        if self._foreign is not None:
            self.hardware.end_work(self._foreign)
            self._foreign = None


SIGSEGV: Final = 11
#: Under whose name the low memory killer writes to the log.
_LMKD_PID: Final = 497
_FOR_EVER_S: Final = 1e6


class ProgramMoments:
    """Lets the faults of one phone happen to its programs."""

    def __init__(self, faults: FaultTable) -> None:
        self._faults = faults

    def __call__(self, name: str, call: Invocation) -> None:
        """Apply the faults of the moment; raise ProgramDiedError when they end the program."""
        program, process = call.name, call.process
        if name == "init":
            cut = Cut(self._faults, FaultKind.OUTPUT_CUT, "program", subject=program)
            whole = call.stdout
            # Nothing after the cut arrives, without an error for the program.
            call.stdout = OpenFile(put=lambda data: whole.write(cut.passing(data)))
        self._faults.reach(name, subject=program)
        if process.killed.is_set():
            raise ProgramDiedError(process.signal or SIGKILL)
        if self._faults.take(FaultKind.PROGRAM_HANG, name, subject=program):
            process.killed.wait()
            raise ProgramDiedError(process.signal or SIGKILL)
        if process.group == "top-app":
            anr = self._faults.take(FaultKind.NOT_RESPONDING, name, subject=program)
            if anr is not None:
                self._stop_responding(call, anr.number("seconds"))
        if self._faults.take(FaultKind.SEGV, name, subject=program):
            raise ProgramDiedError(SIGSEGV)
        if self._faults.take(FaultKind.LOW_MEMORY, name, subject=program):
            call.system.logs.append(
                "I",
                "lowmemorykiller",
                f"Kill '{program}' ({process.pid}), uid {call.uid}, oom_score_adj 0 "
                "to free 412672kB rss, 0kB swap; reason: low watermark is breached and swap is low",
                pid=_LMKD_PID,
                buffer="system",
            )
            raise ProgramDiedError(SIGKILL)

    @staticmethod
    def _stop_responding(call: Invocation, seconds: float) -> NoReturn:
        """Log the activity manager's message, and end the app after a while if nobody else has."""
        package, process = call.launch.argv[0], call.process
        component, activities = f"{package}/.BenchmarkModelActivity", call.system.activities
        activities.log(f"ANR in {package} ({component})", "E")
        activities.log(f"Reason: Input dispatching timed out ({component} is not responding)", "E")
        if call.system.time.sleep(seconds or _FOR_EVER_S, process.killed):
            raise ProgramDiedError(process.signal or SIGKILL)
        activities.log_kill(process, "user request after error")
        raise ProgramDiedError(SIGKILL)
