"""Numbers about the farm in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from orchestrator.serve.app import ServedPage

#: What the answer of ``/metrics`` is called.
MEDIA_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One number by some labels."""

    #: With its unit, without ``_total``.
    name: str
    about: str
    kind: Literal["gauge", "counter"] = "gauge"
    labels: tuple[str, ...] = ()
    #: The labels' values, and the number.
    samples: Sequence[tuple[tuple[str, ...], float]] = ()


def render(families: Iterable[Family]) -> bytes:
    """Return the text of some numbers; label values are escaped as the format wants."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Known(list(families)))
    return generate_latest(registry)


def page(families: Iterable[Family]) -> ServedPage:
    """Return the numbers as what is sent for ``/metrics``."""
    return ServedPage(content=render(families), media_type=MEDIA_TYPE)


class _Known(Collector):
    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        for family in self._families:
            kinds = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
            metric = kinds[family.kind](family.name, family.about, labels=family.labels)
            for values, number in family.samples:
                metric.add_metric(values, number)
            yield metric
