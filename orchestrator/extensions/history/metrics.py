"""The numbers of ``/metrics``: from the store, the farm's queue and this host."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from orchestrator import __version__
from orchestrator.errors import BenchfarmError, StoreError
from orchestrator.extensions.history.farm_now import ORDER
from orchestrator.extensions.history.web import ServedPage
from orchestrator.plugins import Workspace
from orchestrator.records.answers import FarmAnswer
from orchestrator.records.device import DeviceState
from orchestrator.records.history import ConfirmationStatus
from orchestrator.records.run import Outcome

if TYPE_CHECKING:
    from orchestrator.app.status import QueueView
    from orchestrator.extensions.history.farm_now import FarmNow

#: Runs are counted of the campaigns begun in these hours.
HOURS: Final = 24
#: Seconds for all that is read. Prometheus waits 10 s by default, and takes an answer that comes
#: later for none.
_ANSWER_S: Final = 5.0
_LATE: Final = f"of campaigns begun in the last {HOURS} hours"
_OF_RUN: Final = f"of a phone after the last invocation {_LATE}."
#: Name -> what it is about, and its labels.
_FAMILIES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "benchfarm_info": ("Version.", ("version",)),
    "benchfarm_up": ("1 when a source could be read.", ("source",)),
    "benchfarm_scrape_seconds": ("What reading all this took.", ()),
    "benchfarm_campaigns": ("Campaigns stored.", ("status",)),
    "benchfarm_campaign_finished_timestamp_seconds": (
        "When the last campaign of a name was finished; time() minus it is its age.",
        ("campaign",),
    ),
    "benchfarm_recent_invocations": (
        f"Invocations {_LATE}, by how they ended.",
        ("outcome", "phones"),
    ),
    "benchfarm_recent_failures": (
        f"Invocations without a result {_LATE}, by reason.",
        ("code", "outcome", "phones"),
    ),
    "benchfarm_night_invocations": ("Invocations of the campaigns begun since noon.", ("state",)),
    "benchfarm_phone_heat_celsius": (f"Temperatures {_OF_RUN}", ("serial", "sensor")),
    "benchfarm_phone_battery_percent": (f"Charge {_OF_RUN}", ("serial",)),
    "benchfarm_changed_series": (
        "Series with an unexpected change within the last 14 nights.",
        ("direction", "status"),
    ),
    "benchfarm_host_quarantined_phones": ("Phones of this host in quarantine.", ()),
    "benchfarm_host_unrestored_phones": ("Phones with a change to be undone by this host.", ()),
    "benchfarm_queue_jobs": ("Jobs of the farm.", ("state", "priority")),
    "benchfarm_queue_lag_seconds": ("Longest wait of a job whose phone is free.", ()),
    "benchfarm_phones": ("Phones of the farm, as its page shows them.", ("state",)),
    "benchfarm_phone_seen_timestamp_seconds": (
        "When a phone was among those of a live host last; time() minus it is how long it is away.",
        ("serial",),
    ),
    "benchfarm_host_silent_seconds": ("Since a host was last heard.", ("host",)),
}
#: A family's name, and by its labels' values (one of one label by itself) its numbers.
_Known = tuple[str, Mapping[Any, float | None]]


class Numbers(Collector):
    """Reads everything again each time that it is asked; what can't be read is reported as such,
    and the rest stays.

    May be used by several threads.
    """

    def __init__(
        self,
        workspace: Workspace,
        queue: QueueView | None = None,
        farm: FarmNow | None = None,
        *,
        answer_s: float = _ANSWER_S,
    ) -> None:
        """``farm`` None: of this host alone; what hosts share is counted in one place, not by each.

        ``answer_s`` is how long all that may hang is waited for.
        """
        self._workspace = workspace
        self._answer_s = answer_s
        #: What the last reading of the history was of, and what it came to.
        self._changed: tuple[object, Counter[tuple[str, ...]]] = (None, Counter())
        self._far: dict[str, Callable[[], Iterator[_Known]]] = {}
        if farm is not None:
            self._far = {
                "store": self._of_store,
                "history": self._of_history,
                "farm": lambda: _of_farm(farm.read()),
            }
        if queue is not None:
            self._far["queue"] = lambda: _of_queue(queue)
        self._reading: dict[str, Future[list[_Known]]] = {}
        self._lock = threading.Lock()

    def page(self) -> ServedPage:
        """Return all numbers in Prometheus' text format."""
        return ServedPage(content=generate_latest(self), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    def collect(self) -> Iterator[Metric]:
        """Yield all numbers."""
        begin_s = time.monotonic()
        found: list[_Known] = [("benchfarm_info", {__version__: 1})]
        awaited = {name: self._begun(name) for name in self._far}
        up = {}
        for name in ("host", *awaited):
            try:
                left_s = max(0.0, begin_s + self._answer_s - time.monotonic())
                found += (
                    list(self._of_host())
                    if name == "host"
                    else awaited[name].result(timeout=left_s)
                )
                up[name] = 1
            except (BenchfarmError, TimeoutError):
                up[name] = 0
        found += [
            ("benchfarm_up", up),
            ("benchfarm_scrape_seconds", {(): time.monotonic() - begin_s}),
        ]
        for name, values in found:
            about, labels = _FAMILIES[name]
            family = GaugeMetricFamily(name, about, labels=labels)
            for key, value in values.items():
                if value is not None:
                    family.add_metric((key,) if isinstance(key, str) else key, float(value))
            yield family

    def _begun(self, name: str) -> Future[list[_Known]]:
        """Begin to read a source in a thread, as it may hang; as long as it does, it isn't asked
        again.
        """
        with self._lock:
            known = self._reading.get(name)
            if known is None or known.done():
                known = self._reading[name] = Future()
                work = (self._far[name], known)
                threading.Thread(
                    target=_fulfil, args=work, name=f"numbers of the {name}", daemon=True
                ).start()
            return known

    def _of_store(self) -> Iterator[_Known]:
        workspace = self._workspace
        now = workspace.clock.now()
        activity = workspace.store.activity(now - timedelta(hours=HOURS))
        runs: Counter[tuple[str, ...]] = Counter()
        failures: Counter[tuple[str, ...]] = Counter()
        for item in activity.runs:
            phones = "virtual" if item.is_virtual else "real"
            runs[str(item.outcome), phones] += item.count
            if item.outcome is not Outcome.COMPLETED:
                failures[item.reason_code, str(item.outcome), phones] += item.count
        yield (
            "benchfarm_campaigns",
            {str(status): count for status, count in activity.campaigns.items()},
        )
        finished = {
            name: moment.timestamp() for name, moment in sorted(activity.finished_at.items())
        }
        yield "benchfarm_campaign_finished_timestamp_seconds", finished
        yield "benchfarm_recent_invocations", dict(sorted(runs.items()))
        yield "benchfarm_recent_failures", dict(sorted(failures.items()))
        newest = {
            str(run.case.serial): run.state_after or run.state_before for run in activity.newest
        }
        states = {serial: state for serial, state in newest.items() if state is not None}
        yield "benchfarm_phone_heat_celsius", _heat(states)
        yield (
            "benchfarm_phone_battery_percent",
            {serial: it.battery_percent for serial, it in states.items()},
        )

    def _of_history(self) -> Iterator[_Known]:
        """Give how many series changed, read again only after a campaign, a rerun or an annotation."""
        store = self._workspace.store
        newest = [(item.campaign_id, item.status) for item in store.campaigns(limit=1)]
        read_of = (
            newest,
            store.campaign_count(),
            store.hidden_campaigns(),
            store.annotations(),
            store.confirmations(),
        )
        if self._changed[0] != read_of:
            from orchestrator.extensions.history.regressions import Question, find_regressions

            news = [
                change
                for change in find_regressions(store, Question()).changes
                if not change.expected
            ]
            counts = [
                ("slower" if change.ratio > 1 else "faster", str(change.status)) for change in news
            ]
            self._changed = (read_of, Counter(counts))
        yield (
            "benchfarm_changed_series",
            {
                (direction, str(status)): self._changed[1][direction, str(status)]
                for direction in ("slower", "faster")
                for status in ConfirmationStatus
            },
        )

    def _of_host(self) -> Iterator[_Known]:
        yield (
            "benchfarm_host_quarantined_phones",
            {(): len(list(self._workspace.quarantine.serials()))},
        )
        yield (
            "benchfarm_host_unrestored_phones",
            {(): len(self._workspace.conditioner.unrestored())},
        )


def _of_farm(farm: FarmAnswer) -> Iterator[_Known]:
    """Give what the farm's page shows; raises StoreError when not all of it could be read."""
    if farm.fault:
        raise StoreError(farm.fault)
    night = farm.night
    of_night = {
        "with_result": night.stored - night.without_result,
        "without_result": night.without_result,
        "left": night.left,
    }
    yield "benchfarm_night_invocations", of_night
    counted = Counter(item.state for item in farm.devices)
    yield "benchfarm_phones", {state: counted[state] for state in ORDER}
    yield "benchfarm_host_silent_seconds", {item.name: item.silent_s for item in farm.hosts}


def _of_queue(queue: QueueView) -> Iterator[_Known]:
    yield (
        "benchfarm_queue_jobs",
        {(row["state"], str(row["priority"])): row["jobs"] for row in queue.job_counts()},
    )
    yield "benchfarm_queue_lag_seconds", {(): queue.lag_s()}
    yield (
        "benchfarm_phone_seen_timestamp_seconds",
        {row["serial"]: row["seen_at"].timestamp() for row in queue.seen()},
    )


def _fulfil(read: Callable[[], Iterator[_Known]], reading: Future[list[_Known]]) -> None:
    try:
        reading.set_result(list(read()))
    except BaseException as error:  # noqa: BLE001 - raised where it is waited for
        reading.set_exception(error)


def _heat(states: Mapping[str, DeviceState]) -> dict[tuple[str, str], float | None]:
    found: dict[tuple[str, str], float | None] = {}
    for serial, state in states.items():
        found |= {(serial, zone): value for zone, value in state.heat_c.items()}
        # A phone may have a zone of that name too.
        found[serial, "battery"] = state.battery_heat_c
    return found
