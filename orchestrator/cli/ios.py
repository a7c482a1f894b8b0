"""``benchfarm ios``: what a folder for the app holds, and what came of its cases."""

from __future__ import annotations

from pathlib import Path

from orchestrator.app import iphones
from orchestrator.app.iphones import IPhone
from orchestrator.bootstrap import Settings
from orchestrator.cli import stored
from orchestrator.cli.result import CommandResult, table


def export(settings: Settings, path: Path, out: Path, phone: IPhone) -> CommandResult:
    """Write a plan's cases for one iPhone; raises as the use case."""
    done = iphones.export(settings, path, out, phone)
    made = done.export
    rows = [
        (item.folder, item.case.model_name, item.case.configuration, item.run_pass.value, str(item.invocations))
        for item in made.cases
    ]
    parts = [table(("folder", "model", "configuration", "pass", "how often"), rows, right=(4,))]
    if made.skipped:
        skips = [(skip.model_name, skip.delegate.value, f"{skip.reason_code}: {skip.reason}") for skip in made.skipped]
        parts.append("skipped:\n" + table(("model", "delegate", "reason"), skips))
    if done.left_out:
        parts.append(f"left out, because the app can't do it: the pass {', '.join(done.left_out)}")
    parts.append(f"{out / 'README.md'} says what to do; then: benchfarm ios import {out}")
    return CommandResult(
        text="\n\n".join(parts),
        data={
            "folder": out,
            "serial": made.serial,
            "profile": made.profile,
            "cases": [
                {
                    "folder": item.folder,
                    "case_key": item.case.case_key,
                    "pass": item.run_pass,
                    "invocations": item.invocations,
                    "params": item.params,
                }
                for item in made.cases
            ],
            "skipped": made.skipped,
            "passes_left_out": done.left_out,
        },
    )


def import_results(
    settings: Settings, folder: Path, files: tuple[Path, ...], wanted: str, out: Path | None
) -> CommandResult:
    """Store what the app showed for an exported folder's cases; raises as the use case."""
    return stored.told(iphones.import_results(settings, folder, files, wanted, out))
