"""Changes over the nights, in all series of a store: detected, attributed, grouped, and held
against annotations.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

import numpy as np

from orchestrator.analysis.quality import of_one_kind
from orchestrator.clock import first_moment, night_of
from orchestrator.errors import UsageError
from orchestrator.extensions.history.causes import Cause, Causes, contents_around, group_changes
from orchestrator.extensions.history.changepoint import (
    RECENT_NIGHTS,
    WINDOW_NIGHTS,
    Change,
    Floats,
    changes,
    is_news,
)
from orchestrator.extensions.history.series import NightTable, Series, night_table, read_series
from orchestrator.plugins import Workspace
from orchestrator.records import frozen
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import BuildSha, CampaignId, Serial, SeriesKey, grouped, name_fits
from orchestrator.records.history import (
    LEAST_CHANGE,
    Annotation,
    ConfirmationStatus,
    Contents,
    Points,
    RunMark,
)
from orchestrator.records.run import FigureKind, Outcome
from orchestrator.records.verdict import NO_EVIDENCE, OUTPUT_FINDINGS, ParityVerdict
from orchestrator.units import format_slowdown, parse_age

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: Nights that are read before ``since``, for the level before its first change.
_LEAD_NIGHTS: Final = 60
#: A series without a figure in this many of the newest nights is reported.
SILENT_NIGHTS: Final = 3
#: Groups with a confirmed change go first, refuted ones last.
_RANKS: Final = {
    ConfirmationStatus.CONFIRMED: 0,
    ConfirmationStatus.UNCONFIRMED: 1,
    ConfirmationStatus.CANNOT: 1,
    ConfirmationStatus.REFUTED: 2,
}
#: Words that a selection may use, beside a series' key.
SELECTION_WORDS: Final = ("delegate", "model", "serial", "phone", "soc", "GPU", "tool", "threads")
#: The words for a change that lasts and that nobody expected.
STATES: Final[Mapping[ConfirmationStatus, str]] = {
    ConfirmationStatus.UNCONFIRMED: "not confirmed yet",
    ConfirmationStatus.CONFIRMED: "confirmed",
    ConfirmationStatus.REFUTED: "refuted",
    ConfirmationStatus.CANNOT: "can't be confirmed",
}


@frozen
class SeriesChange:
    """A night on which a series changed."""

    series: Series
    night: date
    #: The annotation's text; empty for an unexpected one.
    expected: str = ""


@frozen
class LatencyChange(SeriesChange):
    """A change of a series' latency; ``night`` is the first one of the new level."""

    #: The first and last night on which it may have begun (95 %).
    earliest: date
    latest: date
    #: Level after / level before, with its 95 % interval.
    ratio: float
    low: float
    high: float
    confidence: float
    before_us: float
    after_us: float
    nights_after: int
    #: Whether it is reported without ``--since``: it is of the last nights.
    is_news: bool
    #: The night on which the series was back at the level before; None while the new one lasts.
    ended: date | None = None
    causes: tuple[Cause, ...] = ()
    status: ConfirmationStatus = ConfirmationStatus.UNCONFIRMED
    status_detail: str = ""
    #: What the series measured before it may have begun, and on the last night on which it may.
    before: Contents
    after: Contents

    @property
    def state(self) -> str:
        """Its state, in words."""
        if self.expected:
            return "expected"
        return STATES[self.status] if self.ended is None else f"went away on {self.ended}"

    @property
    def counts(self) -> bool:
        """Whether it needs attention: it lasts, nobody expected it, and nothing refuted it."""
        is_refuted = self.status is ConfirmationStatus.REFUTED
        return not self.expected and not is_refuted and self.ended is None


@frozen
class OutputsChange(SeriesChange):
    """A night on which the reference verdict of a series' outputs changed."""

    #: ``same``, ``drift`` or ``wrong``; None when they were never compared before.
    before: ParityVerdict | None
    after: ParityVerdict
    #: The last night that was compared before; None when there is none.
    last_before: date | None

    @property
    def is_worse(self) -> bool:
        """Whether the outputs are worse than before."""
        return self.after.badness > (self.before.badness if self.before is not None else 0)

    @property
    def turn(self) -> str:
        """The verdicts before and after, in words."""
        return f"{self.before or 'not compared before'} -> {self.after}"


@frozen
class ChangeGroup:
    """Changes that happened together, in one sentence."""

    sentence: str
    members: tuple[LatencyChange, ...]
    #: Series that fit the sentence's description, changed or not.
    series: int


@frozen
class Regressions:
    """All changes since a night."""

    since: date | None
    nights: int
    series: int
    groups: tuple[ChangeGroup, ...]
    #: Worse ones first.
    outputs: tuple[OutputsChange, ...] = ()
    #: The changes of outputs that were already wrong or drifted when these nights began.
    faulty_before: tuple[OutputsChange, ...] = ()
    #: Series without a figure in the newest SILENT_NIGHTS nights.
    silent: tuple[Series, ...] = ()
    #: Series whose program changed between means and medians: nights before aren't compared.
    other_figures: int = 0
    #: All series of the store.
    series_by_key: Mapping[SeriesKey, Series] = field(default_factory=dict)

    @property
    def changes(self) -> tuple[LatencyChange, ...]:
        """All changes, group by group."""
        return tuple(change for group in self.groups for change in group.members)


@frozen
class Nights:
    """The nights of a store, as they were read at once."""

    #: Every campaign that counts, with its night.
    campaigns: Mapping[CampaignId, date]
    #: Of all campaigns since the table's first night.
    points: Points
    table: NightTable


@frozen
class Question:
    """A query for changes."""

    #: None: the news, which is the changes of the last 14 nights.
    since: date | None = None
    selections: tuple[str, ...] = ()
    #: The smallest change that counts, as a share.
    threshold: float = LEAST_CHANGE


def find_regressions(store: Store, question: Question, nights: Nights | None = None) -> Regressions:
    """Return the changes that match a question, attributed and grouped, the most important first.

    ``nights``: if they were read already. Raises UsageError for a selection that fits no series,
    unless the store has none.
    """
    selected_keys: Sequence[SeriesKey] = ()
    if question.selections:
        selected_keys = selected(question.selections, read_series(store))
    if nights is None:
        nights = read_nights(store, campaign_nights(store, store.campaigns()), question.since)
    table, campaigns = nights.table, nights.campaigns
    marks = store.marks(series_keys=selected_keys)
    # Last, because a series may begin while the rest is read.
    series_by_key = read_series(store)
    newest = sorted({*campaigns.values()})[-WINDOW_NIGHTS:]
    cuts = _all_changes(table, newest)
    reported = [change for change in cuts if _matches(change, table, question)]
    comparable, other_figures = _comparable_nights(table, reported, store, campaigns)
    if other_figures:
        table = comparable
        cuts = _all_changes(table, newest)
        reported = [change for change in cuts if _matches(change, table, question)]
    # Noise and common steps come from all series: only the answer is selected.
    keys = set(selected_keys or table.series)
    attributes = {
        row: series_by_key[key].words for row, key in enumerate(table.series) if key in keys
    }
    reported = [change for change in reported if change.series in attributes]
    annotations = store.annotations()
    causes = Causes(store, table, reported, cuts)
    confirmations = _confirmations(store, table, cuts)
    members = []
    for change in reported:
        series = series_by_key[table.series[change.series]]
        night, earliest, latest = (
            table.nights[place] for place in (change.night, change.earliest, change.latest)
        )
        status, detail = confirmations.get(
            (change.series, change.night), (ConfirmationStatus.UNCONFIRMED, "")
        )
        row = table.latency_us[change.series]
        before, after = contents_around(change, table)
        members.append(
            LatencyChange(
                series=series,
                night=night,
                expected=_expected(series, annotations, earliest, latest),
                earliest=earliest,
                latest=latest,
                ratio=change.ratio,
                low=change.low,
                high=change.high,
                confidence=change.confidence,
                before_us=_median(row[: change.night], -change.nights_before),
                after_us=_median(row[change.night :], change.nights_after),
                nights_after=change.nights_after,
                is_news=is_news(change, nights=len(table.nights)),
                ended=None if change.ended is None else table.nights[change.ended],
                causes=causes.for_change(change),
                status=status,
                status_detail=detail,
                before=before,
                after=after,
            )
        )
    outputs, faulty_before = _outputs(question, marks, campaigns, series_by_key, annotations)
    return Regressions(
        since=question.since,
        nights=len(table.nights),
        series=len(attributes),
        groups=_grouped(members, reported, attributes),
        outputs=outputs,
        faulty_before=faulty_before,
        silent=tuple(
            series_by_key[table.series[row]]
            for row in attributes
            if not np.isfinite(table.latency_us[row, -SILENT_NIGHTS:]).any()
        ),
        other_figures=len(other_figures & attributes.keys()),
        series_by_key=series_by_key,
    )


def _all_changes(table: NightTable, window: Sequence[date]) -> list[Change]:
    """Return every change of a table. News comes from the store's newest nights alone (``window``):
    every list has the same, whichever nights it reads.
    """
    phones, nights = [sketch.serial for sketch in table.sketches], len(table.nights)
    all_changes = changes(table.latency_us, phones=phones)
    first_place = bisect_left(table.nights, window[0]) if window else 0
    if not first_place:
        return all_changes
    newest = [
        change.later(first_place)
        for change in changes(table.latency_us[:, first_place:], phones=phones)
    ]
    # Series -> night on which its news begins.
    news_begins = {
        change.series: change.earliest
        for change in reversed(newest)
        if is_news(change, nights=nights)
    }
    older_changes = [
        change
        for change in all_changes
        if not is_news(change, nights=nights)
        and change.night < news_begins.get(change.series, nights)
    ]
    newer_changes = [
        change for change in newest if change.night >= news_begins.get(change.series, nights)
    ]
    return sorted(
        [*older_changes, *newer_changes], key=lambda change: (change.series, change.night)
    )


def _expected(
    series: Series, annotations: Sequence[Annotation], earliest: date, latest: date
) -> str:
    """Return the annotation of a change that may have begun on these nights or one beside them."""
    day, words = timedelta(days=1), series.words
    texts = (
        item.text
        for item in annotations
        if earliest - day <= item.night <= latest + day and fits(item.selection, series.key, words)
    )
    return next(texts, "")


def _confirmations(
    store: Store, table: NightTable, cuts: Sequence[Change]
) -> dict[tuple[int, int], tuple[ConfirmationStatus, str]]:
    """Return the newest confirmation of each change, by the indices of its series and night: its
    status and detail.

    The night of a change is an estimate, which moves: a confirmation belongs to the nearest change
    of its direction that may have begun on its night, and not after it was measured.
    """
    changes_of, nights = grouped(cuts, lambda change: table.series[change.series]), table.nights
    confirmations = {}
    for item in sorted(store.confirmations(), key=lambda item: item.at):
        measured = night_of(item.at, store.zone)
        fitting = [
            change
            for change in changes_of.get(item.series_key, ())
            if nights[change.earliest] <= item.night <= nights[change.latest]
            and nights[change.night] <= measured
            and item.is_slower in {None, change.ratio > 1}
        ]
        if fitting:
            distances = [abs(nights[change.night] - item.night) for change in fitting]
            nearest = fitting[distances.index(min(distances))]
            confirmations[nearest.series, nearest.night] = item.status, item.detail
    return confirmations


def _outputs(
    question: Question,
    marks: Sequence[RunMark],
    campaigns: Mapping[CampaignId, date],
    series: Mapping[SeriesKey, Series],
    annotations: Sequence[Annotation],
) -> tuple[tuple[OutputsChange, ...], tuple[OutputsChange, ...]]:
    """Return the changes of outputs that match a question (since a night, or each series' newest if
    it is news), and the last ones before that, of outputs that were wrong or drifted then.

    The worst comparison of a night counts.
    """
    newest = sorted({*campaigns.values()})[-RECENT_NIGHTS:]
    first = question.since or min(newest, default=date.min)
    verdicts: dict[SeriesKey, dict[date, ParityVerdict]] = {}
    for mark in marks:
        verdict, night = _outputs_verdict(mark), campaigns.get(mark.campaign_id)
        if verdict is not None and night is not None:
            of_series = verdicts.setdefault(mark.series_key, {})
            of_series[night] = max(
                verdict, of_series.get(night, verdict), key=lambda item: item.badness
            )
    selected_changes: list[OutputsChange] = []
    faulty_before: list[OutputsChange] = []
    for key, of_series in verdicts.items():
        series_changes: list[OutputsChange] = []
        last: date | None = None
        before: ParityVerdict | None = None
        for night, after in sorted(of_series.items()):
            if after is not (before or ParityVerdict.SAME):
                series_changes.append(
                    OutputsChange(
                        series=series[key],
                        night=night,
                        expected=_expected(series[key], annotations, last or night, night),
                        before=before,
                        after=after,
                        last_before=last,
                    )
                )
            last, before = night, after
        candidates = series_changes if question.since is not None else series_changes[-1:]
        selected_changes += [item for item in candidates if item.night >= first]
        earlier = [item for item in series_changes if item.night < first][-1:]
        faulty_before += [item for item in earlier if item.after is not ParityVerdict.SAME]
    selected_changes.sort(
        key=lambda item: (not item.is_worse, item.night, item.series.case.model_name)
    )
    return tuple(selected_changes), tuple(faulty_before)


def _outputs_verdict(mark: RunMark) -> ParityVerdict | None:
    """Return the verdict of a comparison, None for one that proves nothing."""
    if mark.outcome is not Outcome.COMPLETED or NO_EVIDENCE & set(mark.findings):
        return None
    verdicts = [OUTPUT_FINDINGS[code] for code in mark.findings if code in OUTPUT_FINDINGS]
    return max(verdicts, key=lambda verdict: verdict.badness, default=ParityVerdict.SAME)


def campaign_nights(store: Store, campaigns: Sequence[Campaign]) -> dict[CampaignId, date]:
    """Return the night of each campaign but the A/B ones: their old builds don't belong to it."""
    return {
        campaign.campaign_id: night_of(campaign.created_at, store.zone)
        for campaign in campaigns
        if campaign.terms.pairing is None
    }


def read_nights(
    store: Store, campaigns: Mapping[CampaignId, date], since: date | None = None
) -> Nights:
    """Return the newest WINDOW_NIGHTS nights, or those since ``since`` and some before."""
    nights = sorted({*campaigns.values()})
    count = 0 if since is None else sum(night >= since for night in nights) + _LEAD_NIGHTS
    window = nights[-max(WINDOW_NIGHTS, count) :]
    points = store.points(since=first_moment(window[0], store.zone) if window else None)
    read = {item: night for item, night in campaigns.items() if night >= window[0]}
    return Nights(campaigns=campaigns, points=points, table=night_table(points, read))


def check_selection(selection: str) -> None:
    """Refuse a selection that can never fit; raises UsageError."""
    names = {word.lower() for word in SELECTION_WORDS}
    for part in selection.split(","):
        name, equals, _ = part.strip().partition("=")
        if not part.strip() or (equals and name.strip().lower() not in names):
            raise UsageError(
                f"{selection!r} names no series",
                hint=f"a series key, or words such as delegate=gpu; the words are {', '.join(SELECTION_WORDS)}",
            )


def selected(selections: Sequence[str], series: Mapping[SeriesKey, Series]) -> list[SeriesKey]:
    """Return the series that fit any selection.

    Raises UsageError for a selection that none fits.
    """
    attributes = {key: item.words for key, item in series.items()}
    keys: dict[SeriesKey, None] = {}
    for selection in selections:
        check_selection(selection)
        fitting = [key for key, words in attributes.items() if fits(selection, key, words)]
        if attributes and not fitting:
            examples = {
                name: value for words in attributes.values() for name, value in words.items()
            }
            hint = ", ".join(f"{name}={value}" for name, value in examples.items())
            raise UsageError(f"no series fits {selection!r}", hint=f"for example {hint}")
        keys |= dict.fromkeys(fitting)
    return list(keys)


def fits(selection: str, series_key: SeriesKey, words: Mapping[str, str]) -> bool:
    """Whether a series fits a selection; ``*`` stands for any text, capitals don't matter."""
    values = {name.lower(): value.lower() for name, value in words.items()}
    for part in selection.split(","):
        name, equals, pattern = part.strip().lower().partition("=")
        if not equals:
            if not (name == "*" or series_key.startswith(name)):
                return False
        else:
            # Changes name a model without its ending.
            value = values.get(name.strip(), "")
            if not name_fits(pattern.strip(), (value, value.removesuffix(".tflite"))):
                return False
    return True


def _matches(change: Change, table: NightTable, question: Question) -> bool:
    if question.since is None:
        return is_news(change, nights=len(table.nights), threshold=question.threshold)
    is_large = abs(change.ratio - 1) >= question.threshold
    return is_large and change.is_sure and table.nights[change.night] >= question.since


def _comparable_nights(
    table: NightTable,
    reported: Sequence[Change],
    store: Store,
    campaigns: Mapping[CampaignId, date],
) -> tuple[NightTable, set[int]]:
    """Return the table without nights of another kind of figure (mean or median) than the newest,
    and the rows of the series that had any: a median beside a mean is no change.

    Only series with both kinds around a change are checked: on the nights on which it may have
    begun, and the last one before.
    """
    campaigns_by_night = grouped(campaigns, campaigns.__getitem__)
    # An app's result files, which have the medians, may be unreadable on one phone only.
    kinds: dict[tuple[Serial, BuildSha], FigureKind | None] = {}

    def figure_kind(series: int, night: int) -> FigureKind | None:
        build = table.contents[table.contents_at[series, night]].build_sha256
        serial = table.sketches[series].serial
        if (serial, build) not in kinds:
            runs = store.runs(
                campaign_ids=campaigns_by_night[table.nights[night]], serials=[serial]
            )
            kind, figures = of_one_kind([run for run in runs if run.case.build_sha256 == build])
            kinds[serial, build] = kind if figures else None
        return kinds[serial, build]

    latency_us, contents_at = table.latency_us.copy(), table.contents_at.copy()
    changed: set[int] = set()
    for change in reported:
        measured = np.flatnonzero(table.contents_at[change.series] >= 0)
        first = max(0, int(np.searchsorted(measured, change.earliest)) - 1)
        nights_around = measured[first : int(np.searchsorted(measured, change.latest)) + 1].tolist()
        if len({figure_kind(change.series, night) for night in nights_around} - {None}) > 1:
            changed.add(change.series)
            kind_by_night = {
                night: figure_kind(change.series, night) for night in measured.tolist()
            }
            newest = next(kind for kind in reversed(kind_by_night.values()) if kind is not None)
            other = [night for night, kind in kind_by_night.items() if kind not in {None, newest}]
            latency_us[change.series, other] = np.nan
            contents_at[change.series, other] = -1
    return replace(table, latency_us=latency_us, contents_at=contents_at), changed


def _median(row: Floats, nights: int) -> float:
    """Return the median of the first ``nights`` figures, or of the last ones if it is negative."""
    figures = row[np.isfinite(row)]
    return float(np.median(figures[nights:] if nights < 0 else figures[:nights]))


def _grouped(
    described: Sequence[LatencyChange],
    reported: Sequence[Change],
    attributes: Mapping[int, Mapping[str, str]],
) -> tuple[ChangeGroup, ...]:
    """Return the changes in groups of one cause; ``attributes`` are those of every series that is
    selected.
    """
    groups = []
    for group in group_changes(attributes, reported):
        members = tuple(
            sorted(
                (described[item] for item in group.members), key=lambda item: -abs(item.ratio - 1)
            )
        )
        sentence = _sentence(group.words, members, group.series)
        groups.append(ChangeGroup(sentence=sentence, members=members, series=group.series))

    def rank(group: ChangeGroup) -> tuple[bool, int, int, float]:
        return (
            all(item.expected or item.ended is not None for item in group.members),
            min(_RANKS[item.status] for item in group.members),
            -len(group.members),
            # The largest comes first.
            -abs(group.members[0].ratio - 1),
        )

    return tuple(sorted(groups, key=rank))


def _sentence(words: Mapping[str, str], members: Sequence[LatencyChange], series: int) -> str:
    """Return a group's heading: ``cases of GPU Adreno 640 since 2026-03-03: 8.1 % slower (12 of 12 series)``."""
    change = format_slowdown(float(np.median([item.ratio for item in members])))
    # The most frequent night: a phone that was offline shows the change later.
    nights = [item.night for item in members]
    since = f"since {max(sorted(set(nights)), key=nights.count)}"
    if all(item.ended is not None for item in members):
        since = f"{since}, went away on {max(str(item.ended) for item in members)}"
    if len(members) == 1 and not words:
        return f"{members[0].series.label}, {since}: {change}"
    where = ", ".join(f"{name} {value}" for name, value in words.items())
    cases = f"cases of {where}" if where else "all cases"
    return f"{cases} {since}: {change} ({len(members)} of {series} series)"


def parse_night(text: str, workspace: Workspace, label: str) -> date:
    """Return the night that ``30d``, ``4 w`` or ``2026-03-09`` means.

    Raises UsageError, which begins with ``label``, the option's name.
    """
    with suppress(ValueError):
        age = timedelta(seconds=parse_age(text))
        return night_of(workspace.clock.now(), workspace.store.zone) - age
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{label} {text!r} isn't a date", hint="write 2026-03-09, 30d or 4w"
        ) from None
