"""``benchfarm compare``, ``ab`` and ``bisect``: two sides from the store or in turns, and the first
slow build.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from typer import Argument, Option

from orchestrator.app.requests import CompareOptions, PairLimits
from orchestrator.cli.builds import RELEASE
from orchestrator.cli.campaigns import facts_of, reporting, reporting_workspace
from orchestrator.cli.commands import (
    Out,
    Texts,
    Wait,
    command,
    format_option,
    parameter,
    plan_keys,
    workspace_of,
)
from orchestrator.cli.devices import EQUAL_RUNS, equal_sides_result
from orchestrator.cli.output import CommandResult, format_of, room, tables_result, to_json
from orchestrator.errors import UsageError, check_word
from orchestrator.files import check_writable, write_file
from orchestrator.records import frozen
from orchestrator.records.plan import Plan, PlanOptions, fixed_count
from orchestrator.settings import Settings
from orchestrator.tables.escapes import WIDTH, one_line
from orchestrator.tables.table import NESTED, Column, Form, Kind, Table
from orchestrator.units import split

if TYPE_CHECKING:
    from orchestrator.analysis.bisection import BisectResult, Compared
    from orchestrator.analysis.comparison import Comparison
    from orchestrator.app.measuring import MeasuredCampaign
    from orchestrator.app.workspace import Workspace
    from orchestrator.artifacts.archive import Release

_FORMATS: Final = (Form.TEXT, Form.MARKDOWN, Form.JSON, "junit", Form.HTML)
#: The keys of a plan that both sides of a pair share.
PAIR_KEYS: Final = (
    "delegates threads tools flags check_outputs num_runs min_secs max_secs affinity timeout seed"
    " budget"
)
#: Their lines of help where those differ from a plan's.
PAIR_HELP: Final = {
    "delegates": "cpu, xnnpack, gpu ... (a,b).",
    "tools": "native, apk, litert-native ...",
    "budget": "Time for both sides and all models on each device ('20 min').",
    "flags": "Flag of both sides, name=value. Repeat for several.",
}

_MODELS: Final = parameter(
    "models",
    Annotated[
        list[Path] | None, Option("--model", "-m", help="Model to measure. Repeat for several.")
    ],
)


@frozen
class Output:
    """The output of a comparison, and its exit code."""

    form: Annotated[str, format_option(_FORMATS, Form.TEXT)] = ""
    out: Out = None
    #: A word of ``analysis.comparison.FailOn``.
    fail_on: Annotated[
        str,
        Option(
            "--fail-on",
            help="Exit code 1: if a case is slower or broken (slower), also if inconclusive, or never.",
        ),
    ] = "slower"

    def checked(self) -> Output:
        """Return it with its format.

        Raises UsageError for an unknown format or word, and for a file that can't be written.
        """
        from orchestrator.analysis.comparison import FailOn

        form = format_of(self.form, self.out, _FORMATS, default="text")
        check_word("--fail-on", self.fail_on, FailOn)
        if self.out is not None:
            check_writable(self.out)
        return replace(self, form=form)


@command("compare")
def compare(
    settings: Settings,
    sides: Annotated[
        Texts,
        Argument(
            help="Baseline and candidate: campaigns (newest, previous), or builds, models ... with"
            " --by."
        ),
    ] = None,
    *,
    rule: CompareOptions,
    output: Output,
) -> CommandResult:
    """Compare stored results, case by case.

    Example: benchfarm compare previous newest

    Measures nothing. 'benchfarm ab' measures two sides in turns on the same phone.
    """
    from orchestrator.app import comparing

    output = output.checked()
    rule = replace(rule, allow=split(rule.allow))
    with workspace_of(settings) as workspace:
        comparison = comparing.compare(workspace, sides or (), rule)
        notes = (*comparison.notes, *comparing.allow_hints(comparison, rule.allow))
        return rendered(workspace, replace(comparison, notes=notes), output)


def rendered(
    workspace: Workspace,
    comparison: Comparison,
    output: Output,
    pairs: MeasuredCampaign | None = None,
) -> CommandResult:
    """Return a comparison in the chosen format; ``pairs`` is the campaign that measured it in
    turns.

    HTML goes to a file, by default in the data folder's ``reports``.
    """
    from orchestrator.analysis.comparison import FailOn
    from orchestrator.app.comparing import default_path
    from orchestrator.app.stored import resume_notes
    from orchestrator.tables import comparisons

    lines, data = list[str](), comparisons.to_data(comparison)
    if pairs is not None:
        lines = [*pairs.problems, f"campaign: {pairs.campaign.campaign_id}"]
        data |= facts_of(pairs)
    fail_on = FailOn(output.fail_on)
    data["fails"] = fails = comparison.fails(fail_on)
    out = output.out
    match output.form:
        case "markdown":
            text = comparisons.to_markdown(comparison)
        case "json":
            text = to_json(data)
        case "junit":
            text = comparisons.to_junit(comparison, fail_on=fail_on)
        case "html":
            from orchestrator.report.render import render_comparison

            text = render_comparison(comparison)
            out = out or default_path(workspace.settings, comparison)
        case _:
            text = "\n".join([comparisons.to_text(comparison, room() or WIDTH), *lines])
    if out is not None:
        whole = text if text.endswith("\n") else text + "\n"
        write_file(out, whole, makes_folder=output.out is None)
        unfinished = resume_notes(pairs.campaign) if pairs is not None else ()
        text = "\n".join([comparisons.summary_line(comparison), *unfinished, *lines, str(out)])
        data["path"] = out
    return CommandResult(text=text.rstrip("\n"), data=data, exit_code=int(fails))


@command(
    "ab",
    keys=[
        *plan_keys(f"devices profiles where one_of_each at_most builds {PAIR_KEYS}", **PAIR_HELP),
        _MODELS,
    ],
)
def ab(
    settings: Settings,
    sides: Annotated[
        list[str],
        Argument(
            help="The two sides: build:OLD build:NEW, model:A model:B, flags:..., delegate:..."
            " threads:..."
        ),
    ],
    options: PlanOptions,
    limits: PairLimits,
    wait: Wait = "",
    *,
    output: Output,
) -> CommandResult:
    """Measure two sides in turns on the same phone.

    Example: benchfarm ab build:OLD build:NEW -m model.tflite

    Two equal sides measure the smallest difference that the phone can show, as 'benchfarm device
    check --sessions' does. Then --runs counts per session.
    """
    from orchestrator.app import pairing

    output = output.checked()
    with reporting_workspace(settings, wait) as workspace:
        measured = pairing.compare_ab(workspace, pairing.sides_of(sides, options), limits)
        if isinstance(measured, Plan):
            if output.out is not None or output.form != "text":
                raise UsageError(
                    "the sides are equal: there is no comparison to write",
                    hint="leave out --out and --format; --json prints what the phone can resolve",
                )
            # Equal sides measure the smallest difference that the phone can show.
            runs = min(EQUAL_RUNS, 2 * limits.most)
            plan = replace(measured, invocations=fixed_count(runs))
            return equal_sides_result(workspace, plan)
        return pairs_result(workspace, measured, output)


def pairs_result(workspace: Workspace, measured: MeasuredCampaign, output: Output) -> CommandResult:
    """Return the comparison of measured pairs; raises the fault that ended a device's part."""
    from orchestrator.app.comparing import pair_comparison

    with reporting(workspace, measured) as where:
        where.append(f"campaign: {measured.campaign.campaign_id}")
        comparison = pair_comparison(workspace, measured.campaign)
        result = rendered(workspace, comparison, output, measured)
    return replace(result, is_kept=True)


@command(
    "bisect",
    has_table=True,
    keys=[
        *plan_keys(f"devices {PAIR_KEYS}", devices="Serial number of the phone.", **PAIR_HELP),
        _MODELS,
    ],
)
def bisect(
    settings: Settings,
    good: Annotated[str, Argument(help="The build that was fast: NAME@DIGITS.")],
    bad: Annotated[str, Argument(help="The build that is slow: NAME@DIGITS.")],
    options: PlanOptions,
    limits: PairLimits,
    wait: Wait = "",
    since: Annotated[str, Option("--since", help="Reuse stored A/B results up to this age.")] = (
        "24 h"
    ),
) -> CommandResult:
    """Find the first build that is slower than a good one.

    Example: benchfarm bisect tflite@4f1c tflite@9e02 -m model.tflite -s SERIAL

    Each step measures two builds in turns on one phone.
    """
    from orchestrator.app import bisecting, time_limits
    from orchestrator.tables import comparisons

    fresh_s = time_limits.span_of("--since", since)
    options = {**options, "name": "bisect"}
    with reporting_workspace(settings, wait) as workspace:
        result, releases, facts = bisecting.bisect(
            workspace, (good, bad), options, limits, fresh_s=fresh_s
        )
    judged: dict[int, tuple[str, Compared | None]] = {0: ("the good one", None)} | {
        probe.index: (probe.judgement.value, probe.compared) for probe in result.probes
    }
    table = Table(
        name="builds",
        caption="Builds between the good and the bad one",
        columns=_BISECTED,
        rows=[
            (release, *judged.get(index, ("", None)), index == result.first_bad)
            for index, release in enumerate(releases)
        ],
    )

    def identity(index: int | None) -> str | None:
        return None if index is None else releases[index].release_id

    return tables_result(
        f"{releases[0].name} on {facts.title} {facts.serial}\n",
        table,
        "",
        *map(one_line, (_sentence(result, releases), *result.remarks)),
        *([comparisons.VIRTUAL_NOTE] if facts.is_virtual else []),
        facts={
            "serial": facts.serial,
            "is_virtual": facts.is_virtual,
            "first_bad": identity(result.first_bad),
            "last_good": identity(result.last_good),
            "suspects": [*map(identity, result.suspects)],
            "step": result.step,
            "remarks": result.remarks,
        },
        exit_code=int(result.first_bad is None),
    )


def _change(compared: Compared | None) -> str:
    from orchestrator.app.bisecting import figure_text

    return figure_text(compared).strip(" ,")


#: A build, its judgement, its comparison (None for an unmeasured build), and whether it is the
#: first bad one.
_BisectedBuild: TypeAlias = "tuple[Release, str, Compared | None, bool]"
_BISECTED: Final[Sequence[Column[_BisectedBuild]]] = (
    *(column.of(lambda row: row[0]) for column in RELEASE),
    Column("judgement", "is", lambda row: row[1]),
    Column("compared", value=lambda row: row[2], kind=Kind.RECORD, forms=NESTED),
    Column("change", value=lambda row: _change(row[2])),
    Column(
        "is_first_bad",
        "",
        lambda row: row[3],
        Kind.FLAG,
        shown=lambda row: "<- first bad" if row[3] else "",
    ),
)


def _sentence(result: BisectResult, releases: Sequence[Release]) -> str:
    from orchestrator.app.bisecting import figure_text, titled

    if result.first_bad is not None and result.last_good is not None:
        return (
            f"first bad: {titled(releases[result.first_bad])}; last good: {titled(releases[result.last_good])}"
            f"{figure_text(result.step)}"
        )
    if result.suspects and result.last_good is not None:
        among = ", ".join(titled(releases[index]) for index in result.suspects)
        last = titled(releases[result.last_good])
        return f"the first bad one is among {among}; last good: {last}{figure_text(result.step)}"
    return "no first bad build was found"
