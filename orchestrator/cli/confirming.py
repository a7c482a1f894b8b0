"""Changes that were found, confirmed by running old against new on the same phone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.bootstrap import Farm
from orchestrator.cli.pairing import AbRequest, measure, pair_comparison, prepare
from orchestrator.cli.progress import observer_for_stderr
from orchestrator.engine.events import DeviceNote
from orchestrator.engine.history import FoundChange
from orchestrator.errors import BenchfarmError, InterruptedByUserError, UsageError
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.history import Confirmation, ConfirmationStatus
from orchestrator.records.verdict import ComparisonOutcome
from orchestrator.records.workload import ProcessMode

#: Pairs of one confirmation, at the most.
_MOST_PAIRS = 40


def confirm_changes(farm: Farm, changes: Sequence[FoundChange]) -> None:
    """Run each unconfirmed, unexpected change's old side against its new one, and keep what came of it."""
    observer = observer_for_stderr()
    for change in changes:
        if change.expected or change.status not in (ConfirmationStatus.UNCONFIRMED, ConfirmationStatus.CANNOT):
            continue
        status, detail, ratio = _outcome(farm, change)
        farm.store.confirm(
            Confirmation(
                series_key=change.series_key,
                night=change.night,
                status=status,
                detail=detail,
                ratio=ratio,
                at=farm.clock.now(),
            )
        )
        text = f"{change.case.model_name}, {change.case.configuration}: {status.value} {detail}".rstrip()
        observer.on_event(DeviceNote(serial=change.case.serial, text=text))


def _outcome(farm: Farm, change: FoundChange) -> tuple[ConfirmationStatus, str, float | None]:
    """Return what an A/B rerun says of a change; whatever keeps it from being run is told, and tried again later."""
    try:
        sides, models = _sides(farm, change)
        prepared = prepare(farm, _request(change, sides, models))
        if prepared.is_same:
            return ConfirmationStatus.CANNOT, "old and new are of the same content here", None
        result = measure(farm, prepared)
    except InterruptedByUserError:
        raise
    except BenchfarmError as error:
        return ConfirmationStatus.CANNOT, str(error), None
    if result.status is not CampaignStatus.FINISHED:
        return ConfirmationStatus.CANNOT, next(iter(result.lost.values()), "it was given up"), None
    rows = pair_comparison(farm, result.campaign).rows
    where = f"campaign {result.campaign.campaign_id}"
    if not rows:
        return ConfirmationStatus.CANNOT, f"nothing was measured ({where})", None
    verdict = rows[0].verdict
    wanted = ComparisonOutcome.SLOWER if change.ratio > 1 else ComparisonOutcome.FASTER
    if verdict.outcome is wanted:
        return ConfirmationStatus.CONFIRMED, where, verdict.ratio
    if verdict.outcome is ComparisonOutcome.INCOMPARABLE:
        return ConfirmationStatus.CANNOT, f"{'; '.join(verdict.reasons)} ({where})", verdict.ratio
    return ConfirmationStatus.REFUTED, f"{verdict.outcome.value} ({where})", verdict.ratio


def _sides(farm: Farm, change: FoundChange) -> tuple[tuple[str, str], tuple[Path, ...]]:
    """Return the sides of the rerun and the models that both have in common.

    Raises:
        ArtifactError: the old build isn't archived on this computer.
        UsageError: neither build nor model changed, both did, or a model's file is gone.
    """
    before, after = change.before, change.after
    other_build = before.build_sha256 != after.build_sha256
    other_model = before.model_sha256 != after.model_sha256
    if other_build == other_model:
        what = "both build and model changed" if other_build else "neither build nor model changed"
        raise UsageError(f"{what}: there is no old against new to run")
    files = _files(farm)
    if other_model:
        old, new = (_model(files, sha256) for sha256 in (before.model_sha256, after.model_sha256))
        return (f"model:{old}", f"model:{new}"), ()
    names = farm.store.builds()
    sides = []
    for sha256 in (before.build_sha256, after.build_sha256):
        release = farm.library.find_release(f"{names[sha256].name}@{sha256}")
        sides.append(f"build:{release.name}@{release.release_id}")
    return (sides[0], sides[1]), (_model(files, after.model_sha256),)


def _files(farm: Farm) -> dict[str, Path]:
    """Return where contents lie on this computer, as its campaigns knew it; the newest last."""
    return {
        sha256: Path(path)
        for campaign in reversed(farm.store.campaigns())
        for sha256, path in campaign.terms.files.items()
    }


def _model(files: dict[str, Path], sha256: str) -> Path:
    path = files.get(sha256)
    if path is None or not path.is_file():
        raise UsageError(f"the model {sha256[:12]} is no longer on this computer")
    return path


def _request(change: FoundChange, sides: tuple[str, str], models: tuple[Path, ...]) -> AbRequest:
    case = change.case
    usual = case.mode is None or case.mode is ProcessMode.SHELL
    return AbRequest(
        sides=sides,
        models=models,
        delegates=(case.delegate.value,),
        threads=(str(case.threads),),
        tools=(case.tool.value,),
        serials=(case.serial,),
        flags=tuple(f"{name}={value}" for name, value in case.flags),
        settings={
            "num_runs": case.num_runs,
            "min_secs": case.min_secs,
            "max_secs": case.max_secs,
            "affinity": case.affinity,
            **({} if usual or case.mode is None else {"mode": case.mode.value}),
        },
        # Half of what the nights show must be seen.
        detect=max(0.01, abs(change.ratio - 1) / 2),
        most=_MOST_PAIRS,
        name="confirm",
    )
