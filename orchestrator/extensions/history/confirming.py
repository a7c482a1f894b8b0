"""Changes that were found, confirmed by running old against new on the same phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from orchestrator.app.pairing import AbRequest, measure, pair_comparison, pairing_of, prepare
from orchestrator.engine.events import DeviceNote
from orchestrator.errors import ArtifactError, BenchfarmError, InterruptedByUserError, UsageError
from orchestrator.extensions.history.regressions import FoundChange
from orchestrator.files import sha256_of
from orchestrator.plugins import Workspace
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.case import BuildSha
from orchestrator.records.history import Confirmation, ConfirmationStatus
from orchestrator.records.plan import PlanOptions
from orchestrator.records.verdict import ComparisonOutcome
from orchestrator.units import format_change

#: Pairs of one confirmation, at most.
_MOST_PAIRS: Final = 40


def confirm_changes(workspace: Workspace, changes: Sequence[FoundChange]) -> None:
    """Run each unconfirmed, unexpected, lasting change's old side against its new one, and keep what came of
    it.
    """
    for change in changes:
        if (
            change.expected
            or change.ended is not None
            or change.status
            not in (
                ConfirmationStatus.UNCONFIRMED,
                ConfirmationStatus.CANNOT,
            )
        ):
            continue
        status, detail, ratio = _outcome(workspace, change)
        workspace.store.confirm(
            Confirmation(
                series_key=change.series_key,
                night=change.night,
                status=status,
                detail=detail,
                ratio=ratio,
                at=workspace.clock.now(),
            )
        )
        text = f"{change.case.model_name}, {change.case.configuration}: {status.value} {detail}".rstrip()
        workspace.observer.on_event(DeviceNote(serial=change.case.serial, text=text))


def _outcome(
    workspace: Workspace, change: FoundChange
) -> tuple[ConfirmationStatus, str, float | None]:
    """Return the outcome of an A/B rerun of a change, or why it can't be run now."""
    try:
        sides, models = _sides(workspace, change)
        prepared = prepare(workspace, _request(change, sides, models))
        if pairing_of(prepared.campaign).is_same:
            return ConfirmationStatus.CANNOT, "old and new are of the same content here", None
        result = measure(workspace, prepared)
    except InterruptedByUserError:
        raise
    except BenchfarmError as error:
        return ConfirmationStatus.CANNOT, str(error), None
    if result.status is not CampaignStatus.FINISHED:
        return ConfirmationStatus.CANNOT, next(iter(result.lost.values()), "it was abandoned"), None
    rows = pair_comparison(workspace, result.campaign).rows
    where = f"campaign {result.campaign.campaign_id}"
    if not rows:
        return ConfirmationStatus.CANNOT, f"nothing was measured ({where})", None
    verdict = rows[0].verdict
    wanted = ComparisonOutcome.SLOWER if change.ratio > 1 else ComparisonOutcome.FASTER
    if verdict.outcome is wanted:
        return ConfirmationStatus.CONFIRMED, f"{_size(verdict.ratio)} in {where}", verdict.ratio
    if verdict.outcome is ComparisonOutcome.INCOMPARABLE:
        return ConfirmationStatus.CANNOT, f"{'; '.join(verdict.reasons)} ({where})", verdict.ratio
    return (
        ConfirmationStatus.REFUTED,
        f"{verdict.outcome.value}, {_size(verdict.ratio)} in {where}",
        verdict.ratio,
    )


def _size(ratio: float | None) -> str:
    return "no figure" if ratio is None else format_change(ratio)


def _sides(workspace: Workspace, change: FoundChange) -> tuple[tuple[str, str], tuple[Path, ...]]:
    """Return the sides of the rerun and the models that both have in common.

    Raises:
        UsageError: neither build nor model changed, both did, or one of them is no longer on this
            computer.
    """
    before, after = change.before, change.after
    other_build = before.build_sha256 != after.build_sha256
    other_model = before.model_sha256 != after.model_sha256
    if other_build == other_model:
        what = "both build and model changed" if other_build else "neither build nor model changed"
        raise UsageError(f"{what}: there is no old against new to run")
    files = _files(workspace)
    if other_model:
        old, new = (_model(files, sha256) for sha256 in (before.model_sha256, after.model_sha256))
        return (f"model:{old}", f"model:{new}"), ()
    sides = [
        f"build:{_build(workspace, files, sha256)}"
        for sha256 in (before.build_sha256, after.build_sha256)
    ]
    return (sides[0], sides[1]), (_model(files, after.model_sha256),)


def _files(workspace: Workspace) -> dict[str, list[Path]]:
    """Return where contents lay on this computer, as its campaigns knew it; the newest first."""
    found: dict[str, list[Path]] = {}
    for campaign in workspace.store.campaigns():
        for sha256, path in campaign.terms.files.items():
            found.setdefault(sha256, []).append(Path(path))
    return found


def _build(workspace: Workspace, files: Mapping[str, Sequence[Path]], sha256: BuildSha) -> str:
    """Return a build as ``--build`` takes it: from the archive, or where its campaign had it."""
    name = workspace.store.builds()[sha256].name
    try:
        release = workspace.library.find_release(f"{name}@{sha256}")
    except ArtifactError:
        path = _unchanged(files, sha256)
        if path is None:
            raise UsageError(
                f"the build {name}@{sha256[:12]} is no longer on this computer"
            ) from None
        return str(path)
    return release.address


def _model(files: Mapping[str, Sequence[Path]], sha256: str) -> Path:
    path = _unchanged(files, sha256)
    if path is None:
        raise UsageError(f"the model {sha256[:12]} is no longer on this computer")
    return path


def _unchanged(files: Mapping[str, Sequence[Path]], sha256: str) -> Path | None:
    """Return a file that still has this content: a path may hold another night's by now."""
    return next(
        (
            path
            for path in dict.fromkeys(files.get(sha256, ()))
            if path.is_file() and sha256_of(path) == sha256
        ),
        None,
    )


def _request(change: FoundChange, sides: tuple[str, str], models: tuple[Path, ...]) -> AbRequest:
    case = change.case
    options = PlanOptions(
        models=models,
        delegates=case.delegate.value,
        threads=case.threads,
        tools=case.tool.value,
        devices=case.serial,
        flags=dict(case.flags),
        modes=() if case.mode is None else case.mode.value,
        num_runs=case.num_runs,
        min_secs=case.min_secs,
        max_secs=case.max_secs,
        affinity=case.affinity,
        warmup_runs=case.warmup_runs,
        warmup_min_secs=case.warmup_min_secs,
        name="confirm",
    )
    # Half of what the nights show must be seen.
    detect = max(0.01, abs(change.ratio - 1) / 2)
    return AbRequest(sides=sides, options=options, detect=detect, most=_MOST_PAIRS)
