"""``benchfarm quickstart``: the main job on virtual phones and, for real, on this computer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from orchestrator.app.virtual_phones import DEFAULT_PROFILES, Wanted, serials_for, stop_quietly
from orchestrator.bootstrap import Settings
from orchestrator.cli import lab
from orchestrator.cli.measuring import bench
from orchestrator.cli.result import CommandResult
from orchestrator.config.plan_keys import PlanOptions
from orchestrator.delegates import DELEGATES
from orchestrator.delegates.specification import EVERYWHERE

#: Virtual phones may live faster than we do; what they report is in their own time.
PHONE_SPEED = 8.0


def run(settings: Settings, folder: Path) -> CommandResult:
    """Start two virtual phones, measure the sample models there and on this computer, and stop all of it again."""
    from orchestrator.models.zoo import sample_models

    folder = folder.absolute()
    own = replace(
        settings,
        data_folder=folder,
        cache_folder=folder / "cache",
        state_folder=folder / "state",
        store=str(folder / "store.sqlite"),
    )
    stop_quietly(own)
    phones = lab.up(own, Wanted(speed=PHONE_SPEED, exit_with_parent=True))
    try:
        serials = tuple(serial for _, serial in serials_for(DEFAULT_PROFILES))
        result = bench(own, _options(tuple(sample_models()), serials), folder / "report.html")
    finally:
        stop_quietly(own)
    intro = (
        "Figures of phones marked 'virtual' are made up by a model of such a phone; those of this computer are real."
    )
    return replace(result, text=f"{result.text}\n{intro}", data={"lab": phones.data, "campaign": result.data})


def _options(models: tuple[Path, ...], serials: tuple[str, ...]) -> PlanOptions:
    # A fixed number of invocations, so that it ends soon; a bench of one's own gives each case what its noise needs.
    return PlanOptions(
        models=models,
        delegates=tuple(name.value for name, own in DELEGATES.items() if own.kinds == EVERYWHERE),
        threads=(1, 2),
        devices=serials,
        host=True,
        invocations=3,
        reference_check=False,
        min_secs=0.5,
        max_secs=10.0,
        timeout=60.0,
        seed=1,
        name="quickstart",
    )
