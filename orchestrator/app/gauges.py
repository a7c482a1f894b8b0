"""The numbers of ``/metrics``: from the store, the farm's queue, this host's phones and this process."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from orchestrator import __version__
from orchestrator.app.farm_now import tonight
from orchestrator.app.progress import COUNTS
from orchestrator.bootstrap import Farm
from orchestrator.errors import BenchfarmError
from orchestrator.records.device import DeviceState
from orchestrator.records.history import ConfirmationStatus
from orchestrator.records.run import Outcome
from orchestrator.serve.metrics import Family

if TYPE_CHECKING:
    from orchestrator.queueing.database import QueueDatabase

#: Runs are counted of the campaigns begun in so many hours.
HOURS: Final = 24
#: So long a source may take. Prometheus waits 10 s by default for all, and takes an answer that comes later for none.
_ANSWER_S: Final = 5.0


class Numbers:
    """Reads everything again each time that it is asked; what can't be read is told as such, and the rest stays.

    May be used by several threads.
    """

    def __init__(
        self, farm: Farm, queue: QueueDatabase | None, *, is_of_host: bool = False, answer_s: float = _ANSWER_S
    ) -> None:
        """``is_of_host``: of this host and process alone; what hosts share is counted in one place, not by each.

        ``answer_s`` is how long all that may hang is waited for.
        """
        self._farm = farm
        self._queue = queue
        self._answer_s = answer_s
        #: What the last reading of the history was of, and what it came to.
        self._changed: tuple[object, list[Family]] = (None, [])
        self._far = {}
        if not is_of_host:
            self._far = {"store": _Source("store", self._of_store), "history": _Source("history", self._of_history)}
        if queue is not None:
            self._far["queue"] = _Source("queue", self._of_queue)

    def families(self) -> list[Family]:
        """Return all numbers."""
        begin_s = time.monotonic()
        found = [Family(name="benchfarm_info", about="Version.", labels=("version",), samples=[((__version__,), 1.0)])]
        up: list[tuple[tuple[str, ...], float]] = []
        awaited = {name: source.begin() for name, source in self._far.items()}

        def of(name: str) -> list[Family]:
            left_s = begin_s + self._answer_s - time.monotonic()
            return awaited[name].result(timeout=max(0.0, left_s)) if name in awaited else self._of_host()

        for name in ("host", *awaited):
            try:
                found += of(name)
                up.append(((name,), 1.0))
            except (BenchfarmError, TimeoutError):
                up.append(((name,), 0.0))
        found.append(
            Family(name="benchfarm_up", about="1 when a source could be read.", labels=("source",), samples=up)
        )
        took_s = time.monotonic() - begin_s
        return [*found, _single("benchfarm_scrape_seconds", "What reading all this took.", took_s)]

    def _of_store(self) -> list[Family]:
        farm = self._farm
        now = farm.clock.now()
        activity = farm.store.activity(now - timedelta(hours=HOURS))
        finished = [((name,), moment.timestamp()) for name, moment in sorted(activity.finished_at.items())]
        runs = [((str(item.outcome), "virtual" if item.is_virtual else "real"), item.count) for item in activity.runs]
        failures = [
            ((item.reason_code, str(item.outcome), "virtual" if item.is_virtual else "real"), item.count)
            for item in activity.runs
            if item.outcome is not Outcome.COMPLETED
        ]
        night = tonight(farm.store, now, farm.store.progress(only_open=True))
        late = f"of campaigns begun in the last {HOURS} hours"
        newest = {
            str(run.case.serial): state for run in activity.newest if (state := run.state_after or run.state_before)
        }
        return [
            Family(
                name="benchfarm_campaigns",
                about="Campaigns stored.",
                labels=("status",),
                samples=[((str(status),), count) for status, count in activity.campaigns.items()],
            ),
            Family(
                name="benchfarm_campaign_finished_timestamp_seconds",
                about="When the last campaign of a name was finished; time() minus it is its age.",
                labels=("campaign",),
                samples=finished,
            ),
            Family(
                name="benchfarm_recent_invocations",
                about=f"Invocations {late}, by how they ended.",
                labels=("outcome", "phones"),
                samples=_summed(runs),
            ),
            Family(
                name="benchfarm_recent_failures",
                about=f"Invocations without a result {late}, by reason.",
                labels=("code", "outcome", "phones"),
                samples=_summed(failures),
            ),
            Family(
                name="benchfarm_night_invocations",
                about="Invocations of the campaigns begun since noon.",
                labels=("state",),
                samples=[
                    (("with_result",), night.stored - night.without_result),
                    (("without_result",), night.without_result),
                    (("left",), night.left),
                ],
            ),
            *_of_states("benchfarm_phone", f"after the last invocation {late}", newest),
        ]

    def _of_history(self) -> list[Family]:
        """Return how many series changed, read again only after a campaign, a rerun or an annotation."""
        store = self._farm.store
        newest = [(item.campaign_id, item.status) for item in store.campaigns(limit=1)]
        read_of = newest, store.campaign_count(), store.hidden_campaigns(), store.annotations(), store.confirmations()
        if self._changed[0] != read_of:
            from orchestrator.engine.history import Question, find_regressions

            news = [change for change in find_regressions(store, Question()).changes if not change.expected]
            counts = Counter(("slower" if change.ratio > 1 else "faster", str(change.status)) for change in news)
            samples = [
                ((direction, str(status)), float(counts[direction, str(status)]))
                for direction in ("slower", "faster")
                for status in ConfirmationStatus
            ]
            family = Family(
                name="benchfarm_changed_series",
                about="Series with an unexpected change within the last 14 nights.",
                labels=("direction", "status"),
                samples=samples,
            )
            self._changed = (read_of, [family])
        return self._changed[1]

    def _of_host(self) -> list[Family]:
        kept_out = self._farm.quarantine.serials()
        changed = self._farm.conditioner.unrestored()
        runs = [(key, float(count)) for key, count in sorted(COUNTS.runs.items())]
        return [
            _single("benchfarm_host_quarantined_phones", "Phones of this host in quarantine.", len(list(kept_out))),
            _single(
                "benchfarm_host_unrestored_phones", "Phones with a change to be undone by this host.", len(changed)
            ),
            Family(
                name="benchfarm_process_invocations",
                about="Invocations that this process stored, by how they ended.",
                kind="counter",
                labels=("outcome", "code"),
                samples=runs,
            ),
            *_of_states("benchfarm_process_phone", "when this process last looked", COUNTS.states),
        ]

    def _of_queue(self) -> list[Family]:
        from orchestrator.queueing.overview import read_numbers

        assert self._queue is not None, "asked for only when there is one"
        numbers = read_numbers(self._queue)
        states: dict[str, str] = {}
        for phone in numbers.phones:
            states[phone["serial"]] = min(phone["state"], states.get(phone["serial"], "unusable"), key=_ORDER.index)
        counted = Counter(states.values())
        return [
            Family(
                name="benchfarm_queue_jobs",
                about="Jobs of the farm.",
                labels=("state", "priority"),
                samples=[((row["state"], str(row["priority"])), row["jobs"]) for row in numbers.jobs],
            ),
            _single("benchfarm_queue_lag_seconds", "Longest wait of a job whose phone is free.", numbers.lag_s),
            Family(
                name="benchfarm_phones",
                about="Announced phones.",
                labels=("state",),
                samples=[((state,), counted.get(state, 0)) for state in _ORDER],
            ),
            Family(
                name="benchfarm_phone_seen_timestamp_seconds",
                about="When a phone was among those of a live host last; time() minus it is how long it is away.",
                labels=("serial",),
                samples=[((row["serial"],), row["seen_at"].timestamp()) for row in numbers.seen],
            ),
            Family(
                name="benchfarm_host_silent_seconds",
                about="Since a host was last heard.",
                labels=("host",),
                samples=[((row["name"],), row["silent_s"]) for row in numbers.hosts],
            ),
            Family(
                name="benchfarm_schedule_next_timestamp_seconds",
                about="When a schedule is due next; none while it is paused.",
                labels=("schedule",),
                samples=[
                    ((row["name"],), row["next_at"].timestamp()) for row in numbers.schedules if not row["paused"]
                ],
            ),
            Family(
                name="benchfarm_schedule_submitted_timestamp_seconds",
                about="The last time of a schedule that was submitted.",
                labels=("schedule",),
                samples=[
                    ((row["name"],), row["submitted_at"].timestamp())
                    for row in numbers.schedules
                    if row["submitted_at"]
                ],
            ),
            Family(
                name="benchfarm_schedule_missed",
                about="Times since then that were missed or failed.",
                labels=("schedule",),
                samples=[((row["name"],), row["missed"]) for row in numbers.schedules],
            ),
        ]


class _Source:
    """What is read in a thread of its own, because it may hang; as long as it does, it isn't asked again."""

    def __init__(self, name: str, read: Callable[[], list[Family]]) -> None:
        self._name = name
        self._read = read
        self._lock = threading.Lock()
        self._reading: Future[list[Family]] | None = None

    def begin(self) -> Future[list[Family]]:
        """Begin to read it, unless that goes on."""
        with self._lock:
            if self._reading is None or self._reading.done():
                self._reading = Future()
                name = f"numbers of the {self._name}"
                threading.Thread(target=self._work, args=(self._reading,), name=name, daemon=True).start()
            return self._reading

    def _work(self, reading: Future[list[Family]]) -> None:
        try:
            reading.set_result(self._read())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            reading.set_exception(error)


#: The states of a phone; of one that several hosts have, the first counts.
_ORDER: Final = ("busy", "free", "held", "silent", "unusable")


def _single(name: str, about: str, value: float) -> Family:
    return Family(name=name, about=about, samples=[((), value)])


def _summed(samples: Sequence[tuple[tuple[str, ...], int]]) -> list[tuple[tuple[str, ...], float]]:
    totals: Counter[tuple[str, ...]] = Counter()
    for labels, count in samples:
        totals[labels] += count
    return [(labels, float(count)) for labels, count in sorted(totals.items())]


def _of_states(prefix: str, when: str, states: Mapping[str, DeviceState]) -> list[Family]:
    heat: dict[tuple[str, ...], float | None] = {}
    for serial, state in states.items():
        heat |= {(serial, zone): value for zone, value in state.heat_c.items()}
        # A phone may have a zone of that name too.
        heat[serial, "battery"] = state.battery_heat_c
    charge = [((serial,), state.battery_percent) for serial, state in states.items()]
    return [
        Family(
            name=f"{prefix}_heat_celsius",
            about=f"Temperatures of a phone {when}.",
            labels=("serial", "sensor"),
            samples=[(labels, float(value)) for labels, value in heat.items() if value is not None],
        ),
        Family(
            name=f"{prefix}_battery_percent",
            about=f"Charge of a phone {when}.",
            labels=("serial",),
            samples=[(labels, float(value)) for labels, value in charge if value is not None],
        ),
    ]
