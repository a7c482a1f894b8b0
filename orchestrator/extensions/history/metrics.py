"""The numbers of ``/metrics``: from the store, its history and the farm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from orchestrator import __version__
from orchestrator.errors import BenchfarmError, StoreError
from orchestrator.extensions.history.farm_now import ORDER, FarmNow
from orchestrator.extensions.history.web import ServedPage
from orchestrator.plugins import Workspace
from orchestrator.records.answers import ChangeAnswer
from orchestrator.records.device import DeviceState
from orchestrator.records.run import Outcome

#: Runs are counted of the campaigns begun in these hours.
HOURS: Final = 24
_LATE: Final = f"of campaigns begun in the last {HOURS} hours"
_OF_RUN: Final = f"of a phone after the last invocation {_LATE}."
#: Name -> what it is about, and its labels.
_FAMILIES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "benchfarm_info": ("Version.", ("version",)),
    "benchfarm_up": ("1 when a source could be read.", ("source",)),
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
        ("direction", "state"),
    ),
    "benchfarm_queue_jobs": ("Open and lately failed jobs of the farm.", ("state", "priority")),
    "benchfarm_queue_lag_seconds": ("Longest wait of a job whose phone is free.", ()),
    "benchfarm_phones": ("Phones of the farm, as its page shows them.", ("state",)),
    "benchfarm_phone_seen_timestamp_seconds": (
        "When a phone that is away was announced last; time() minus it is how long it is away.",
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
        farm: FarmNow,
        changes: Callable[[], list[ChangeAnswer]],
    ) -> None:
        """``changes`` gives the unexpected changes of the last nights."""
        self._workspace = workspace
        self._farm = farm
        self._changes = changes

    def page(self) -> ServedPage:
        """Return all numbers in Prometheus' text format."""
        return ServedPage(content=generate_latest(self), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    def collect(self) -> Iterator[Metric]:
        """Yield all numbers."""
        found: list[_Known] = [("benchfarm_info", {__version__: 1})]
        sources = {"store": self._of_store, "history": self._of_history, "farm": self._of_farm}
        up = {}
        for name, read in sources.items():
            try:
                found += list(read())
                up[name] = 1
            except BenchfarmError:
                up[name] = 0
        for name, values in [*found, ("benchfarm_up", up)]:
            about, labels = _FAMILIES[name]
            family = GaugeMetricFamily(name, about, labels=labels)
            for key, value in values.items():
                if value is not None:
                    family.add_metric((key,) if isinstance(key, str) else key, float(value))
            yield family

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
        counts = Counter(
            ("slower" if item.ratio > 1 else "faster", item.state) for item in self._changes()
        )
        none = {("slower", "not confirmed yet"): 0, ("faster", "not confirmed yet"): 0}
        yield "benchfarm_changed_series", {**none, **counts}

    def _of_farm(self) -> Iterator[_Known]:
        """Give what the farm's page shows; raises StoreError when not all of it could be read."""
        farm = self._farm.read()
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
        away = {item.serial: item.seen_at for item in farm.devices if item.seen_at is not None}
        yield (
            "benchfarm_phone_seen_timestamp_seconds",
            {serial: seen_at.timestamp() for serial, seen_at in away.items()},
        )
        if farm.has_queue:
            jobs = Counter((job.status, str(job.priority)) for job in farm.jobs)
            yield "benchfarm_queue_jobs", jobs
            yield "benchfarm_queue_lag_seconds", {(): farm.lag_s}


def _heat(states: Mapping[str, DeviceState]) -> dict[tuple[str, str], float | None]:
    found: dict[tuple[str, str], float | None] = {}
    for serial, state in states.items():
        found |= {(serial, zone): value for zone, value in state.heat_c.items()}
        # A phone may have a zone of that name too.
        found[serial, "battery"] = state.battery_heat_c
    return found
