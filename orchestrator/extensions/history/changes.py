"""Changes over the nights: confirmed by running old against new on the same phone, and held against
expected ones. The selftest: steps put into stored series, and how soon they are reported.
"""

from __future__ import annotations

import math
import secrets
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from orchestrator.errors import (
    ArtifactError,
    BenchfarmError,
    InterruptedByUserError,
    UsageError,
    check_word,
)
from orchestrator.extensions.history.changepoint import Floats, changes, is_alarm
from orchestrator.extensions.history.regressions import (
    LatencyChange,
    OutputsChange,
    Question,
    Regressions,
    SeriesChange,
    check_selection,
    find_regressions,
    fits,
    parse_night,
)
from orchestrator.extensions.history.series import read_series
from orchestrator.files import sha256_of
from orchestrator.plugins import (
    DeviceNote,
    PairLimits,
    Workspace,
    measure,
    pair_comparison,
    prepare_pair,
    sides_of,
    start,
)
from orchestrator.records import frozen
from orchestrator.records.case import BuildSha
from orchestrator.records.history import Annotation, Confirmation, ConfirmationStatus
from orchestrator.records.plan import SETTINGS, PlanOptions
from orchestrator.records.verdict import ComparisonOutcome, ComparisonVerdict
from orchestrator.tables.labels import STATE_CLASSES
from orchestrator.tables.table import LINES, Column, Kind
from orchestrator.units import format_change

#: Pairs of one confirmation, at most.
_MAX_PAIRS: Final = 40
#: ``--fail-on`` -> the states of a slowdown that fail.
FAIL_ON: Final[Mapping[str, frozenset[ConfirmationStatus]]] = {
    "confirmed": frozenset({ConfirmationStatus.CONFIRMED}),
    "unrefuted": frozenset(ConfirmationStatus) - {ConfirmationStatus.REFUTED},
    "never": frozenset(),
}


def _named(item: SeriesChange) -> str:
    return f"{item.series.key[:12]} {item.series.label}"


def _causes(change: LatencyChange) -> str:
    causes = (
        f"{cause.name} {cause.before} -> {cause.after}, "
        f"{cause.moved} of {cause.exposed} series with it moved"
        for cause in change.causes
    )
    return "; ".join(causes) or "no known change of contents or system"


#: Columns of a change, for 'history changes' and for its series' page, which names the series.
CHANGES: Final[Sequence[Column[LatencyChange]]] = (
    Column("series", value=_named, forms=LINES),
    Column("since", "since (95 %)", lambda it: f"{it.night} ({it.earliest} to {it.latest})"),
    Column(
        "change",
        "change [95 %]",
        lambda item: (
            f"{format_change(item.ratio)} [{format_change(item.low)}, {format_change(item.high)}"
            " between sessions]"
        ),
        tone=lambda item: "keep bad" if item.ratio > 1 else "keep good",
    ),
    Column(
        "time",
        value=lambda item: f"{item.before_us / 1000:.3f} -> {item.after_us / 1000:.3f} ms",
        tone=lambda _: "keep",
    ),
    Column("confidence", value=lambda item: f"{item.confidence * 100:.1f} %"),
    Column(
        "status",
        value=lambda item: item.state,
        tone=lambda item: STATE_CLASSES.get(item.state, "v-warning"),
    ),
    Column("why", value=lambda item: item.expected or item.status_detail, is_optional=True),
    Column("causes", "what changed with it", _causes),
)
OUTPUTS: Final[Sequence[Column[OutputsChange]]] = (
    Column("series", value=_named),
    Column("outputs", value=lambda item: item.turn),
    Column("since", value=lambda item: f"{item.night}"),
    Column("compared", "last compared", lambda item: f"{item.last_before or ''}"),
    Column("expected", value=lambda row: row.expected),
)


@frozen
class Changes:
    """The changes, and whether they fail the command."""

    regressions: Regressions
    #: Whether there is a change that fails by ``--fail-on``.
    fails: bool
    #: Why no series was checked; empty where one was.
    nothing: str = ""


def find_changes(
    workspace: Workspace, question: Question, *, confirm: bool = False, fail_on: str = "unrefuted"
) -> Changes:
    """Return the changes; with ``confirm``, run old against new of each unconfirmed change first.

    Raises UsageError.
    """
    check_word("--fail-on", fail_on, FAIL_ON)
    regressions = find_regressions(workspace.store, question)
    if confirm:
        confirm_changes(workspace, regressions.changes)
        regressions = find_regressions(workspace.store, question)
    # Without a series nothing was checked: that isn't a pass.
    has_no_series = not regressions.series
    states = FAIL_ON[fail_on]
    is_slower = any(
        change.ratio > 1 and change.counts and change.status in states
        for change in regressions.changes
    )
    # A comparison with the reference is its own proof.
    is_worse = any(item.is_worse and not item.expected for item in regressions.outputs)
    which = "selected series" if question.selections else "series"
    return Changes(
        regressions=regressions,
        fails=bool(states) and (is_slower or is_worse or has_no_series),
        nothing=f"nothing was checked: no {which} in {workspace.store.name} has a figure"
        if has_no_series
        else "",
    )


def expect(workspace: Workspace, selection: str, night: str, text: str) -> tuple[Annotation, int]:
    """Store an expected change; return it, and the number of series that fit it now.

    Raises UsageError.
    """
    check_selection(selection)
    if not text.strip():
        raise UsageError(
            "the annotation has no text", hint="write what is expected, for example 'driver 502'"
        )
    annotation = Annotation(
        annotation_id=secrets.token_hex(4),
        selection=selection,
        night=parse_night(night, workspace, "the date"),
        text=text,
        created_at=workspace.clock.now(),
    )
    fitting = sum(
        fits(selection, key, series.words) for key, series in read_series(workspace.store).items()
    )
    workspace.store.annotate(annotation)
    return annotation, fitting


def confirm_changes(workspace: Workspace, changes: Sequence[LatencyChange]) -> None:
    """Run old against new of each lasting, unexpected, unconfirmed change, and store the result."""
    for change in changes:
        if not change.counts or change.status is ConfirmationStatus.CONFIRMED:
            continue
        status, detail, ratio = _outcome(workspace, change)
        workspace.store.confirm(
            Confirmation(
                series_key=change.series.key,
                night=change.night,
                is_slower=change.ratio > 1,
                status=status,
                detail=detail,
                ratio=ratio,
                at=workspace.clock.now(),
            )
        )
        case = change.series.case
        text = f"{case.model_name}, {case.configuration}: {status.value} {detail}".rstrip()
        workspace.observer.on_event(DeviceNote(serial=case.serial, text=text))


def _outcome(
    workspace: Workspace, change: LatencyChange
) -> tuple[ConfirmationStatus, str, float | None]:
    """Return the outcome of an A/B rerun of a change, or why it can't be run now."""
    try:
        sides, models = _sides(workspace, change)
        options = _options(change) | _same_build(workspace, change) | {"models": models}
        # Half of the change must be detectable.
        detect = max(0.01, abs(change.ratio - 1) / 2)
        limits = PairLimits(detect=detect, most=_MAX_PAIRS)
        prepared = prepare_pair(workspace, sides_of(sides, options), limits)
        used = {item.case.build_sha256 for item in prepared.campaign.invocations}
        if used != {change.before.build_sha256, change.after.build_sha256}:
            return ConfirmationStatus.CANNOT, "the program of these nights isn't here", None
        measured = measure(workspace, start(workspace, prepared)).checked()
    except InterruptedByUserError:
        raise
    except BenchfarmError as error:
        return ConfirmationStatus.CANNOT, str(error), None
    if measured.unfinished:
        return ConfirmationStatus.CANNOT, measured.unfinished, None
    rows = pair_comparison(workspace, measured.campaign).rows
    where = f"campaign {measured.campaign.campaign_id}"
    if not rows:
        return ConfirmationStatus.CANNOT, f"nothing was measured ({where})", None
    verdict = rows[0].verdict
    status = rerun_status(verdict, change.ratio)
    if verdict.outcome is ComparisonOutcome.INCOMPARABLE:
        return status, f"{'; '.join(verdict.reasons)} ({where})", verdict.ratio
    size = "no figure" if verdict.ratio is None else format_change(verdict.ratio)
    outcome = "" if status is ConfirmationStatus.CONFIRMED else f"{verdict.outcome.value}, "
    return status, f"{outcome}{size} in {where}", verdict.ratio


def rerun_status(verdict: ComparisonVerdict, ratio: float) -> ConfirmationStatus:
    """Return the status that a rerun's verdict gives a change of this ratio (new / old).

    A rerun without a decision refutes it where its interval excludes half of the change.
    """
    confirming = ComparisonOutcome.SLOWER if ratio > 1 else ComparisonOutcome.FASTER
    if verdict.outcome is confirming:
        return ConfirmationStatus.CONFIRMED
    half, end = math.sqrt(ratio), verdict.high if ratio > 1 else verdict.low
    is_out = end is not None and (end < half if ratio > 1 else end > half)
    is_decided = verdict.outcome is not ComparisonOutcome.INCOMPARABLE and is_out
    return ConfirmationStatus.REFUTED if is_decided else ConfirmationStatus.CANNOT


def _sides(workspace: Workspace, change: LatencyChange) -> tuple[tuple[str, str], tuple[Path, ...]]:
    """Return the sides of the rerun and the models that both have in common.

    Raises:
        UsageError: neither build nor model changed, both did, or one of them is no longer on this
            computer.
    """
    before, after = change.before, change.after
    other_build = before.build_sha256 != after.build_sha256
    other_model = before.model_sha256 != after.model_sha256
    if other_build == other_model:
        if other_build:
            raise UsageError("both build and model changed: run each alone with 'benchfarm ab'")
        raise UsageError("neither build nor model changed: there is no old against new to run")
    models = [
        _unchanged(workspace, sha256, "model ")
        for sha256 in ([before.model_sha256] if other_model else []) + [after.model_sha256]
    ]
    if other_model:
        return (f"model:{models[0]}", f"model:{models[1]}"), ()
    old, new = (_build(workspace, sha256) for sha256 in (before.build_sha256, after.build_sha256))
    return (f"build:{old}", f"build:{new}"), tuple(models)


def _same_build(workspace: Workspace, change: LatencyChange) -> PlanOptions:
    """Return the option that names the build of both sides where the model changed; none for a
    program that is only on the phone.
    """
    sha256 = change.after.build_sha256
    if change.before.build_sha256 == sha256:
        with suppress(UsageError):
            return {"builds": {change.series.case.tool.value: _build(workspace, sha256)}}
    return {}


def _build(workspace: Workspace, sha256: BuildSha) -> str:
    """Return a build as ``--build`` takes it: from the archive, or where its campaign had it."""
    name = workspace.store.builds()[sha256].name
    try:
        return workspace.library.find_release(f"{name}@{sha256}").address
    except ArtifactError:
        return str(_unchanged(workspace, sha256, f"build {name}@"))


def _unchanged(workspace: Workspace, sha256: str, label: str) -> Path:
    """Return a file with this content, from the paths in this computer's campaigns.

    Such a path may hold a newer content by now. Raises UsageError.
    """
    campaigns = workspace.store.campaigns()
    for path in map(Path, dict.fromkeys(item.terms.files.get(sha256, "") for item in campaigns)):
        if path.is_file() and sha256_of(path) == sha256:
            return path
    raise UsageError(f"the {label}{sha256[:12]} is no longer on this computer")


def _options(change: LatencyChange) -> PlanOptions:
    case = change.series.case
    return PlanOptions(
        delegates=case.delegate.value,
        threads=case.threads,
        tools=case.tool.value,
        devices=case.serial,
        flags=dict(case.flags),
        modes=None if case.mode is None else case.mode.value,
        name="confirm",
        **{name: getattr(case, name) for name in SETTINGS},
    )


STEPS: Final = (1.03, 1.05, 1.10, 1.20)
#: A step that isn't reported after this many nights counts as missed.
NIGHTS: Final = 5
#: Shorter series have no level to compare a step with.
MIN_NIGHTS: Final = 10
#: Series into which steps are put, at most, evenly spread over all.
_MAX_SERIES: Final = 20


@frozen
class Detection:
    """The detection of one size of step."""

    step: float
    #: Series in which it was reported within NIGHTS, of ``series``.
    detected: int
    series: int
    #: Median of the nights from the first slow one to the first report; None for no report.
    delay: float | None


DETECTIONS: Final[Sequence[Column[Detection]]] = (
    Column(
        "step",
        value=lambda row: row.step - 1,
        kind=Kind.NUMBER,
        shown=lambda row: format_change(row.step),
    ),
    Column("found", value=lambda row: row.detected, kind=Kind.COUNT),
    Column("series", "of series", lambda row: row.series, kind=Kind.COUNT),
    Column("delay", "after nights", lambda row: row.delay, kind=Kind.NUMBER, digits=1),
)


def detections(latency: Floats) -> Iterator[Detection]:
    """Yield the detection of each size of step, the smallest first, in some of the series that are
    long enough.

    Each step is put into one series at a time, as if it had begun on one of the newest nights.
    ``latency``: series x nights, NaN for no figure.
    """
    has_figure = np.isfinite(latency) & (latency > 0)
    long = np.flatnonzero(has_figure.sum(axis=1) >= MIN_NIGHTS)
    chosen = long[:: max(1, -(-long.size // _MAX_SERIES))]
    for step in STEPS:
        delays = [
            _delay(latency[chosen], has_figure[chosen], series, step)
            for series in range(chosen.size)
        ]
        reported = [delay for delay in delays if delay is not None]
        yield Detection(
            step=step,
            detected=len(reported),
            series=chosen.size,
            delay=statistics.median(reported) if reported else None,
        )


def _delay(values: Floats, has_figure: np.ndarray, series: int, step: float) -> int | None:
    """Return the number of nights after which a step in one series is reported; None: not within
    NIGHTS.
    """
    nights = np.flatnonzero(has_figure[series])
    for delay in range(1, NIGHTS + 1):
        stepped = values.copy()
        stepped[series, nights[-delay:]] *= step
        for change in changes(stepped):
            is_step = change.series == series and change.earliest <= nights[-delay] <= change.latest
            if is_step and change.ratio > 1 and is_alarm(change, nights=values.shape[1]):
                return delay
    return None
