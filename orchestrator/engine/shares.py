"""What equal phones share: each invocation is one phone's at any moment, and another's once that is stored."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from orchestrator.engine.roster import Roster
from orchestrator.errors import InterruptedByUserError
from orchestrator.planning.shards import moved
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.identity import CaseKey, Serial
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.workload import Pass

#: How often a phone that waits for the others' last invocations looks whether all was cancelled.
_LOOK_S: Final = 0.5
_Key = tuple[CaseKey, Pass, int]


class Shares:
    """Hands out the shared invocations of a campaign.

    A phone runs its own first. Then it takes over from the equal phone that has most left, so that none waits beside
    work and what a lost phone left is measured. It ends when its group has nothing left: while another one's
    last invocation runs it waits, because that one may be lost.
    """

    def __init__(self, roster: Roster, runs: Iterable[RunRecord], *, cancelled: threading.Event) -> None:
        """``runs`` are the campaign's stored ones."""
        self._roster = roster
        self._cancelled = cancelled
        self._changed = threading.Condition()
        done = {_key_of(run) for run in runs if run.outcome is not Outcome.UNFIT}
        self._open: dict[Serial, list[Invocation]] = {}
        for item in roster.campaign.invocations:
            if item.case.shard and _key(item) not in done:
                self._open.setdefault(item.case.serial, []).append(item)
        self._running: dict[Serial, Invocation] = {}

    def has_work_for(self, serial: Serial) -> bool:
        """Whether a phone's group has anything left."""
        with self._changed:
            return any(self._open.get(other) for other in self._group(serial))

    def begin(self, serial: Serial) -> Invocation | None:
        """Return what a phone is to run next, None when its group has nothing left; :meth:`end` must follow.

        Raises InterruptedByUserError, StoreError.
        """
        with self._changed:
            while True:
                if self._cancelled.is_set():
                    raise InterruptedByUserError
                if not self._open.get(serial):
                    self._take_over(serial)
                if own := self._open.get(serial):
                    self._running[serial] = own.pop(0)
                    return self._running[serial]
                if not any(other in self._running for other in self._group(serial)):
                    return None
                self._changed.wait(_LOOK_S)

    def end(self, serial: Serial, *, is_done: bool) -> None:
        """Say what became of what a phone was given: when it isn't done it is open again, for this phone or another."""
        with self._changed:
            item = self._running.pop(serial)
            if not is_done:
                self._open.setdefault(serial, []).append(item)
            self._changed.notify_all()

    def _group(self, serial: Serial) -> tuple[Serial, ...]:
        shards = self._roster.campaign.terms.shards
        return next((shard.serials for shard in shards if serial in shard.serials), ())

    def _take_over(self, serial: Serial) -> None:
        """Give a phone half of what the equal phone has left that has most, the half that it would come to last.

        Half, so that a phone's whole queue moves in a few steps, each of which is stored.
        """
        others = [other for other in self._group(serial) if other != serial and self._open.get(other)]
        if not others:
            return
        source = max(others, key=lambda other: (len(self._open[other]), other))
        count = (len(self._open[source]) + 1) // 2
        items = self._open[source][-count:]
        owners = {_key(item): serial for item in items}
        self._roster.amend(lambda campaign: with_moved(campaign, owners))
        del self._open[source][-count:]
        self._open.setdefault(serial, []).extend(moved(item, serial) for item in items)


def with_moved(campaign: Campaign, owners: Mapping[_Key, Serial]) -> Campaign:
    """Return the campaign with some invocations as other phones'."""
    return replace(
        campaign,
        invocations=tuple(
            moved(item, owners[_key(item)]) if _key(item) in owners else item for item in campaign.invocations
        ),
    )


def _key(item: Invocation) -> _Key:
    return item.case.case_key, item.run_pass, item.number


def _key_of(run: RunRecord) -> _Key:
    return run.case.case_key, run.run_pass, run.invocation
