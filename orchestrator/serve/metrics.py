"""Numbers about the farm in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from orchestrator.serve.app import ServedPage

#: What the answer of ``/metrics`` is called.
MEDIA_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
#: One number by some labels.
Family: TypeAlias = Metric


def family(
    name: str,
    about: str,
    labels: Sequence[str] = (),
    samples: Iterable[tuple[Sequence[str], float]] = (),
    *,
    is_counter: bool = False,
) -> Family:
    """Return one number by some labels; ``name`` with its unit, ``samples`` as the labels' values and the number."""
    made = (CounterMetricFamily if is_counter else GaugeMetricFamily)(name, about, labels=labels)
    for values, number in samples:
        made.add_metric(values, number)
    return made


def render(families: Sequence[Family]) -> bytes:
    """Return the text of some numbers; label values are escaped as the format wants."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Known(families))
    return generate_latest(registry)


def page(families: Sequence[Family]) -> ServedPage:
    """Return the numbers as what is sent for ``/metrics``."""
    return ServedPage(content=render(families), media_type=MEDIA_TYPE)


class _Known(Collector):
    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
