"""The series that history pages show: their figures, changes, grade, outputs, and what happened beside them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime, time
from itertools import pairwise
from typing import Any

import numpy as np

from orchestrator.analysis.series import NightTable, night_of
from orchestrator.engine.history import FoundChange, FoundOutputs, Regressions, describe_series, fits
from orchestrator.ports import Store
from orchestrator.records.history import Annotation, Contents, DeviceSighting, RunMark
from orchestrator.records.identity import CampaignId, SeriesKey
from orchestrator.records.night import THREADS_UNUSED
from orchestrator.records.run import Outcome
from orchestrator.records.verdict import Grade, Quality
from orchestrator.records.workload import Case, Pass
from orchestrator.report.site import SILENT_NIGHTS, SiteChange, SiteEvent, SiteOutputs, SiteSeries


def site_series(
    store: Store,
    table: NightTable,
    trusted: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    found: Regressions | None,
    only: Collection[CampaignId],
) -> Iterator[SiteSeries]:
    """Yield every series of a table; ``only`` are the campaigns that count."""
    cases = store.series()
    devices = store.devices()
    words = describe_series(store)
    builds = {sha256: build.name for sha256, build in store.builds().items()}
    annotations = [item for item in store.annotations() if table.nights and item.night >= table.nights[0]]
    updates = {serial: _updates(seen, table) for serial, seen in store.sightings().items()}
    changes: dict[SeriesKey, list[SiteChange]] = defaultdict(list)
    for change in found.changes if found is not None else ():
        changes[change.series_key].append(_change(change))
    last = [int(np.flatnonzero(np.isfinite(row))[-1]) for row in table.latency_us]
    mishaps = _mishaps(store, table, only)
    outputs: dict[SeriesKey, list[SiteOutputs]] = defaultdict(list)
    for item in sorted(found.outputs if found is not None else (), key=lambda item: item.change.night):
        outputs[item.change.series_key].append(outputs_from(item))
    other_figures = found.other_figures if found is not None else {}
    grades = _grades(store, table, last, only)
    for place, key in enumerate(table.series):
        sketch = table.sketches[place]
        events = [
            *_notes(annotations, key, words.get(key, {})),
            *updates.get(sketch.serial, ()),
            *_contents(table, place, builds),
            *mishaps.get(key, ()),
            *(SiteEvent(night=item.night, kind="outputs", text=item.text) for item in outputs[key]),
        ]
        if key in other_figures:
            text = "the program's figures are of another kind (median, mean): earlier nights aren't compared"
            events.append(SiteEvent(night=other_figures[key], kind="figures", text=text))
        yield SiteSeries(
            key=key,
            case=cases[key],
            facts=devices.get(sketch.serial),
            is_virtual=sketch.is_virtual,
            grade=grades.get(key, ""),
            changes=tuple(sorted(changes[key], key=lambda item: item.night)),
            events=tuple(sorted(events, key=lambda event: event.night)),
            outputs=tuple(outputs[key]),
            latency_us=table.latency_us[place],
            last_place=last[place],
            is_trusted=bool(trusted[place, last[place]]),
        )


def outputs_from(found: FoundOutputs) -> SiteOutputs:
    """Return what outputs are worth from a night on."""
    change = found.change
    return SiteOutputs(
        night=change.night,
        before=change.before.value if change.before is not None else "",
        verdict=change.after.value,
        expected=found.expected,
    )


def _change(found: FoundChange) -> SiteChange:
    shown: dict[str, Any] = {field.name: getattr(found, field.name) for field in fields(SiteChange)}
    return SiteChange(**shown)


def _notes(annotations: Sequence[Annotation], key: SeriesKey, words: Mapping[str, str]) -> Iterator[SiteEvent]:
    for item in annotations:
        if fits(item.selection, key, words):
            yield SiteEvent(night=item.night, kind="note", text=item.text)


def _updates(seen: Sequence[DeviceSighting], table: NightTable) -> list[SiteEvent]:
    """Return what became another thing on a device within the nights."""
    events = []
    for before, after in pairwise(seen):
        night = night_of(after.at)
        if not table.nights or night < table.nights[0]:
            continue
        changed = [
            f"{name} {before.facts.get(name, 'unknown')} → {after.facts.get(name, 'unknown')}"
            for name in {**before.facts, **after.facts}
            if before.facts.get(name) != after.facts.get(name)
        ]
        if changed:
            events.append(SiteEvent(night=night, kind="system", text="; ".join(changed)))
    return events


def _contents(table: NightTable, place: int, builds: Mapping[str, str]) -> Iterator[SiteEvent]:
    """Yield the nights from which a series had another program or model."""
    row = table.contents_at[place]
    there = np.flatnonzero(row >= 0)
    for before, after in pairwise(there[np.r_[True, row[there][1:] != row[there][:-1]]].tolist()):
        old, new = table.contents[int(row[before])], table.contents[int(row[after])]
        night = table.nights[after]
        if old.build_sha256 != new.build_sha256:
            names = [f"{builds.get(item, '')} {item[:12]}".strip() for item in (old.build_sha256, new.build_sha256)]
            yield SiteEvent(night=night, kind="build", text=" → ".join(names))
        if old.model_sha256 != new.model_sha256:
            yield SiteEvent(night=night, kind="model", text=f"{old.model_sha256[:12]} → {new.model_sha256[:12]}")
        if old.files != new.files:
            names = sorted({name for name, _ in {*old.files} ^ {*new.files}})
            yield SiteEvent(night=night, kind="files", text=", ".join(names))


def _mishaps(store: Store, table: NightTable, only: Collection[CampaignId]) -> dict[SeriesKey, list[SiteEvent]]:
    """Return of each series the nights that it has no figure of, with what became of their runs."""
    if not table.nights:
        return {}
    place_of_night = {night: place for place, night in enumerate(table.nights)}
    row_of = {key: row for row, key in enumerate(table.series)}
    codes: dict[tuple[SeriesKey, date], Counter[str]] = defaultdict(Counter)
    for mark in store.marks(since=datetime.combine(table.nights[0], time()).astimezone()):
        night, row = night_of(mark.created_at), row_of.get(mark.series_key)
        place = place_of_night.get(night)
        if mark.reason_code == THREADS_UNUSED:
            continue
        if mark.run_pass is not Pass.TIMING or mark.campaign_id not in only or row is None or place is None:
            continue
        if not np.isfinite(table.latency_us[row][place]):
            codes[mark.series_key, night][_what_became(mark)] += 1
    events: dict[SeriesKey, list[SiteEvent]] = defaultdict(list)
    for (key, night), counts in codes.items():
        text = ", ".join(code if count == 1 else f"{code} ({count} times)" for code, count in counts.most_common())
        events[key].append(SiteEvent(night=night, kind="no figure", text=text))
    return events


def _what_became(mark: RunMark) -> str:
    """Return the code that says why a run has no figure."""
    if mark.outcome is Outcome.COMPLETED:
        return f"rejected: {', '.join(mark.findings) or mark.reason_code or 'its findings say why'}"
    return ": ".join(dict.fromkeys(word for word in (mark.outcome.value, mark.reason_code) if word))


def _grades(
    store: Store, table: NightTable, last: Sequence[int], only: Collection[CampaignId]
) -> dict[SeriesKey, Grade]:
    """Return of each series the worst grade of the runs that its newest figure is of; of the newest nights only."""
    first = max(0, len(table.nights) - SILENT_NIGHTS)
    recent = {
        key: (row, place) for row, (key, place) in enumerate(zip(table.series, last, strict=True)) if place >= first
    }
    wanted = {table.nights[place] for _, place in recent.values()}
    nights = {item.campaign_id: night_of(item.created_at) for item in store.campaigns() if item.campaign_id in only}
    asked = [campaign for campaign, night in nights.items() if night in wanted]
    grades: dict[tuple[SeriesKey, Quality], list[Grade | None]] = defaultdict(list)
    for run in store.runs(campaign_ids=asked) if asked else ():
        key = run.case.series_key
        row, place = recent.get(key, (-1, -1))
        if place < 0 or table.nights[place] != nights[run.campaign_id]:
            continue
        if run.latency_us is not None and _contents_of(run.case) == table.contents[int(table.contents_at[row][place])]:
            grades[key, run.verdict.quality].append(run.verdict.grade)
    # As the figure: of the trusted ones where there are any.
    counted = {key: grades.get((key, Quality.TRUSTED)) or grades.get((key, Quality.SUSPECT), []) for key in recent}
    return {key: max(known) for key, of_key in counted.items() if (known := [item for item in of_key if item])}


def _contents_of(case: Case) -> Contents:
    return Contents(model_sha256=case.model_sha256, build_sha256=case.build_sha256, files=tuple(sorted(case.files)))
