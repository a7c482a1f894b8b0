"""The adapters behind the ports, each made from the settings when it is first asked for."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bootstrap.settings import Settings
from orchestrator.clock import SystemClock
from orchestrator.errors import StoreMissingError
from orchestrator.installation import data_folder
from orchestrator.records.case import Pass, Serial, ToolName
from orchestrator.records.device import DeviceFacts, DeviceProfile

if TYPE_CHECKING:
    from orchestrator.artifacts.fetch import BuildFetcher, Downloader
    from orchestrator.artifacts.library import BuildLibrary
    from orchestrator.config.profiles import KeptInventory, Labels
    from orchestrator.devices.conditioning import LadderConditioner
    from orchestrator.devices.lease import FileLease, QuarantineFolder
    from orchestrator.devices.rescue import HubPower, LadderRescuer
    from orchestrator.locks import Locks
    from orchestrator.passes.specification import RunProgram
    from orchestrator.ports import Device, ParityReference, Tool
    from orchestrator.programs.flags import FlagBook
    from orchestrator.store.opening import Store


class _Tools(Mapping[ToolName, "Tool"]):
    """All benchmark programs, each made when it is asked for."""

    def __init__(self, made: Callable[[ToolName], Tool]) -> None:
        self._made = functools.cache(made)

    def __getitem__(self, name: ToolName) -> Tool:
        return self._made(name)

    def __iter__(self) -> Iterator[ToolName]:
        return iter(ToolName)

    def __len__(self) -> int:
        return len(ToolName)


class Adapters:
    """The store, the benchmark programs, and what knows about devices."""

    def __init__(self, settings: Settings) -> None:
        """Make nothing yet."""
        self.settings = settings
        #: Whether a store is made where there is none, and else missed; see `Workspace`.
        self._makes_store = self._needs_store = True
        self._inventory: KeptInventory | None = None
        self._lent_store: Store | None = None
        self._store: Store | None = None
        #: Held while the store is opened.
        self._opening = threading.Lock()
        self.clock = SystemClock()

    @property
    def store(self) -> Store:
        """The store, opened; raises StoreError kinds and StoreMissingError."""
        from orchestrator.store.opening import MemoryStore, open_store

        with self._opening:
            if self._store is None:
                try:
                    self._store = open_store(self.settings.store, makes_new=self._makes_store)
                except StoreMissingError:
                    if self.settings.is_default_store:
                        self._store = MemoryStore(self.settings.store)
                    elif self._needs_store:
                        raise
                    else:
                        self._store = MemoryStore()
            return self._store

    def close_store(self) -> None:
        """Close the store if it was opened here."""
        if self._store is not None and self._lent_store is None:
            self._store.close()

    @cached_property
    def tools(self) -> Mapping[ToolName, Tool]:
        """The benchmark programs."""
        from orchestrator.programs import program

        return _Tools(lambda name: program(name).tool())

    @cached_property
    def runner_of(self) -> Callable[[Pass], RunProgram]:
        """What runs a program in a pass, each made when it is asked for.

        Raises UsageError for an unknown pass.
        """
        from orchestrator.passes import pass_of

        return functools.cache(lambda name: pass_of(name).runner(self))

    def folder(self, name: str) -> Path:
        """See PassServices.folder."""
        return self.settings.data_folder / name

    def hold(
        self, device: Device, what: str, undo: str, command: str, *, read: str = "", was: str = ""
    ) -> None:
        """Make a change on a device after it has been journalled."""
        from orchestrator.devices.journal import Change

        self.conditioner.hold(device, Change(what=what, undo=undo, read=read, was=was), command)

    @cached_property
    def profiles(self) -> Mapping[str, DeviceProfile]:
        """The declared profiles by name, the user's own (``profiles`` in the data folder) before
        the shipped.
        """
        from orchestrator.config.profiles import load_profiles

        folders = (self.settings.data_folder / "profiles", data_folder("device_profiles"))
        return {
            profile.name: profile for profile in load_profiles([f for f in folders if f.is_dir()])
        }

    @cached_property
    def inventory(self) -> Mapping[Serial, Labels]:
        """Pools and tags of phones, as ``devices.yaml`` in the data folder says.

        Raises PlanError.
        """
        from orchestrator.config.profiles import load_inventory

        return (
            load_inventory(self.inventory_file)
            if self._inventory is None
            else self._inventory.read()
        )

    @property
    def inventory_file(self) -> Path:
        """Where this computer says what its phones are for; it may be missing."""
        return self.settings.data_folder / "devices.yaml"

    @cached_property
    def library(self) -> BuildLibrary:
        """The benchmark programs on this computer."""
        from orchestrator.artifacts.library import BuildLibrary
        from orchestrator.config.builds import load_builds

        folders = (self.settings.data_folder / "builds", data_folder("apk_builds"))
        return BuildLibrary(
            self.settings.cache_folder / "builds", load_builds([f for f in folders if f.is_dir()])
        )

    def build_fetcher(self) -> BuildFetcher:
        """What downloads declared builds; raises UsageError for a wrong mirror."""
        from orchestrator.artifacts.fetch import BuildFetcher

        return BuildFetcher(self.library, self.downloader())

    def downloader(self) -> Downloader:
        """What downloads files; raises UsageError for a wrong mirror."""
        from orchestrator.artifacts.fetch import Downloader, parse_mirror

        named = parse_mirror(self.settings.mirror)
        folder = self.settings.cache_folder / "downloads"
        return Downloader(folder, mirror=named)

    @cached_property
    def flag_book(self) -> FlagBook:
        """What is known of the flags of the benchmark programs."""
        from orchestrator.programs.flags import FlagBook

        return FlagBook(self.settings.cache_folder / "flags")

    @cached_property
    def conditioner(self) -> LadderConditioner:
        """Brings phones into a fit state and back."""
        from orchestrator.devices.conditioning import LadderConditioner
        from orchestrator.programs.apk import PACKAGE

        def zone_limits(facts: DeviceFacts) -> Mapping[str, float]:
            profile = self.profiles.get(facts.profile)
            return profile.thermal_limits_c if profile is not None else {}

        return LadderConditioner(
            self.settings.state_folder / "journals",
            zone_limits=zone_limits,
            stray_apps=(PACKAGE,),
            clock=self.clock,
            power=self.hub_power,
        )

    @cached_property
    def reference(self) -> ParityReference:
        """What models' outputs are to be."""
        from orchestrator.models.parity import HostReference

        return HostReference(self.settings.cache_folder / "parity")

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
        from orchestrator.locks import Locks
        from orchestrator.store.opening import IN_MEMORY, locate

        place = None if self.settings.store == IN_MEMORY else locate(self.settings.store)
        if not isinstance(place, Path):
            return Locks(self.settings.state_folder / "campaigns")
        file = place.resolve()
        return Locks(file.with_name(f"{file.name}-campaigns"))

    @cached_property
    def quarantine(self) -> QuarantineFolder:
        """The phones that are kept out until somebody has looked at them."""
        from orchestrator.devices.lease import QuarantineFolder

        return QuarantineFolder(self.settings.state_folder / "quarantine")

    @cached_property
    def rescuer(self) -> LadderRescuer:
        """Gets phones back that stopped answering."""
        from orchestrator.devices.rescue import LadderRescuer

        return LadderRescuer(self.hub_power)

    @cached_property
    def hub_power(self) -> HubPower:
        """Switches the ports of USB hubs."""
        from orchestrator.devices.journal import UndoJournal
        from orchestrator.devices.rescue import HubPower

        journal = UndoJournal(self.settings.state_folder / "journals")
        return HubPower(journal, search_path=self.settings.environ.get("PATH"))

    def profile_of(self, properties: Mapping[str, str]) -> DeviceProfile | None:
        """Return the profile that fits a device with these properties, None when none does."""
        from orchestrator.config.profiles import match_profile

        return match_profile(tuple(self.profiles.values()), properties)

    def match_profile(self, facts: DeviceFacts) -> str:
        """Return the name of the profile that fits a phone, empty when none does."""
        profile = self.profile_of(facts.properties)
        return profile.name if profile is not None else ""
