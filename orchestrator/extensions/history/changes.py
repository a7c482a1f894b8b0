"""What changed over the nights, and what somebody has said to expect."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.extensions.history.regressions import (
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

#: What is asked to fail -> the states of a slowdown that do.
FAIL_ON: Final[Mapping[str, frozenset[ConfirmationStatus]]] = {
    "confirmed": frozenset({ConfirmationStatus.CONFIRMED, ConfirmationStatus.EXPLAINED}),
    "unrefuted": frozenset(ConfirmationStatus) - {ConfirmationStatus.REFUTED},
    "never": frozenset(),
}


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
