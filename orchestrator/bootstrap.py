"""Where everything is put together: settings from the environment, adapters from settings. Nothing else does either."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from orchestrator.clock import SystemClock
from orchestrator.errors import (
    AdbUnavailableError,
    ArtifactError,
    DeviceError,
    DeviceUnusableError,
    NoDeviceError,
    UsageError,
)
from orchestrator.planning import NoBuild, tools_for
from orchestrator.planning.selection import Choice, choose
from orchestrator.records.device import HOST_SERIAL, DeviceFacts, DeviceKind, DeviceProfile
from orchestrator.records.identity import BuildSha, Serial
from orchestrator.records.plan import DeviceSelection, Plan, PushLimits
from orchestrator.records.workload import IMPORTED_TOOLS, Build, Companion, ToolName
from orchestrator.resources import data_folder

if TYPE_CHECKING:
    from orchestrator.artifacts.download import Downloader
    from orchestrator.artifacts.fetching import BuildFetcher
    from orchestrator.artifacts.library import BuildLibrary
    from orchestrator.config.inventory import Labels
    from orchestrator.devices.conditioning import LadderConditioner
    from orchestrator.devices.discovery import KnownPhones, Seen
    from orchestrator.devices.experiments import ExperimentBook
    from orchestrator.devices.quarantine import QuarantineFolder
    from orchestrator.devices.recovery import LadderRescuer
    from orchestrator.devices.server import AdbServer
    from orchestrator.ports import Device, Lease, ParityReference, Store, Tool
    from orchestrator.tools.flag_book import HelpFlagBook


#: The stand-in for each program that is an executable.
_STAND_INS: Mapping[ToolName, str] = {
    ToolName.NATIVE: "benchmark_model",
    ToolName.PERF_OPTIONS: "benchmark_model_performance_options",
    ToolName.LITERT_NATIVE: "benchmark_litert_model",
}
#: The property in which a virtual phone tells the USB path that it plays.
VIRTUAL_USB = "ro.benchfarm.usb"
#: How long a virtual phone may take to let its server in.
_JOIN_TIMEOUT_S = 3.0
#: Tools whose program comes with and without TensorFlow's operators.
_WITH_FLEX = frozenset({ToolName.NATIVE, ToolName.APK})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment and the options before the command say."""

    #: Store and reports.
    data_folder: Path
    #: Programs, by content.
    cache_folder: Path
    #: Journals, leases, servers that run.
    state_folder: Path
    #: Path or URL of the store.
    store: str
    #: $BENCHFARM_ADB: the adb program to use.
    adb: str
    #: $BENCHFARM_ADB_SERVER: host:port of the adb server to use.
    adb_server: str
    #: The environment for programs that are started.
    environ: Mapping[str, str]
    #: $BENCHFARM_MIRROR: where programs are fetched from instead, as PREFIX or ORIGIN=PREFIX.
    mirror: str = ""
    #: $BENCHFARM_ARTIFACTS: the URL of where a farm's files lie; empty: its database.
    artifacts: str = ""

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str] | None = None, *, home: Path | None = None, store: str | None = None
    ) -> Settings:
        """Read $BENCHFARM_HOME, _STORE, _ADB, _ADB_SERVER, _MIRROR and _ARTIFACTS; options win."""
        values = dict(os.environ if environ is None else environ)
        folder = home or (Path(values["BENCHFARM_HOME"]) if values.get("BENCHFARM_HOME") else None)
        if folder is not None:
            folder = folder.expanduser().absolute()
            folders = (folder, folder / "cache", folder / "state")
        else:
            import platformdirs

            dirs = platformdirs.PlatformDirs("benchfarm", appauthor=False)
            folders = (Path(dirs.user_data_dir), Path(dirs.user_cache_dir), Path(dirs.user_state_dir))
        return cls(
            data_folder=folders[0],
            cache_folder=folders[1],
            state_folder=folders[2],
            store=store or values.get("BENCHFARM_STORE") or str(folders[0] / "store.sqlite"),
            adb=values.get("BENCHFARM_ADB", ""),
            adb_server=values.get("BENCHFARM_ADB_SERVER", ""),
            environ=values,
            mirror=values.get("BENCHFARM_MIRROR", ""),
            artifacts=values.get("BENCHFARM_ARTIFACTS", ""),
        )

    @property
    def log_format(self) -> str:
        """How progress is written where no terminal is: ``text`` or ``json`` ($BENCHFARM_LOG); raises UsageError."""
        chosen = self.environ.get("BENCHFARM_LOG") or "text"
        if chosen not in {"text", "json"}:
            raise UsageError(f"BENCHFARM_LOG is {chosen!r}, neither text nor json")
        return chosen

    @property
    def token(self) -> str:
        """What others must know to read what is served, from $BENCHFARM_TOKEN; empty for none."""
        return self.environ.get("BENCHFARM_TOKEN", "")


def this_computer() -> str:
    """Return how this computer is named in the campaigns that it runs: its name, and what it is."""
    return f"{socket.gethostname()} ({platform.system()} {platform.machine()})"


class Farm:
    """The wired program: store, tools, builds, and the devices that can be reached. A context manager."""

    def __init__(self, settings: Settings, *, known: KnownPhones | None = None) -> None:
        """``known``: phones that aren't asked who they are while their connection lasts, for whoever looks often."""
        self.settings = settings
        self._known = known
        self.clock = SystemClock()
        self.cancelled = threading.Event()
        #: Told how far a push is: serial number, file, bytes sent, bytes in all.
        self.on_push: Callable[[str, str, int, int], None] = lambda serial, name, sent_bytes, size_bytes: None
        #: Attached phones that can't be used, with the reason, as of the last opening.
        self.left_out: dict[str, str] = {}
        #: How many files may be on their way to phones, and where.
        self.pushes = PushLimits()
        #: Which of the usable phones the last opening took, and why not the others; None before one by rules.
        self.choice: Choice | None = None
        #: Phones that fit the last opening's selection and weren't needed.
        self.spares: list[tuple[Device, DeviceFacts]] = []
        self._opened: list[Device] = []
        #: Programs that came with a job, used before this computer's own: by tool, and by what they replace.
        self._brought: dict[ToolName, Build] = {}
        self._brought_twins: dict[str, Build] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for device in self._opened:
            device.close()
        if "store" in self.__dict__:
            self.store.close()

    @cached_property
    def store(self) -> Store:
        """The store, opened and migrated; raises StoreError kinds."""
        from orchestrator.store.opening import open_store

        return open_store(self.settings.store)

    @cached_property
    def tools(self) -> Mapping[ToolName, Tool]:
        """The benchmark programs."""
        from orchestrator.tools.apk import ApkTool
        from orchestrator.tools.delegate_performance import DelegatePerformanceTool
        from orchestrator.tools.firebase import FirebaseTool
        from orchestrator.tools.ios_app import IosAppTool
        from orchestrator.tools.litert import LitertTool
        from orchestrator.tools.litert_native import LitertNativeTool
        from orchestrator.tools.native import NativeTool
        from orchestrator.tools.performance_options import PerformanceOptionsTool
        from orchestrator.tools.trace_recording import traced

        tools: tuple[Tool, ...] = (
            NativeTool(),
            ApkTool(),
            LitertTool(),
            PerformanceOptionsTool(),
            LitertNativeTool(),
        )
        imported: tuple[Tool, ...] = (IosAppTool(), FirebaseTool(), DelegatePerformanceTool())
        return {tool.name: tool for tool in (*(traced(tool, self._hold) for tool in tools), *imported)}

    def _hold(self, device: Device, what: str, undo: str, command: str) -> None:
        """Make a change on a device after it has been journalled."""
        from orchestrator.devices.conditioning import LadderConditioner
        from orchestrator.devices.journal import Change

        assert isinstance(self.conditioner, LadderConditioner), "the one conditioner that ships"
        self.conditioner.hold(device, Change(what=what, undo=undo), command)

    @cached_property
    def profiles(self) -> Mapping[str, DeviceProfile]:
        """The declared profiles by name, the user's own (``profiles`` in the data folder) before the shipped."""
        from orchestrator.config.profiles import load_profiles

        folders = (self.settings.data_folder / "profiles", data_folder("device_profiles"))
        return {profile.name: profile for profile in load_profiles([f for f in folders if f.is_dir()])}

    @cached_property
    def inventory(self) -> Mapping[Serial, Labels]:
        """Pools and tags of phones, as ``devices.yaml`` in the data folder says; raises PlanError."""
        from orchestrator.config.inventory import load_inventory

        return load_inventory(self.settings.data_folder / "devices.yaml")

    @cached_property
    def library(self) -> BuildLibrary:
        """The benchmark programs on this computer."""
        from orchestrator.artifacts.library import BuildLibrary
        from orchestrator.config.builds import load_builds

        folders = (self.settings.data_folder / "builds", data_folder("apk_builds"))
        return BuildLibrary(self.settings.cache_folder / "builds", load_builds([f for f in folders if f.is_dir()]))

    def build_fetcher(self, *, mirror: str = "", timeout_s: float = 1800.0, stall_s: float = 30.0) -> BuildFetcher:
        """What downloads declared builds; ``mirror`` wins over the environment's. Raises UsageError for a wrong one."""
        from orchestrator.artifacts.addresses import parse_mirror
        from orchestrator.artifacts.download import Downloader
        from orchestrator.artifacts.fetching import BuildFetcher

        downloader = Downloader(
            self.settings.cache_folder / "downloads",
            mirror=parse_mirror(mirror or self.settings.mirror),
            stall_s=stall_s,
            deadline_s=timeout_s,
        )
        return BuildFetcher(self.library, downloader)

    def model_downloader(self, *, mirror: str = "") -> Downloader:
        """What downloads models; ``mirror`` wins over the environment's. Raises UsageError for a wrong one."""
        from orchestrator.artifacts.addresses import parse_mirror
        from orchestrator.artifacts.download import Downloader

        return Downloader(self.settings.cache_folder / "downloads", mirror=parse_mirror(mirror or self.settings.mirror))

    @cached_property
    def flag_book(self) -> HelpFlagBook:
        """What is known of the flags of the benchmark programs."""
        from orchestrator.tools.flag_book import HelpFlagBook

        return HelpFlagBook(self.settings.cache_folder / "flags")

    @cached_property
    def conditioner(self) -> LadderConditioner:
        """Brings phones into a fit state and back."""
        from orchestrator.devices.conditioning import LadderConditioner
        from orchestrator.tools.apk import PACKAGE

        def zone_limits(facts: DeviceFacts) -> Mapping[str, float]:
            profile = self.profiles.get(facts.profile)
            return profile.thermal_limits_c if profile is not None else {}

        return LadderConditioner(
            self.settings.state_folder / "journals",
            zone_limits=zone_limits,
            stray_apps=(PACKAGE,),
            tuned=lambda facts: self.experiments.options(facts.serial, facts.fingerprint),
            clock=self.clock,
        )

    @cached_property
    def experiments(self) -> ExperimentBook:
        """What experiments found about phones."""
        from orchestrator.devices.experiments import ExperimentBook

        return ExperimentBook(self.settings.data_folder / "tuning")

    @cached_property
    def reference(self) -> ParityReference:
        """What models' outputs are to be."""
        from orchestrator.models.parity import HostReference

        return HostReference(self.settings.cache_folder / "parity")

    @cached_property
    def lease(self) -> Lease:
        """Exclusive holds on devices, between the processes of this computer."""
        from orchestrator.devices.lease import FileLease

        return FileLease(self.settings.state_folder / "leases")

    @cached_property
    def quarantine(self) -> QuarantineFolder:
        """The phones that are kept out until somebody has looked at them."""
        from orchestrator.devices.quarantine import QuarantineFolder

        return QuarantineFolder(self.settings.state_folder / "quarantine")

    @cached_property
    def rescuer(self) -> LadderRescuer:
        """Gets phones back that stopped answering."""
        from orchestrator.devices.recovery import LadderRescuer

        return LadderRescuer(search_path=self.settings.environ.get("PATH"))

    @property
    def lab_folder(self) -> Path:
        """Where the virtual lab and its adb server keep their state."""
        return self.settings.state_folder / "lab"

    def lab_server(self) -> AdbServer | None:
        """The adb server of the virtual lab, None when no lab is up."""
        from orchestrator.devices.server import AdbServer

        return AdbServer.adopt(self.lab_folder, usb=False)

    def _join_lab(self, server: AdbServer) -> None:
        """Connect the lab's phones that its server doesn't know: one that was started anew has forgotten all."""
        from orchestrator.devices.discovery import parse_devices
        from orchestrator.virtual.lab import read_lab

        try:
            phones = read_lab(self.lab_folder).phones
            known = {item.address for item in parse_devices(server.device_list())}
        except (DeviceError, UsageError):
            return
        for phone in phones:
            if phone.address not in known:
                # One that is booting refuses; it is announced as missing then.
                with contextlib.suppress(DeviceError):
                    server.connect_tcp(phone.address, timeout_s=_JOIN_TIMEOUT_S)

    def plugged_server(self) -> AdbServer:
        """The adb server for real phones: the configured one, a running one, or our own; AdbUnavailableError."""
        from orchestrator.devices.server import AdbServer

        return AdbServer.find_or_start(
            setting=self.settings.adb_server,
            environ=self.settings.environ,
            state_folder=self.settings.state_folder,
            adb_setting=self.settings.adb,
        )

    def running_plugged_server(self) -> AdbServer | None:
        """The adb server for real phones if one runs; None is started."""
        from orchestrator.devices.address import ServerAddress, configured_address
        from orchestrator.devices.server import AdbServer

        configured = configured_address(self.settings.adb_server, self.settings.environ)
        for server in (AdbServer(configured or ServerAddress()), AdbServer.adopt(self.settings.state_folder)):
            if server is not None and _answers(server):
                return server
        return None

    def servers(self) -> list[AdbServer]:
        """Return the adb servers that run now, each once; none is started."""
        found = {str(server.address): server for server in (self.lab_server(), self.running_plugged_server()) if server}
        return list(found.values())

    def attached(self, *, serials: Sequence[str] = (), start_server: bool = True) -> list[Attached]:
        """Return all phones of all servers, usable or not; one phone seen by two servers is usable through one.

        When every one of ``serials`` is a virtual phone, no server for real phones is looked for. Without
        ``start_server`` none is started. Raises AdbUnavailableError.
        """
        from orchestrator.devices.discovery import judge_twins, list_devices

        servers = [server for server in (self.lab_server(),) if server is not None]
        for server in servers:
            self._join_lab(server)
        listed = [(server, seen) for server in servers for seen in list_devices(server, known=self._known)]
        if not serials or not set(serials) <= {seen.serial for _, seen in listed}:
            try:
                plugged = self.plugged_server() if start_server else self.running_plugged_server()
            except AdbUnavailableError:
                # A lab needs no server for real phones.
                if not listed:
                    raise
                plugged = None
            if plugged is not None and str(plugged.address) not in {str(server.address) for server in servers}:
                listed += [(plugged, seen) for seen in list_devices(plugged, known=self._known)]
        judged = judge_twins([seen for _, seen in listed])
        attached = [Attached(server=server, seen=seen) for (server, _), seen in zip(listed, judged, strict=True)]
        # A server lists phones in the order in which they came; people look for them by name.
        return sorted(attached, key=lambda item: (item.seen.serial, item.seen.address))

    def open_devices(
        self, selection: DeviceSelection, *, despite_quarantine: bool = False
    ) -> list[tuple[Device, DeviceFacts]]:
        """Open every device that fits the selection and probe its facts, phones in parallel.

        This computer is meant by ``host`` and by the serial number ``host``. Attached phones that can't be used are
        noted in ``left_out``, unless phones are named.

        Raises:
            NoDeviceError: nothing fits, or a serial number that was named isn't attached.
            DeviceUnusableError: a phone that was named can't be used; the message says why.

        Of phones that fit and aren't needed (``one_of_each``, ``most``) ``choice`` and ``spares`` tell afterwards.
        """
        kinds = {self.profiles[name].kind for name in selection.profiles if name in self.profiles}
        if kinds == {DeviceKind.IOS} and not selection.host:
            raise NoDeviceError(
                "the selection names iPhones only, which no cable lets benchfarm start programs on",
                hint="see 'benchfarm ios export --help'",
            )
        names_host = HOST_SERIAL in selection.serials
        phones = replace(selection, serials=tuple(item for item in selection.serials if item != HOST_SERIAL))
        chosen: list[tuple[Device, DeviceFacts]] = []
        if _names_phones(phones):
            chosen += self._open_phones(phones, required=True, despite_quarantine=despite_quarantine)
        elif not names_host:
            chosen += self._open_phones(phones, required=not selection.host)
        if selection.host or names_host:
            host = self.host()
            chosen.append((host, host.facts()))
        return chosen

    def host(self) -> Device:
        """This computer as a device."""
        from orchestrator.devices.host import HostDevice

        host = HostDevice(self.settings.state_folder / "host")
        self._opened.append(host)
        return host

    def _open_phones(
        self, selection: DeviceSelection, *, required: bool, despite_quarantine: bool = False
    ) -> list[tuple[Device, DeviceFacts]]:
        # This computer alone needs no server for phones, and none is started for it.
        attached = self.attached(serials=selection.serials, start_server=required)
        if not despite_quarantine:
            attached = [self._kept_out(item) for item in attached]
        wanted = [item for item in attached if not selection.serials or item.fits(selection.serials)]
        # "Any 2 of these four" wants two, not each of them.
        if selection.most is None:
            self._require_serials(selection.serials, attached)
        usable = [item for item in wanted if item.seen.usable]
        self.left_out = {
            item.seen.serial or item.seen.address: item.seen.reason for item in wanted if not item.seen.usable
        }
        with ThreadPoolExecutor(max_workers=max(1, min(16, len(usable)))) as pool:
            opened = list(pool.map(self.open_phone, usable))
        choice = self.choice = choose(selection, [facts for _, facts in opened], self.inventory)
        self.spares = [(device, facts) for device, facts in opened if facts.serial in choice.spare]
        fitting = [(device, facts) for device, facts in opened if facts.serial in choice.chosen]
        if not fitting and required:
            what = "no attached phone fits the selection" if usable else "no usable phone is attached"
            unfit = "".join(f"\n  {serial}: {reason}" for serial, reason in choice.unfit.items())
            raise NoDeviceError(what + unfit + _reasons(attached), hint="see 'benchfarm devices'")
        return fitting

    def _kept_out(self, item: Attached) -> Attached:
        """Return the phone as one that can't be used when it is in quarantine."""
        reason = self.quarantine.reason(Serial(item.seen.serial)) if item.seen.usable else ""
        if not reason:
            return item
        advice = f"look at it, then 'benchfarm device release {item.seen.serial}'"
        seen = replace(item.seen, usable=False, reason=f"in quarantine: {reason}", advice=advice)
        return replace(item, seen=seen)

    def open_phone(self, attached: Attached) -> tuple[Device, DeviceFacts]:
        """Open one phone and probe its facts; raises DeviceError kinds."""
        from orchestrator.devices.adb import AdbDevice
        from orchestrator.devices.traffic import Lane

        def moved(name: str, sent_bytes: int, size_bytes: int) -> None:
            self.on_push(attached.seen.serial, name, sent_bytes, size_bytes)

        device = AdbDevice(
            attached.server,
            attached.seen.address,
            match_profile=self.match_profile,
            progress=moved,
            usb_path=attached.seen.usb,
        )
        self._opened.append(device)
        facts = device.facts()
        device.take_lane(Lane(self._hub_of(attached, facts), lambda: self.pushes, cancelled=self.cancelled))
        return device, facts

    def _hub_of(self, attached: Attached, facts: DeviceFacts) -> str:
        """Return what a phone shares its way to this computer with: as said in devices.yaml, else its USB hub."""
        from orchestrator.devices.traffic import hub_of

        labels = self.inventory.get(facts.serial)
        if labels is not None and labels.hub:
            return labels.hub
        usb = attached.seen.usb or (facts.properties.get(VIRTUAL_USB, "") if facts.is_virtual else "")
        hub = hub_of(usb)
        # Each server's computer has hubs of its own.
        return f"{attached.server.address} {hub}" if hub else ""

    def match_profile(self, facts: DeviceFacts) -> str:
        """Return the name of the profile that fits a phone, empty when none does."""
        from orchestrator.config.profiles import match_profile

        profile = match_profile(tuple(self.profiles.values()), facts.properties)
        return profile.name if profile is not None else ""

    def _require_serials(self, serials: Sequence[str], found: Sequence[Attached]) -> None:
        for serial in serials:
            fitting = [item for item in found if item.fits((serial,))]
            if not fitting:
                message = "is not attached" + _reasons(found)
                raise NoDeviceError(message, serial=serial, hint="'benchfarm devices' lists what is")
            if not any(item.seen.usable for item in fitting):
                seen = fitting[0].seen
                raise DeviceUnusableError(seen.reason, serial=serial, hint=seen.advice)

    def builds_for(self, plan: Plan, devices: Sequence[DeviceFacts]) -> dict[tuple[Serial, ToolName], Build | NoBuild]:
        """Find the build of every tool for every device; raises ArtifactError for one that the plan names."""
        return {
            (facts.serial, tool): self._build_for(plan.builds.get(tool, ""), facts, tool)
            for facts in devices
            for tool in tools_for(plan, facts.kind)
        }

    def _build_for(self, named: str, facts: DeviceFacts, tool: ToolName) -> Build | NoBuild:
        if tool is ToolName.LITERT and facts.kind is DeviceKind.HOST:
            return litert_build()
        if tool in self._brought:
            self.library.check_for(self._brought[tool], facts)
            return self._brought[tool]
        if tool in IMPORTED_TOOLS:
            return NoBuild(reason_code="tool-not-on-device", reason=f"benchfarm doesn't start '{tool}'")
        if facts.is_virtual and not named and tool is not ToolName.LITERT:
            return stand_in_build(self.settings.cache_folder / "stand-ins", tool, facts.abis[0])
        try:
            return self.library.resolve_for(facts, tool, name_or_path=named)
        except ArtifactError as error:
            if named:
                raise
            return NoBuild(reason_code="no-build", reason=str(error) + (f" ({error.hint})" if error.hint else ""))

    def bring(self, builds: Sequence[Build], twins: Mapping[str, Build]) -> None:
        """Use these programs before this computer's own; ``twins`` (with Flex) by the sha256 of what they replace."""
        self._brought = {build.tool: build for build in builds}
        self._brought_twins = dict(twins)

    def flex_builds(self, builds: Sequence[Build]) -> dict[str, Build]:
        """Return the build with TensorFlow's operators (Flex) of each build that has one on this computer."""
        twins = {build.sha256: self._flex_twin(build) for build in builds if build.tool in _WITH_FLEX}
        return {sha256: twin for sha256, twin in twins.items() if twin is not None and twin.sha256 != sha256}

    def _flex_twin(self, build: Build) -> Build | None:
        if build.sha256 in {brought.sha256 for brought in self._brought.values()}:
            # As on the computer that sent it: this one's own would be another program.
            return self._brought_twins.get(build.sha256)
        if build.is_virtual:
            return stand_in_build(
                self.settings.cache_folder / "stand-ins", build.tool, build.abi.split(",")[0], has_flex=True
            )
        for spec in self.library.specs:
            if spec.tool is build.tool and spec.variant == "plus_flex" and spec.abi in build.abi.split(","):
                try:
                    return self.library.resolve(build.tool, spec.abi, name_or_path=spec.name)
                except ArtifactError:
                    return None
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """A phone as one adb server sees it."""

    server: AdbServer
    seen: Seen

    def fits(self, serials: Sequence[str]) -> bool:
        """Whether one of these names the phone: its serial number or the server's name for it."""
        return self.seen.serial in serials or self.seen.address in serials


def _reasons(attached: Sequence[Attached]) -> str:
    """Say of every phone that can't be used why: the one that is missed may be among them."""
    return "".join(f"\n  {item.seen.address}: {item.seen.reason}" for item in attached if not item.seen.usable)


def _names_phones(selection: DeviceSelection) -> bool:
    return bool(selection.serials or selection.profiles or selection.pools or selection.tags or selection.where)


def litert_build() -> Build:
    """Return the installed litert-benchmark, known by the hashes of its package's files."""
    from importlib.metadata import distribution

    from orchestrator.tools.litert import program_path

    package = distribution("ai-edge-litert")
    record = package.read_text("RECORD") or package.version
    return Build(
        name=f"ai-edge-litert {package.version}",
        tool=ToolName.LITERT,
        sha256=BuildSha(hashlib.sha256(record.encode()).hexdigest()),
        abi=platform.machine(),
        version=package.version,
        path=program_path(),
    )


def stand_in_build(folder: Path, tool: ToolName, abi: str, *, has_flex: bool = False) -> Build:
    """Return the stand-in for a program that virtual phones can run, written to ``folder`` when it isn't there.

    The libraries that the real program needs beside it for a DSP or an NPU come with it.
    """
    from orchestrator.virtual import samples

    if tool is ToolName.APK:
        name = "benchmark_model_plus_flex.apk" if has_flex else "benchmark_model.apk"
        content = samples.benchmark_apk(abis=(abi,), flex=has_flex)
    else:
        name = "benchmark_model_plus_flex" if has_flex else _STAND_INS[tool]
        content = samples.benchmark_elf(name, abi)
    sha256 = hashlib.sha256(content).hexdigest()
    names = {ToolName.LITERT_NATIVE: samples.NPU_LIBRARIES, ToolName.APK: ()}.get(tool, samples.HEXAGON_LIBRARIES)
    libraries = {library: samples.library_elf(library, abi) for library in names}
    return Build(
        name=f"virtual {name}",
        tool=tool,
        sha256=BuildSha(sha256),
        abi=abi,
        version="virtual",
        package=samples.BENCHMARK_PACKAGE if tool is ToolName.APK else "",
        is_virtual=True,
        path=_kept(folder / sha256[:16] / name, content),
        companions=tuple(
            Companion(
                name=library,
                sha256=hashlib.sha256(data).hexdigest(),
                path=_kept(folder / hashlib.sha256(data).hexdigest()[:16] / library, data),
            )
            for library, data in libraries.items()
        ),
    )


def _kept(path: Path, content: bytes) -> Path:
    """Write a file unless it is there, and return its path."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
        draft.write_bytes(content)
        draft.replace(path)
    return path


def _answers(server: AdbServer) -> bool:
    try:
        server.version()
    except DeviceError:
        return False
    return True
