"""``benchfarm plan``."""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from typer import Argument, Option

from orchestrator.cli.commands import Texts, command, workspace_of
from orchestrator.cli.output import CommandResult, tables_result, to_json
from orchestrator.errors import AdbUnavailableError, UsageError
from orchestrator.files import expanded, write_file
from orchestrator.settings import Settings
from orchestrator.tables.escapes import one_line
from orchestrator.tables.table import DATA, NESTED, Column, Kind, Table, fields_of
from orchestrator.units import counted, format_duration

if TYPE_CHECKING:
    from orchestrator.records.device import DeviceFacts


@command("plan show", has_table=True)
def show(
    settings: Settings, path: Annotated[Path, Argument(help="Plan file (YAML).", metavar="PLAN")]
) -> CommandResult:
    """Show a plan's cases on the attached devices.

    Example: benchfarm plan show plan.yaml
    """
    from orchestrator.app.preparing import planned, task_of
    from orchestrator.config.plan import load_plan
    from orchestrator.tables.findings import SKIPPED
    from orchestrator.tables.labels import unique_labels

    # Nothing is measured or stored. A new program is put on a device and asked for its flags. A
    # program that isn't on this computer is listed as missing, and still planned with.
    plan = load_plan(path, home=settings.data_folder)
    with workspace_of(settings, needs_store=False) as workspace:
        task = task_of(workspace, plan)
        missing = workspace.builds.missing(plan, task.facts)
        workspace.builds.assume(missing)
        expansion, _, _ = planned(workspace, task)
    opened = task.opened
    chosen, shortage = opened.facts, opened.choice.lacking
    by_rule = {**opened.choice.unfit, **opened.choice.unneeded}
    unused = {str(serial): one_line(reason) for serial, reason in by_rule.items()}
    unused |= opened.left_out
    titles = unique_labels({str(facts.serial): facts.title for facts in chosen})
    counts = Counter(
        item.case.case_key for queue in expansion.invocations.values() for item in queue
    )
    cases = Table(
        name="cases",
        caption="Planned cases",
        columns=(
            Column("serial", value=lambda row: row.serial, forms=DATA),
            Column("device", value=lambda case: titles[case.serial]),
            Column("model_name", "model", lambda row: row.model_name),
            Column("configuration", value=lambda row: row.configuration),
            Column("invocations", value=lambda case: counts[case.case_key], kind=Kind.COUNT),
            Column("case_key", value=lambda row: row.case_key, forms=DATA),
            Column("case", value=lambda case: case.to_row(), kind=Kind.RECORD, forms=NESTED),
        ),
        rows=expansion.cases,
    )
    skipped = Table(
        name="skipped",
        caption="Skipped cases",
        columns=(
            Column("serial", value=lambda row: row.serial, forms=DATA),
            Column("device", value=lambda skip: titles.get(skip.serial, skip.serial)),
            *SKIPPED,
        ),
        rows=expansion.skipped,
        nothing="no case is skipped",
    )
    invocations = counted(sum(counts.values()), "invocation")
    parts: list[str | Table[Any]] = [
        f"plan '{plan.name}': {counted(len(cases.listed), 'case')}, {invocations}\n"
    ]
    parts.append(
        f"devices: {', '.join(f'{facts.serial} ({facts.title})' for facts in chosen)}"
        + "".join(f"\nnot {serial}: {reason}" for serial, reason in unused.items())
        + (f"\n{shortage}" if shortage else "")
        + "\n"
    )
    parts += [cases, ""] if cases.rows else [cases]
    parts += ["skipped:", skipped, ""] if skipped.rows else [skipped, ""]
    least_s, most_s = expansion.estimate_s(plan)
    span = (
        format_duration(least_s)
        if most_s == least_s
        else f"{format_duration(least_s)} to {format_duration(most_s)}"
    )
    parts.append(f"{span} on the busiest device, plus loading and waiting for cool phones")
    if plan.budget is not None:
        time = format_duration(plan.budget)
        parts.append(f"\neach device has {time}; runs that haven't started by then are left out")
    # Last, where it is read: without these programs the devices run nothing.
    parts += ["\nmissing:", *(f"  {item.reason}" for item in missing)] if missing else []
    return tables_result(
        *parts,
        facts={
            "name": plan.name,
            "devices": {
                "chosen": [facts.serial for facts in chosen],
                "left_out": unused,
                "lacking": shortage,
            },
            "invocations": sum(counts.values()),
            "missing": [fields_of(item, "tool", "serials", "reason") for item in missing],
            "estimate_s": least_s,
            "estimate_most_s": most_s,
        },
    )


@command("plan init")
def init(
    settings: Settings,
    models: Annotated[
        Texts,
        Argument(help="Model files (.tflite), or patterns in quotes: 'models/*.tflite'."),
    ] = None,
    out: Annotated[Path, Option("--out", "-o", help="File to write.")] = Path("plan.yaml"),
) -> CommandResult:
    """Write a commented plan for the attached phones.

    Example: benchfarm plan init model.tflite --out nightly.yaml

    Nothing is measured. An existing file isn't overwritten.
    """
    from orchestrator.app.phones import list_devices

    if out.exists():
        raise UsageError(f"{out} exists already", hint="name another file with --out")
    with workspace_of(settings, needs_store=False) as workspace:
        try:
            devices = [
                item.facts
                for item in list_devices(workspace)
                if item.facts is not None and item.usable
            ]
        except AdbUnavailableError:
            # A plan can be written without phones and without adb.
            devices = []
    write_file(out, initial_plan(devices, models or (), out))
    phones = counted(len(devices), "phone")
    text = (
        f"{out}: a plan for {phones}; to see its cases: benchfarm plan show {shlex.quote(str(out))}"
    )
    return CommandResult(
        text=text, data={"path": out, "serials": [facts.serial for facts in devices]}
    )


@command("plan schema")
def schema() -> CommandResult:
    """Print the JSON schema of plan files, for editors.

    Example: benchfarm plan schema
    """
    from orchestrator.config.plan import plan_json_schema

    json_schema = plan_json_schema()
    return CommandResult(text=to_json(json_schema), data=json_schema)


_TEXT: Final = """\
# Show its cases:  benchfarm plan show {file}      Run it:  benchfarm run {file}
# Omitted keys have their defaults. All keys: docs/reference/plans.md

# Paths start from this file's folder. A pattern such as "models/*.tflite" takes every file that it matches.
models:
{models}

# Each combination is a case.
matrix:
  delegates: auto # what each phone and its program have; or some of [cpu, xnnpack, gpu, nnapi, npu]; or all
  # threads: [1, 4] # default with auto
  # tools: [native, apk] # default: native, the command-line program

{devices}

passes: [timing] # also memory, parity (are the outputs right?), profile (time of each operator), cold (starts)

# As many processes of each case as its 95 % interval needs: at least 8, until it is within 2 %, at most 40.
invocations: {{ first: 8, most: 40 }}
precision: 2 %
# budget: 2 h # of each phone for the whole campaign; the last cases of the plan are left out

# limits: # the phone's required state before a process starts; these are the defaults
#   battery_min: 20 %
#   battery_heat_max: 40 \N{DEGREE SIGN}C
# reference_check: true # a reference workload before, between and after; default: from 10 minutes on
"""


def initial_plan(devices: Sequence[DeviceFacts], models: Sequence[str], path: Path) -> str:
    """Return the text of a plan for some phones, to be written to a path."""
    entries = [f"  - {json.dumps(_from(path.absolute().parent, model))}" for model in models] or [
        "  - model.tflite # name yours"
    ]
    return _TEXT.format(
        file=shlex.quote(str(path)), models="\n".join(entries), devices=_devices(devices)
    )


def _from(folder: Path, model: str) -> str:
    path = expanded(Path(model)).absolute()
    return os.path.relpath(path, folder) if path.is_relative_to(folder) else str(path)


def _devices(devices: Sequence[DeviceFacts]) -> str:
    if not devices:
        return "# No phone was attached: every phone that is there when it runs is measured.\n# devices: {serials: [X]}"
    lines = ["devices:", "  serials: # without it, every usable phone"]
    for facts in devices:
        profile = f"profile {facts.profile}" if facts.profile else ""
        about = ", ".join(filter(None, (facts.title, facts.system, facts.soc, profile)))
        lines.append(f"    - {json.dumps(str(facts.serial))} # {one_line(about)}")
    return "\n".join([*lines, "  # host: true # this computer too"])
