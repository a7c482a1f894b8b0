"""What changed over the nights, and what somebody has said to expect."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.extensions.history.regressions import (
    FoundChange,
    OutputsChange,
    Question,
    Regressions,
    check_selection,
    describe_series,
    find_regressions,
    fits,
    moment_of,
)
from orchestrator.plugins import Workspace
from orchestrator.records.history import Annotation, ConfirmationStatus
from orchestrator.tables.column import LINES, Column
from orchestrator.tables.labels import STATE_CLASSES
from orchestrator.units import format_change

#: What is asked to fail -> the states of a slowdown that do.
FAIL_ON: Final[Mapping[str, frozenset[ConfirmationStatus]]] = {
    "confirmed": frozenset({ConfirmationStatus.CONFIRMED}),
    "unrefuted": frozenset(ConfirmationStatus) - {ConfirmationStatus.REFUTED},
    "never": frozenset(),
}


def _named(item: FoundChange | OutputsChange) -> str:
    return f"{item.series_key[:12]} {item.label}{' [virtual]' if item.is_virtual else ''}"


def _causes(change: FoundChange) -> str:
    causes = (
        f"{cause.name} {cause.before} -> {cause.after}, "
        f"{cause.moved} of {cause.exposed} series with it moved"
        for cause in change.causes
    )
    return "; ".join(causes) or "nothing that is known changed"


#: What is told of a change: by 'history changes', and on its series' page, which has the name.
CHANGES: Final[Sequence[Column[FoundChange]]] = (
    Column("series", "series", _named, forms=LINES),
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
        "time",
        lambda item: f"{item.before_us / 1000:.3f} -> {item.after_us / 1000:.3f} ms",
        tone=lambda _: "keep",
    ),
    Column("confidence", "confidence", lambda item: f"{item.confidence * 100:.1f} %"),
    Column(
        "status",
        "status",
        lambda item: item.state,
        tone=lambda item: STATE_CLASSES.get(item.state, "v-warning"),
    ),
    Column("why", "why", lambda item: item.expected or item.status_detail, is_optional=True),
    Column("causes", "what changed with it", _causes),
)
OUTPUTS: Final[Sequence[Column[OutputsChange]]] = (
    Column("series", "series", _named),
    Column("outputs", "outputs", lambda item: item.turn),
    Column("since", "since", lambda item: f"{item.night}"),
    Column(
        "compared",
        "last compared",
        lambda item: f"{item.last_before or ''}",
    ),
    Column("expected", "expected", lambda item: item.expected),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What was found."""

    found: Regressions
    #: Whether it holds what was asked to fail on.
    fails: bool
    #: Why nothing was looked at; empty where something was.
    nothing: str = ""


def find_changes(
    workspace: Workspace, question: Question, *, confirm: bool = False, fail_on: str = "unrefuted"
) -> Changes:
    """Find what changed; with ``confirm``, run old against new of each unconfirmed change first.

    Raises UsageError.
    """
    if fail_on not in FAIL_ON:
        raise UsageError(
            f"--fail-on {fail_on!r} isn't known", hint=f"choose one of {', '.join(FAIL_ON)}"
        )
    found = find_regressions(workspace.store, question)
    if confirm:
        from orchestrator.extensions.history.confirming import confirm_changes

        confirm_changes(workspace, found.changes)
        found = find_regressions(workspace.store, question)
    # What looked at nothing has shown nothing to be good.
    is_blind = not found.series and not workspace.store.series()
    states = FAIL_ON[fail_on]
    is_slower = any(
        change.ratio > 1 and change.status in states and not change.expected
        for change in found.changes
    )
    # A comparison with the reference is its own proof.
    is_worse = any(item.is_worse and not item.expected for item in found.outputs)
    return Changes(
        found=found,
        fails=bool(states) and (is_slower or is_worse or is_blind),
        nothing=f"nothing was looked at: no series in {workspace.store.name}" if is_blind else "",
    )


def expect(workspace: Workspace, selection: str, night: str, text: str) -> tuple[Annotation, int]:
    """Keep that a change is expected; return it, and how many series fit it now.

    Raises UsageError.
    """
    check_selection(selection)
    if not text.strip():
        raise UsageError(
            "the annotation says nothing", hint="write what is expected, for example 'driver 502'"
        )
    kept = Annotation(
        annotation_id=secrets.token_hex(4),
        selection=selection,
        night=night_meant(night, workspace, "the date"),
        text=text,
        created_at=workspace.clock.now(),
    )
    fitting = sum(
        fits(selection, key, words) for key, words in describe_series(workspace.store).items()
    )
    workspace.store.annotate(kept)
    return kept, fitting


def night_meant(text: str, workspace: Workspace, what: str) -> date:
    """Return the night that an option, ``what``, means; raises UsageError."""
    try:
        return moment_of(text, now=workspace.clock.now(), zone=workspace.store.zone)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{what} {text!r} isn't a date", hint="write 2026-03-09, 30d or 4w"
        ) from None
