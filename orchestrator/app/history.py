"""What changed over the nights, and what somebody has said to expect."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

from orchestrator.analysis.changepoint import LEAST_CHANGE, Preset
from orchestrator.bootstrap import Farm
from orchestrator.engine.history import (
    SELECTION_WORDS,
    FoundChange,
    Question,
    Regressions,
    describe_series,
    find_regressions,
    fits,
    moment_of,
)
from orchestrator.errors import UsageError
from orchestrator.records.history import Annotation, ConfirmationStatus

#: What is asked to fail -> the states of a slowdown that do.
FAIL_ON: Final[Mapping[str, frozenset[ConfirmationStatus]]] = {
    "confirmed": frozenset({ConfirmationStatus.CONFIRMED, ConfirmationStatus.EXPLAINED}),
    "unrefuted": frozenset(ConfirmationStatus) - {ConfirmationStatus.REFUTED},
    "never": frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesRequest:
    """Which changes are asked for."""

    #: 30d, 4w or a date; empty: changes of the last nights.
    since: str = ""
    #: Series that count; empty: all.
    selections: tuple[str, ...] = ()
    #: A :class:`Preset`.
    preset: str = Preset.DEFAULT.value
    #: The smallest change to report, as a share.
    threshold: float = LEAST_CHANGE
    #: Whether each unconfirmed change is measured, old against new.
    confirm: bool = False
    #: A key of ``FAIL_ON``.
    fail_on: str = "unrefuted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What was found."""

    found: Regressions
    #: Whether it holds what the request asked to fail on.
    fails: bool
    #: Why nothing was looked at; empty where something was.
    nothing: str = ""


def find_changes(farm: Farm, request: ChangesRequest) -> Changes:
    """Find what changed; with ``confirm``, run old against new first. Raises UsageError."""
    if request.fail_on not in FAIL_ON:
        raise UsageError(f"--fail-on {request.fail_on!r} isn't known", hint=f"choose one of {', '.join(FAIL_ON)}")
    for selection in request.selections:
        _check(selection)
    question = Question(
        since=night_meant(request.since, farm, "--since") if request.since else None,
        selections=request.selections,
        preset=_preset(request.preset),
        threshold=request.threshold,
    )
    found = find_regressions(farm.store, question)
    if request.confirm:
        from orchestrator.app.confirming import confirm_changes

        confirm_changes(farm, found.changes)
        found = find_regressions(farm.store, question)
    # What looked at nothing has shown nothing to be good.
    is_blind = not found.series and not farm.store.series()
    states = FAIL_ON[request.fail_on]
    fails = (
        any(_is_failure(change, states) for change in found.changes)
        # A comparison with the reference is its own proof.
        or any(item.change.is_worse and not item.expected and states for item in found.outputs)
        or (is_blind and bool(states))
    )
    nothing = f"nothing was looked at: no series in {farm.store.name}" if is_blind else ""
    return Changes(found=found, fails=fails, nothing=nothing)


def _is_failure(change: FoundChange, states: frozenset[ConfirmationStatus]) -> bool:
    """Whether it is an unexpected slowdown in one of these states."""
    return not change.expected and change.ratio > 1 and change.status in states


def expect(farm: Farm, selection: str, night: str, text: str) -> tuple[Annotation, int]:
    """Keep that a change is expected; return it, and how many series fit it now. Raises UsageError."""
    _check(selection)
    if not text.strip():
        raise UsageError("the annotation says nothing", hint="write what is expected, for example 'driver 502'")
    kept = Annotation(
        annotation_id=secrets.token_hex(4),
        selection=selection,
        night=night_meant(night, farm, "the date"),
        text=text,
        created_at=farm.clock.now(),
    )
    fitting = sum(fits(selection, key, words) for key, words in describe_series(farm.store).items())
    farm.store.annotate(kept)
    return kept, fitting


def _check(selection: str) -> None:
    """Refuse a selection that can never fit; raises UsageError."""
    known = {word.lower() for word in SELECTION_WORDS}
    for part in selection.split(","):
        name, equals, _ = part.strip().partition("=")
        if not part.strip() or (equals and name.strip().lower() not in known):
            raise UsageError(
                f"{selection!r} names no series",
                hint=f"a series key, or words such as delegate=gpu; the words are {', '.join(SELECTION_WORDS)}",
            )


def night_meant(text: str, farm: Farm, what: str) -> date:
    """Return the night that an option, ``what``, means; raises UsageError."""
    try:
        return moment_of(text, now=farm.clock.now())
    except (ValueError, OverflowError):
        raise UsageError(f"{what} {text!r} isn't a date", hint="write 2026-03-09, 30d or 4w") from None


def _preset(text: str) -> Preset:
    try:
        return Preset(text)
    except ValueError:
        raise UsageError(f"--preset {text!r} isn't known", hint="sensitive, default or quiet") from None
