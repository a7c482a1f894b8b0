"""The numbers of ``/metrics``: from the store, its history and the farm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from orchestrator import __version__
from orchestrator.errors import BenchfarmError, StoreError
from orchestrator.extensions.history.farm_now import FarmNow
from orchestrator.extensions.history.regressions import LatencyChange
from orchestrator.extensions.history.web import ServedPage
from orchestrator.plugins import PHONE_STATES, RECENT_HOURS, Workspace

_RECENT: Final = f"of campaigns begun in the last {RECENT_HOURS} hours"
_OF_RUN: Final = f"of a phone after the last invocation {_RECENT}."


class Numbers(Collector):
    """Reads all sources on each request. A source that can't be read is reported as such; the
    others are still shown.

    May be used by several threads.
    """

    def __init__(
        self,
        workspace: Workspace,
        farm: FarmNow,
        changes: Callable[[], Sequence[LatencyChange]],
    ) -> None:
        """``changes`` gives those of the last nights."""
        self._workspace = workspace
        self._farm = farm
        self._changes = changes

    def page(self) -> ServedPage:
        """Return all numbers in Prometheus' text format."""
        return ServedPage(content=generate_latest(self), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    def collect(self) -> Iterator[Metric]:
        """Yield all numbers."""
        yield _gauge("benchfarm_info", "Version.", ["version"], {__version__: 1})
        sources = {
            "store": self._store_metrics,
            "history": self._history_metrics,
            "farm": self._farm_metrics,
        }
        up = {}
        for name, read in sources.items():
            try:
                yield from list(read())
                up[name] = 1
            except BenchfarmError:
                up[name] = 0
        yield _gauge("benchfarm_up", "1 when a source could be read.", ["source"], up)

    def _store_metrics(self) -> Iterator[Metric]:
        workspace = self._workspace
        now = workspace.clock.now()
        activity = workspace.store.activity(now - timedelta(hours=RECENT_HOURS))
        yield _gauge("benchfarm_campaigns", "Campaigns stored.", ["status"], activity.campaigns)
        yield _gauge(
            "benchfarm_campaign_finished_timestamp_seconds",
            "When the last campaign of a name was finished; time() minus it is its age.",
            ["campaign"],
            {name: moment.timestamp() for name, moment in sorted(activity.finished_at.items())},
        )
        runs: Counter[tuple[str, ...]] = Counter()
        failures: Counter[tuple[str, ...]] = Counter()
        for item in activity.runs:
            phones = "virtual" if item.is_virtual else "real"
            runs[item.outcome, phones] += item.count
            if item.has_result is False:
                code = item.reason_code or item.quality
                failures[code, item.outcome, phones] += item.count
        yield _gauge(
            "benchfarm_recent_invocations",
            f"Invocations {_RECENT}, by how they ended.",
            ["outcome", "phones"],
            dict(sorted(runs.items())),
        )
        yield _gauge(
            "benchfarm_recent_failures",
            f"Invocations without a result {_RECENT}, by reason.",
            ["code", "outcome", "phones"],
            dict(sorted(failures.items())),
        )
        states = {
            str(run.case.serial): state
            for run in activity.newest
            if (state := run.state_after or run.state_before) is not None
        }
        # A phone may have a thermal zone named "battery", too.
        heat = {
            (serial, zone): value
            for serial, state in states.items()
            for zone, value in {**state.heat_c, "battery": state.battery_heat_c}.items()
        }
        yield _gauge(
            "benchfarm_phone_heat_celsius", f"Temperatures {_OF_RUN}", ["serial", "sensor"], heat
        )
        battery = {serial: state.battery_percent for serial, state in states.items()}
        yield _gauge("benchfarm_phone_battery_percent", f"Charge {_OF_RUN}", ["serial"], battery)

    def _history_metrics(self) -> Iterator[Metric]:
        changed = {
            (change.series.key, "slower" if change.ratio > 1 else "faster", change.state)
            for change in self._changes()
            if change.counts
        }
        counts = Counter((direction, state) for _, direction, state in changed)
        none = {("slower", "not confirmed yet"): 0, ("faster", "not confirmed yet"): 0}
        yield _gauge(
            "benchfarm_changed_series",
            "Series with a change of the last 14 nights (more where it lacks nights) that lasts"
            " and was neither expected nor refuted.",
            ["direction", "state"],
            {**none, **counts},
        )

    def _farm_metrics(self) -> Iterator[Metric]:
        """Yield the numbers of the farm's page; raises StoreError when a part couldn't be read."""
        farm = self._farm.read()
        if farm.fault:
            raise StoreError(farm.fault)
        night = farm.night
        yield _gauge(
            "benchfarm_night_invocations",
            "Invocations of the campaigns begun since noon.",
            ["state"],
            {name: getattr(night, name) for name in ("with_result", "without_result", "left")},
        )
        counted = Counter(item.state for item in farm.devices)
        phones = {state: counted[state] for state in PHONE_STATES}
        yield _gauge(
            "benchfarm_phones", "Phones of the farm, as its page shows them.", ["state"], phones
        )
        silent = {item.name: item.silent_s for item in farm.hosts}
        yield _gauge(
            "benchfarm_host_silent_seconds", "Since a host was last heard.", ["host"], silent
        )
        seen_at = {
            item.serial: item.seen_at.timestamp()
            for item in farm.devices
            if item.seen_at is not None
        }
        yield _gauge(
            "benchfarm_phone_seen_timestamp_seconds",
            "When a phone that is away was announced last; time() minus it is how long it is away.",
            ["serial"],
            seen_at,
        )
        if farm.has_queue:
            yield _gauge(
                "benchfarm_queue_jobs",
                "Open and lately failed jobs of the farm.",
                ["state", "priority"],
                Counter((job.status, str(job.priority)) for job in farm.jobs),
            )
            yield _gauge(
                "benchfarm_queue_lag_seconds",
                "Longest wait of a job whose phone is free.",
                [],
                {(): farm.lag_s},
            )


def _gauge(
    name: str, description: str, labels: Sequence[str], values: Mapping[Any, float | None]
) -> Metric:
    """Return a gauge: a number per value of its labels (a text for one label), None left out."""
    family = GaugeMetricFamily(name, description, labels=labels)
    for key, value in values.items():
        if value is not None:
            family.add_metric((key,) if isinstance(key, str) else key, float(value))
    return family
