"""A campaign as it stands while devices join it and its work moves: stored first, then acted upon."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from orchestrator.ports import Store
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceFacts
from orchestrator.records.workload import Build, Model


class Roster:
    """Holds the campaign as it is stored; may be used from all devices' threads."""

    def __init__(self, campaign: Campaign, store: Store) -> None:
        self._campaign = campaign
        self._store = store
        self._lock = threading.Lock()

    @property
    def campaign(self) -> Campaign:
        """The campaign as it is now."""
        return self._campaign

    def amend(
        self,
        change: Callable[[Campaign], Campaign],
        *,
        devices: Iterable[DeviceFacts] = (),
        models: Iterable[Model] = (),
        builds: Iterable[Build] = (),
    ) -> Campaign:
        """Change the campaign's terms, invocations or skips and return it; nothing is changed when storing it fails.

        Raises StoreError.
        """
        with self._lock:
            amended = change(self._campaign)
            if amended != self._campaign:
                self._store.amend_campaign(amended, devices=list(devices), models=list(models), builds=list(builds))
                self._campaign = amended
            return amended
