"""What changed over the nights, in all series of a store: found, attributed, grouped, and held
against annotations.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import numpy as np

from orchestrator.analysis.outcome import of_one_kind
from orchestrator.errors import UsageError
from orchestrator.extensions.history.causes import Cause, Causes, group_changes, sides_of
from orchestrator.extensions.history.changepoint import (
    RECENT_NIGHTS,
    WINDOW_NIGHTS,
    Change,
    Floats,
    changes,
    is_news,
)
from orchestrator.extensions.history.series import (
    NightTable,
    Series,
    first_moment,
    night_of,
    night_table,
    read_series,
)
from orchestrator.frozen import frozen
from orchestrator.plugins import Workspace
from orchestrator.records.case import BuildSha, CampaignId, Serial, SeriesKey, grouped
from orchestrator.records.history import (
    LEAST_CHANGE,
    Annotation,
    Confirmation,
    ConfirmationStatus,
    Contents,
    Points,
    RunMark,
)
from orchestrator.records.run import FigureKind, Outcome
from orchestrator.records.verdict import NO_EVIDENCE, OUTPUT_FINDINGS, ParityVerdict
from orchestrator.units import format_slowdown

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: Nights before the first that is asked for, so that its change has something to be a change from.
_LEAD_NIGHTS: Final = 60
#: A series without a figure in so many of the newest nights is told of.
SILENT_NIGHTS: Final = 3
#: Groups with a change that is sure go first, refuted ones last.
_RANKS: Final = {
    ConfirmationStatus.CONFIRMED: 0,
    ConfirmationStatus.UNCONFIRMED: 1,
    ConfirmationStatus.CANNOT: 1,
    ConfirmationStatus.REFUTED: 2,
}
#: Words that a selection may use, beside a series' key.
SELECTION_WORDS: Final = ("delegate", "model", "serial", "phone", "soc", "GPU", "tool", "threads")
#: What people are told of a change that lasts and that nobody expected.
STATES: Final[Mapping[ConfirmationStatus, str]] = {
    ConfirmationStatus.UNCONFIRMED: "not confirmed yet",
    ConfirmationStatus.CONFIRMED: "confirmed",
    ConfirmationStatus.REFUTED: "refuted",
    ConfirmationStatus.CANNOT: "can't be confirmed",
}


@frozen
class SeriesChange:
    """A night from which a series is another one."""

    series: Series
    night: date
    #: What somebody wrote who expected it; empty for an unexpected one.
    expected: str = ""


@frozen
class FoundChange(SeriesChange):
    """A change of a series' latency, with what is known about it; ``night`` is the first one of the
    new level.
    """

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
    #: Whether it is told where nobody asks since when: it is of the last nights.
    is_news: bool
    #: The night on which the series was back at the level before; None while the new one lasts.
    ended: date | None = None
    causes: tuple[Cause, ...] = ()
    status: ConfirmationStatus = ConfirmationStatus.UNCONFIRMED
    status_detail: str = ""
    #: What the series measured before it may have begun, and on the last night that it may have.
    before: Contents
    after: Contents

    @property
    def state(self) -> str:
        """What became of it, in words."""
        if self.expected:
            return "expected"
        return STATES[self.status] if self.ended is None else f"went away on {self.ended}"

    @property
    def counts(self) -> bool:
        """Whether it is still to be looked at: it lasts, nobody expected it, and nothing refuted it."""
        is_refuted = self.status is ConfirmationStatus.REFUTED
        return not self.expected and not is_refuted and self.ended is None


@frozen
class OutputsChange(SeriesChange):
    """A night from which comparisons with the reference say something else of a series' outputs."""

    #: ``same``, ``drift`` or ``wrong``; None when they were never compared before.
    before: ParityVerdict | None
    after: ParityVerdict
    #: The last night that was compared before; None when there is none.
    last_before: date | None

    @property
    def is_worse(self) -> bool:
        """Whether they are worth less than before."""
        return self.after.badness > (self.before.badness if self.before is not None else 0)

    @property
    def turn(self) -> str:
        """What they turned from and to, in words."""
        return f"{self.before or 'not compared before'} -> {self.after}"


@frozen
class ChangeGroup:
    """Changes that happened together, in one sentence."""

    sentence: str
    members: tuple[FoundChange, ...]
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
    #: Where outputs that were wrong or drifted when these nights began had become so.
    faulty_before: tuple[OutputsChange, ...] = ()
    #: Series without a figure in the newest SILENT_NIGHTS nights.
    silent: tuple[Series, ...] = ()
    #: Series whose program began to print medians, or ended it: nights before aren't compared.
    other_figures: int = 0

    @property
    def changes(self) -> tuple[FoundChange, ...]:
        """All changes, group by group."""
        return tuple(change for group in self.groups for change in group.members)


@frozen
class Question:
    """What is asked for."""

    #: None: what is news, the changes of the last 14 nights.
    since: date | None = None
    selections: tuple[str, ...] = ()
    #: The smallest change that counts, as a share.
    threshold: float = LEAST_CHANGE


def find_regressions(
    store: Store, question: Question, *, table: NightTable | None = None
) -> Regressions:
    """Return every change that a question asks for, attributed and grouped; those that matter most
    first.

    ``table``: the nights, where they were read already. Raises UsageError for a selection that no
    series of a store that has some fits.
    """
    wanted: Sequence[SeriesKey] = ()
    if question.selections:
        wanted = selected(question.selections, read_series(store))
    if table is None:
        table, _ = read_nights(store, since=question.since)
    marks = store.marks(series_keys=wanted)
    # After all that was read of them: one may begin meanwhile.
    known = read_series(store)
    campaigns = campaign_nights(store)
    newest = sorted({*campaigns.values()})[-WINDOW_NIGHTS:]
    cuts = _all_changes(table, newest)
    found = [change for change in cuts if _is_asked_for(change, table, question)]
    alike, other_figures = _of_one_kind(table, found, store, campaigns)
    if other_figures:
        table = alike
        cuts = _all_changes(table, newest)
        found = [change for change in cuts if _is_asked_for(change, table, question)]
    # All series say what is noise and what is common: only the answer is selected.
    keys = set(wanted or table.series)
    chosen = [place for place, key in enumerate(table.series) if key in keys]
    place_of = {place: number for number, place in enumerate(chosen)}
    found = [change for change in found if change.series in place_of]
    annotations = store.annotations()
    causes = Causes(store, table, found, cuts)
    confirmations = _confirmations(store, table, cuts)
    members = []
    for change in found:
        series = known[table.series[change.series]]
        night, earliest, latest = (
            table.nights[place] for place in (change.night, change.earliest, change.latest)
        )
        confirmation = confirmations.get((change.series, change.night))
        row = table.latency_us[change.series]
        before, after = sides_of(change, table)
        members.append(
            FoundChange(
                series=series,
                night=night,
                expected=_expected(series, annotations, earliest, latest),
                earliest=earliest,
                latest=latest,
                ratio=change.ratio,
                low=change.low,
                high=change.high,
                confidence=change.confidence,
                before_us=_median_of(row[: change.night], -change.nights_before),
                after_us=_median_of(row[change.night :], change.nights_after),
                nights_after=change.nights_after,
                is_news=is_news(change, nights=len(table.nights)),
                ended=None if change.ended is None else table.nights[change.ended],
                causes=causes.of(change),
                status=confirmation.status if confirmation else ConfirmationStatus.UNCONFIRMED,
                status_detail=confirmation.detail if confirmation else "",
                before=before,
                after=after,
            )
        )
    outputs, faulty_before = _outputs(question, marks, campaigns, known, annotations)
    return Regressions(
        since=question.since,
        nights=len(table.nights),
        series=len(chosen),
        groups=_grouped(
            members,
            [replace(change, series=place_of[change.series]) for change in found],
            [known[table.series[place]].words for place in chosen],
        ),
        outputs=outputs,
        faulty_before=faulty_before,
        silent=tuple(
            known[table.series[place]]
            for place in chosen
            if not np.isfinite(table.latency_us[place, -SILENT_NIGHTS:]).any()
        ),
        other_figures=len(other_figures & place_of.keys()),
    )


def _all_changes(table: NightTable, window: Sequence[date]) -> list[Change]:
    """Return every change of a table. What is news is found in the store's newest nights alone
    (``window``): every list has the same, whatever else it reads.
    """
    phones, nights = [sketch.serial for sketch in table.sketches], len(table.nights)
    found = changes(table.latency_us, phones=phones)
    older = bisect_left(table.nights, window[0]) if window else 0
    if not older:
        return found
    newest = [change.later(older) for change in changes(table.latency_us[:, older:], phones=phones)]
    # Of each series, where its news begins.
    first = {
        change.series: change.earliest
        for change in reversed(newest)
        if is_news(change, nights=nights)
    }
    kept = [
        change
        for change in found
        if not is_news(change, nights=nights) and change.night < first.get(change.series, nights)
    ]
    late = [change for change in newest if change.night >= first.get(change.series, nights)]
    return sorted([*kept, *late], key=lambda change: (change.series, change.night))


def _expected(
    series: Series, annotations: Sequence[Annotation], earliest: date, latest: date
) -> str:
    """Return what somebody wrote who expected a change of these nights, one more on each side."""
    day, words = timedelta(days=1), series.words
    notes = (
        item.text
        for item in annotations
        if earliest - day <= item.night <= latest + day and fits(item.selection, series.key, words)
    )
    return next(notes, "")


def _confirmations(
    store: Store, table: NightTable, cuts: Sequence[Change]
) -> dict[tuple[int, int], Confirmation]:
    """Return the newest confirmation of each change, by the places of its series and night.

    The night of a change is an estimate, which moves: a confirmation belongs to the nearest change
    of its direction that may have begun on its night, and that had when it was measured.
    """
    changes_of, nights = grouped(cuts, lambda change: table.series[change.series]), table.nights
    found = {}
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
            found[nearest.series, nearest.night] = item
    return found


def _outputs(
    question: Question,
    marks: Sequence[RunMark],
    campaigns: Mapping[CampaignId, date],
    series: Mapping[SeriesKey, Series],
    annotations: Sequence[Annotation],
) -> tuple[tuple[OutputsChange, ...], tuple[OutputsChange, ...]]:
    """Return the changes of outputs that a question asks for: since a night, or each series' newest
    if it is news; and the last ones before that, of outputs that were wrong or drifted then.

    Of several comparisons of a night the worst counts.
    """
    newest = sorted({*campaigns.values()})[-RECENT_NIGHTS:]
    first = question.since or min(newest, default=date.min)
    verdicts: dict[SeriesKey, dict[date, ParityVerdict]] = {}
    for mark in marks:
        verdict, night = _outputs_of(mark), campaigns.get(mark.campaign_id)
        if verdict is not None and night is not None:
            of_series = verdicts.setdefault(mark.series_key, {})
            of_series[night] = max(
                verdict, of_series.get(night, verdict), key=lambda item: item.badness
            )
    found: list[OutputsChange] = []
    faulty_before: list[OutputsChange] = []
    for key, of_series in verdicts.items():
        own: list[OutputsChange] = []
        last: date | None = None
        before: ParityVerdict | None = None
        for night, after in sorted(of_series.items()):
            if after is not (before or ParityVerdict.SAME):
                own.append(
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
        asked = own if question.since is not None else own[-1:]
        found += [item for item in asked if item.night >= first]
        older = [item for item in own if item.night < first][-1:]
        faulty_before += [item for item in older if item.after is not ParityVerdict.SAME]
    found.sort(key=lambda item: (not item.is_worse, item.night, item.series.case.model_name))
    return tuple(found), tuple(faulty_before)


def _outputs_of(mark: RunMark) -> ParityVerdict | None:
    """Return the verdict of a comparison, None for one that proves nothing."""
    if mark.outcome is not Outcome.COMPLETED or NO_EVIDENCE & set(mark.findings):
        return None
    told = [OUTPUT_FINDINGS[code] for code in mark.findings if code in OUTPUT_FINDINGS]
    return max(told, key=lambda verdict: verdict.badness, default=ParityVerdict.SAME)


def campaign_nights(store: Store) -> dict[CampaignId, date]:
    """Return the night of each campaign that counts; an A/B campaign's old builds are no news of
    the night.
    """
    return {
        campaign.campaign_id: night_of(campaign.created_at, store.zone)
        for campaign in store.campaigns()
        if campaign.terms.pairing is None
    }


def read_nights(store: Store, *, since: date | None) -> tuple[NightTable, Points]:
    """Return the window's nights, with some before ``since``, and what was read for them (of all
    campaigns).
    """
    campaigns = campaign_nights(store)
    nights = sorted({*campaigns.values()})
    asked = 0 if since is None else sum(night >= since for night in nights) + _LEAD_NIGHTS
    kept = nights[-max(WINDOW_NIGHTS, asked) :]
    points = store.points(since=first_moment(kept[0], store.zone) if kept else None)
    only = {campaign_id for campaign_id, night in campaigns.items() if night >= kept[0]}
    return night_table(points, only=only, zone=store.zone), points


def check_selection(selection: str) -> None:
    """Refuse a selection that can never fit; raises UsageError."""
    known = {word.lower() for word in SELECTION_WORDS}
    for part in selection.split(","):
        name, equals, _ = part.strip().partition("=")
        if not part.strip() or (equals and name.strip().lower() not in known):
            raise UsageError(
                f"{selection!r} names no series",
                hint=f"a series key, or words such as delegate=gpu; the words are {', '.join(SELECTION_WORDS)}",
            )


def selected(selections: Sequence[str], series: Mapping[SeriesKey, Series]) -> list[SeriesKey]:
    """Return the series that fit any selection.

    Raises UsageError for a selection that none fits.
    """
    attributes = {key: item.words for key, item in series.items()}
    found: dict[SeriesKey, None] = {}
    for selection in selections:
        check_selection(selection)
        fitting = [key for key, words in attributes.items() if fits(selection, key, words)]
        if attributes and not fitting:
            known = {name: value for words in attributes.values() for name, value in words.items()}
            hint = ", ".join(f"{name}={value}" for name, value in known.items())
            raise UsageError(f"no series fits {selection!r}", hint=f"for example {hint}")
        found |= dict.fromkeys(fitting)
    return list(found)


def fits(selection: str, series_key: SeriesKey, words: Mapping[str, str]) -> bool:
    """Whether a series fits a selection; ``*`` stands for any text, capitals don't matter."""
    known = {name.lower(): value.lower() for name, value in words.items()}
    for part in selection.split(","):
        name, equals, pattern = part.strip().lower().partition("=")
        if not equals:
            if not (name == "*" or series_key.startswith(name)):
                return False
        else:
            # Changes name a model without its ending.
            value = known.get(name.strip(), "")
            spelled = {value, value.removesuffix(".tflite")}
            escaped = pattern.strip().replace("[", "[[]")
            if not any(fnmatchcase(item, escaped) for item in spelled):
                return False
    return True


def _is_asked_for(change: Change, table: NightTable, question: Question) -> bool:
    if question.since is None:
        return is_news(change, nights=len(table.nights), threshold=question.threshold)
    is_large = abs(change.ratio - 1) >= question.threshold
    return is_large and change.is_sure and table.nights[change.night] >= question.since


def _of_one_kind(
    table: NightTable,
    found: Sequence[Change],
    store: Store,
    campaigns: Mapping[CampaignId, date],
) -> tuple[NightTable, set[int]]:
    """Return nights without those before a program printed medians instead of means, or back, and in
    which series: a median beside a mean is no change.

    Such are series with figures of both kinds around a change: on the nights on which it may have
    begun, and the last one before.
    """
    at_once = grouped(campaigns, campaigns.__getitem__)
    # An app's files, which have the medians, may be refused on one phone alone.
    kinds: dict[tuple[Serial, BuildSha], FigureKind | None] = {}

    def kind_of(series: int, night: int) -> FigureKind | None:
        build = table.contents[table.contents_at[series, night]].build_sha256
        serial = table.sketches[series].serial
        if (serial, build) not in kinds:
            runs = store.runs(campaign_ids=at_once[table.nights[night]], serials=[serial])
            kind, figures = of_one_kind([run for run in runs if run.case.build_sha256 == build])
            kinds[serial, build] = kind if figures else None
        return kinds[serial, build]

    latency_us, contents_at = table.latency_us.copy(), table.contents_at.copy()
    changed: set[int] = set()
    for change in found:
        there = np.flatnonzero(table.contents_at[change.series] >= 0)
        first = max(0, int(np.searchsorted(there, change.earliest)) - 1)
        near = there[first : int(np.searchsorted(there, change.latest)) + 1].tolist()
        if len({kind_of(change.series, night) for night in near} - {None}) > 1:
            changed.add(change.series)
            known = {night: kind_of(change.series, night) for night in there.tolist()}
            newest = next(kind for kind in reversed(known.values()) if kind is not None)
            other = [night for night, kind in known.items() if kind not in {None, newest}]
            latency_us[change.series, other] = np.nan
            contents_at[change.series, other] = -1
    return replace(table, latency_us=latency_us, contents_at=contents_at), changed


def _median_of(row: Floats, nights: int) -> float:
    """Return the median of the first so many figures, of the last for a negative number."""
    there = row[np.isfinite(row)]
    return float(np.median(there[nights:] if nights < 0 else there[:nights]))


def _grouped(
    described: Sequence[FoundChange],
    found: Sequence[Change],
    attributes: Sequence[Mapping[str, str]],
) -> tuple[ChangeGroup, ...]:
    """Return the changes that happened together; ``attributes`` are those of every series."""
    made = []
    for group in group_changes(attributes, found):
        members = tuple(
            sorted(
                (described[item] for item in group.members), key=lambda item: -abs(item.ratio - 1)
            )
        )
        sentence = _sentence(group.words, members, group.series)
        made.append(ChangeGroup(sentence=sentence, members=members, series=group.series))

    def rank(group: ChangeGroup) -> tuple[bool, int, int, float]:
        return (
            all(item.expected or item.ended is not None for item in group.members),
            min(_RANKS[item.status] for item in group.members),
            -len(group.members),
            -max(abs(item.ratio - 1) for item in group.members),
        )

    return tuple(sorted(made, key=rank))


def _sentence(words: Mapping[str, str], members: Sequence[FoundChange], series: int) -> str:
    """Return what happened: ``cases of GPU Adreno 640 since 2026-03-03: 8.1 % slower (12 of 12 series)``."""
    change = format_slowdown(float(np.median([item.ratio for item in members])))
    # The night that most members name: a phone that was away sees it later.
    nights = [item.night for item in members]
    since = f"since {max(sorted(set(nights)), key=nights.count)}"
    if all(item.ended is not None for item in members):
        since = f"{since}, went away on {max(str(item.ended) for item in members)}"
    if len(members) == 1 and not words:
        return f"{members[0].series.label}, {since}: {change}"
    where = ", ".join(f"{name} {value}" for name, value in words.items())
    cases = f"cases of {where}" if where else "all cases"
    return f"{cases} {since}: {change} ({len(members)} of {series} series)"


def night_meant(text: str, workspace: Workspace, what: str) -> date:
    """Return the night that ``30d``, ``4w`` or ``2026-03-09`` means.

    Raises UsageError, which says what option that is.
    """
    try:
        if text[-1:] in ("d", "w") and text[:-1].isdigit():
            days = int(text[:-1]) * (7 if text.endswith("w") else 1)
            return night_of(workspace.clock.now(), workspace.store.zone) - timedelta(days=days)
        return date.fromisoformat(text)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{what} {text!r} isn't a date", hint="write 2026-03-09, 30d or 4w"
        ) from None
