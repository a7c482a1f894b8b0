"""The one place that wires a process: every adapter of the ports, made from the settings when it is
first used.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from orchestrator.clock import Deadline, SystemClock
from orchestrator.engine.events import DeviceNote, Notice
from orchestrator.errors import CampaignInUseError, StoreMissingError, UsageError
from orchestrator.installation import data_folder
from orchestrator.programs import program
from orchestrator.records.case import CampaignId, Pass, Serial, ToolName
from orchestrator.records.device import DeviceFacts, DeviceProfile, Labels
from orchestrator.settings import Settings
from orchestrator.store import IN_MEMORY

if TYPE_CHECKING:
    from orchestrator.app.choice import BuildChoice
    from orchestrator.artifacts.fetch import Downloader
    from orchestrator.artifacts.library import BuildLibrary
    from orchestrator.config.declarations import LiveInventory
    from orchestrator.devices.adb_server import AdbServer, PrivateAdbServer
    from orchestrator.devices.conditioning import Conditioner
    from orchestrator.devices.discovery import PhoneCache
    from orchestrator.devices.lease import FileLease, QuarantineFolder
    from orchestrator.devices.rescue import HubPower, Rescuer
    from orchestrator.passes.specification import Hold, RunProgram
    from orchestrator.ports import Device, Observer, ParityReference, Tool
    from orchestrator.processes import Locks
    from orchestrator.programs.flags import FlagBook
    from orchestrator.records.build_spec import BuildSpec
    from orchestrator.records.campaign import Campaign
    from orchestrator.store.opening import Store


class _Tools(dict[ToolName, "Tool"]):
    """The benchmark programs, each made when it is first used."""

    def __missing__(self, name: ToolName) -> Tool:
        return self.setdefault(name, program(name).tool())


class Workspace:
    """The store, the benchmark programs, and the adapters for devices.

    A context manager. `orchestrator.app.attached` finds and opens its devices.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        store: Store | None = None,
        makes_store: bool = True,
        needs_store: bool = True,
        observer: Observer | None = None,
    ) -> None:
        """Open nothing yet.

        ``store``: a shared one, instead of its own. ``makes_store``: create a missing store; not
        for readers. ``needs_store``: else a missing named store is an error.

        ``observer``: gets the events of use cases.
        """
        self.settings = settings
        self._lent_store = self._store = store
        self._makes_store, self._needs_store = makes_store, needs_store
        #: Held while the store is opened.
        self._opening = threading.Lock()
        self.observer: Observer = observer or _NullObserver()
        self.clock = SystemClock()
        self.cancelled = threading.Event()
        #: For a process that polls often: phones that aren't asked again while their connection
        #: lasts. For one that runs for long: an inventory that outlives faults of its file.
        self.known_phones: PhoneCache | None = None
        self.live_inventory: LiveInventory | None = None
        #: Gets what opened phones report themselves: transfers, and being offline.
        self.phone_observer: Observer = _NullObserver()
        #: Called with declared programs that are needed and missing here; it may download them.
        self.on_missing: Callable[[Sequence[BuildSpec]], None] = lambda specs: None
        #: Callbacks to run before devices and store are closed.
        self.at_exit = contextlib.ExitStack()
        #: The deadline of all waiting for phones that others use.
        self.wait = Deadline(0.0)
        #: Changes on this computer that were undone before phones were searched, by serial number.
        self.powered_on: defaultdict[Serial, list[str]] = defaultdict(list)
        #: The opened devices, which are closed at the end.
        self.opened: list[Device] = []
        self._held_campaigns: set[CampaignId] = set()
        #: The present or last measured campaign; empty for none.
        self.measured = CampaignId("")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.at_exit.close()
        self.lease.end_reservations()
        for device in self.opened:
            device.close()
        self.close_store()

    def note(self, serial: str, text: str) -> None:
        """Report something of a phone to the observer."""
        self.observer.on_event(DeviceNote(serial=Serial(serial), text=text, is_problem=True))

    def notice(self, event: str, text: str, **more: Any) -> None:  # noqa: ANN401 - fields of the event
        """Report something else to the observer; ``more`` are fields of Notice."""
        self.observer.on_event(Notice(event=event, text=text, **more))

    @property
    def store(self) -> Store:
        """The store, opened; raises StoreError kinds and StoreMissingError."""
        from orchestrator.store.opening import MemoryStore, open_store

        with self._opening:
            if self._store is None:
                try:
                    self._store = open_store(self.settings.store, makes_new=self._makes_store)
                except StoreMissingError:
                    if self._needs_store and not self.settings.is_default_store:
                        raise
                    self._store = MemoryStore(self.settings.store_title)
            return self._store

    def close_store(self) -> None:
        """Close the store if it was opened here."""
        if self._store is not None and self._lent_store is None:
            self._store.close()

    @cached_property
    def tools(self) -> Mapping[ToolName, Tool]:
        """The benchmark programs."""
        return _Tools()

    @cached_property
    def runner_of(self) -> Callable[[Pass], RunProgram]:
        """Returns the runner of a pass's program, created when it is first needed.

        Raises UsageError for an unknown pass.
        """
        from orchestrator.passes import pass_of

        return functools.cache(lambda name: pass_of(name).runner(self))

    def folder(self, name: str) -> Path:
        """See PassServices.folder."""
        return self.settings.data_folder / name

    @property
    def hold(self) -> Hold:
        """What changes something on a phone, after it has written it down."""
        return self.conditioner.hold

    @cached_property
    def profiles(self) -> Mapping[str, DeviceProfile]:
        """The declared profiles by name, the user's own (``profiles`` in the data folder) before
        the shipped.
        """
        from orchestrator.config.declarations import load_profiles

        folders = (self.settings.data_folder / "profiles", data_folder("device_profiles"))
        return {profile.name: profile for profile in load_profiles(folders)}

    @cached_property
    def inventory(self) -> Mapping[Serial, Labels]:
        """Pools and tags of phones, as ``devices.yaml`` in the data folder says.

        Raises PlanError.
        """
        from orchestrator.config.declarations import load_inventory

        return (
            load_inventory(self.inventory_file)
            if self.live_inventory is None
            else self.live_inventory.read()
        )

    @property
    def inventory_file(self) -> Path:
        """Where this computer says what its phones are for; it may be missing."""
        return self.settings.data_folder / "devices.yaml"

    @cached_property
    def library(self) -> BuildLibrary:
        """The benchmark programs on this computer."""
        from orchestrator.artifacts.library import BuildLibrary
        from orchestrator.config.declarations import load_builds

        folders = (self.settings.data_folder / "builds", data_folder("apk_builds"))
        return BuildLibrary(self.settings.cache_folder / "builds", load_builds(folders))

    def downloader(self) -> Downloader:
        """What downloads files; raises UsageError for a wrong mirror."""
        from orchestrator.artifacts.fetch import Downloader

        folder = self.settings.cache_folder / "downloads"
        return Downloader(folder, mirror=self.settings.mirror)

    @cached_property
    def flag_book(self) -> FlagBook:
        """What is known of the flags of the benchmark programs."""
        from orchestrator.programs.flags import FlagBook

        return FlagBook(self.settings.cache_folder / "flags")

    @cached_property
    def conditioner(self) -> Conditioner:
        """Brings phones into a fit state and back."""
        from orchestrator.devices.conditioning import Conditioner

        def zone_limits(facts: DeviceFacts) -> Mapping[str, float]:
            profile = self.profiles.get(facts.profile) if facts.profile else None
            return profile.thermal_limits_c if profile is not None else {}

        return Conditioner(
            self.settings.state_folder / "journals",
            zone_limits=zone_limits,
            clock=self.clock,
            power=self.hub_power,
        )

    @cached_property
    def reference(self) -> ParityReference:
        """The expected outputs of models."""
        from orchestrator.models.parity import HostReference

        return HostReference(self.settings.cache_folder / "parity", self.cancelled)

    def unrestored_phones(self) -> list[Serial]:
        """Return the phones that a benchfarm process left changed. Phones in use don't count: they
        are changed on purpose.
        """
        return [
            serial for serial in self.conditioner.unrestored() if not self.lease.live_holder(serial)
        ]

    @cached_property
    def lease(self) -> FileLease:
        """Exclusive holds on devices, between the processes of this computer."""
        from orchestrator.devices.lease import FileLease

        return FileLease(self.settings.state_folder / "leases")

    @cached_property
    def campaigns(self) -> Locks:
        """Exclusive holds on campaigns that are measured, between the processes of this computer.

        They are beside a store that is a file: another home may have the same store.
        """
        from orchestrator.processes import Locks

        file = None if self.settings.store == IN_MEMORY else self.settings.store_file
        if file is None:
            return Locks(self.settings.state_folder / "campaigns")
        return Locks(file.resolve().with_name(f"{file.resolve().name}-campaigns"))

    @cached_property
    def quarantine(self) -> QuarantineFolder:
        """The phones in quarantine, until they are released."""
        from orchestrator.devices.lease import QuarantineFolder

        return QuarantineFolder(self.settings.state_folder / "quarantine")

    @cached_property
    def rescuer(self) -> Rescuer:
        """Recovers unreachable phones."""
        from orchestrator.devices.rescue import Rescuer

        return Rescuer(self.hub_power)

    @cached_property
    def hub_power(self) -> HubPower:
        """Switches the ports of USB hubs."""
        from orchestrator.devices.quiet import UndoJournal
        from orchestrator.devices.rescue import HubPower

        journal = UndoJournal(self.settings.state_folder / "journals")
        return HubPower(journal, search_path=self.settings.environ.get("PATH"))

    def profile_of(self, properties: Mapping[str, str]) -> DeviceProfile | None:
        """Return the profile that fits a device with these properties, None when none does."""
        from orchestrator.config.declarations import match_profile

        return match_profile(tuple(self.profiles.values()), properties)

    def match_profile(self, facts: DeviceFacts) -> str:
        """Return the name of the profile that fits a phone, empty when none does."""
        profile = self.profile_of(facts.properties)
        return profile.name if profile is not None else ""

    @cached_property
    def builds(self) -> BuildChoice:
        """Which builds devices are measured with."""
        from orchestrator.app.choice import BuildChoice

        return BuildChoice(
            lambda: self.library,
            self.settings.cache_folder / "fake-binaries",
            hint=functools.partial(self.notice, "hint"),
        )

    @property
    def status_folder(self) -> Path:
        """The folder in which this computer's processes publish the status of their campaigns."""
        return self.settings.state_folder / "status"

    def hold_campaign(self, campaign: Campaign) -> None:
        """Hold a campaign for this process until the workspace is closed.

        Raises CampaignInUseError naming the process that has it, HostStorageError.
        """
        campaign_id = campaign.campaign_id
        if campaign_id not in self._held_campaigns:
            release = self.campaigns.take(campaign_id)
            if release is None:
                holder = self.campaigns.live_holder(campaign_id) or "another process"
                raise CampaignInUseError(
                    f"campaign {campaign_id} ({campaign.name}) is run by {holder} now",
                    hint="'benchfarm status --watch' shows its progress; stop that process first",
                )
            self._held_campaigns.add(campaign_id)
            self.at_exit.callback(release)

    def virtual_server(self, *, revive: bool = False) -> AdbServer | None:
        """The adb server of the virtual phones, None when none are up; ``revive`` starts one that
        died before them.
        """
        # Without the file of one of its processes no lab is up, and nothing of it is imported.
        folder = self.settings.virtual_folder
        if not any((item / "virtual.json").exists() for item in (folder, *folder.glob("more-*"))):
            return None
        from orchestrator.app.virtual_phones import adb_server, labs

        server = adb_server(self.settings)
        if revive and not server.answers():
            with contextlib.suppress(UsageError):
                labs(self.settings)
                server.revive()
        return server if server.answers() else None

    def plugged_server(self) -> AdbServer:
        """The adb server for real phones: the configured one, a running one, or our own.

        AdbUnavailableError.
        """
        server = self.running_plugged_server()
        if server is None:
            server = self.named_server() or self.own_server()
            server.revive()
            server.version()
        return server

    def own_server(self) -> PrivateAdbServer:
        """Our own adb server for real phones, whether it runs or not."""
        from orchestrator.devices.adb_server import PrivateAdbServer

        settings = self.settings
        return PrivateAdbServer(
            settings.state_folder, setting=settings.adb, environ=settings.environ
        )

    def named_server(self) -> AdbServer | None:
        """The adb server for real phones that the user names, whether it answers or not.

        Raises UsageError.
        """
        from orchestrator.devices.adb_server import AdbServer, configured_address

        address = configured_address(self.settings.adb_server, self.settings.environ)
        return None if address is None else AdbServer(address)

    def running_plugged_server(self) -> AdbServer | None:
        """The adb server for real phones if one runs; None is started."""
        from orchestrator.devices.adb_server import AdbServer

        configured = self.named_server()
        candidates = [AdbServer(), self.own_server()] if configured is None else [configured]
        return next((server for server in candidates if server.answers()), None)

    def host(self) -> Device:
        """This computer as a device."""
        from orchestrator.devices.host import HostDevice

        host = HostDevice(self.settings.state_folder / "host")
        self.opened.append(host)
        return host


class _NullObserver:
    """An observer that ignores all events."""

    def on_event(self, event: object) -> None:
        """Ignore an event."""
