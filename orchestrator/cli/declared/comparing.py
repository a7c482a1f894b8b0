"""Comparing: compare, ab, bisect, advise."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.frame import (
    Campaigns,
    Deed,
    OnPhones,
    Out,
    PerProcess,
    app,
    command,
    filled,
    later,
    plan_options,
    split,
)

if TYPE_CHECKING:
    from orchestrator.app.pairing import AbRequest

if TYPE_CHECKING:
    from orchestrator.cli import advising, bisecting, comparing, files
else:
    advising, bisecting, comparing, files = later("advising bisecting comparing files")


Form = Annotated[
    str,
    typer.Option("--format", "-f", help="text, markdown, json, junit, github or html (default: by --out, else text)."),
]
FailOn = Annotated[
    str,
    typer.Option(
        "--fail-on", help="Exit code 1 when a case is slower or broken (slower), also when inconclusive, or never."
    ),
]


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """What 'compare' reads."""

    sides: Annotated[
        list[str] | None,
        typer.Argument(help="Baseline and candidate: campaigns (newest, previous), or what --by names."),
    ] = None
    by: Annotated[
        str, typer.Option("--by", help="Compare within campaigns: build, model, device, delegate or config.")
    ] = "campaign"
    campaign: Annotated[
        list[str] | None, typer.Option("--campaign", help="With --by: campaigns to use. Repeat for several.")
    ] = None
    threshold: Annotated[str, typer.Option("--threshold", help="Ignore differences below this.")] = "2%"
    level: Annotated[str, typer.Option("--level", help="Confidence level of the intervals.")] = "99%"
    allow: Annotated[
        list[str] | None, typer.Option("--allow", help="Allow a fact to differ: system, grade, settings ... (a,b).")
    ] = None
    form: Form = ""
    out: Out = None
    fail_on: FailOn = "slower"


@command(app, "compare")
def _compare(options: CompareOptions) -> Deed:
    """Compare stored results, case by case.

    Example: benchfarm compare previous newest

    Measures nothing. 'benchfarm ab' measures two sides in turns on the same phone.
    """
    output = comparing.Output(form=options.form, out=options.out, fail_on=options.fail_on)
    request = filled(
        comparing.CompareRequest, options, campaigns=tuple(options.campaign or ()), allowed=split(options.allow)
    )
    return lambda settings: comparing.compare(settings, request, output)


@dataclass(frozen=True, kw_only=True)
class PairOptions(PerProcess):
    """What is measured in turns, and for how long: 'ab' and 'bisect'."""

    model: Annotated[list[Path] | None, typer.Option("--model", "-m", help="Model to measure. Repeat for several.")] = (
        None
    )
    delegate: Annotated[list[str] | None, typer.Option("--delegate", "-d", help="cpu, xnnpack, gpu ... (a,b).")] = None
    threads: Annotated[list[str] | None, typer.Option("--threads", "-t", help="Thread counts (1,4).")] = None
    tool: Annotated[list[str] | None, typer.Option("--tool", help="native, apk, litert-native ...")] = None
    flag: Annotated[
        list[str] | None, typer.Option("--flag", help="Flag of both sides, name=value. Repeat for several.")
    ] = None
    detect: Annotated[str, typer.Option("--detect", help="Smallest relative difference to detect.")] = "2%"
    most_pairs: Annotated[int, typer.Option("--most-pairs", min=2, help="Measure at most N pairs.")] = 200
    budget: Annotated[
        str, typer.Option("--budget", help="Time budget of one comparison on one device, for example '20 min'.")
    ] = ""


@dataclass(frozen=True, kw_only=True)
class AbOptions(OnPhones, PairOptions):
    """What 'ab' reads."""

    sides: Annotated[
        list[str],
        typer.Argument(help="The two sides: build:OLD build:NEW, model:A model:B, flags:..., delegate:... threads:..."),
    ]
    form: Form = ""
    out: Out = None
    fail_on: FailOn = "slower"


@command(app, "ab")
def _ab(options: AbOptions) -> Deed:
    """Measure two sides in turns on the same phone.

    Example: benchfarm ab build:OLD build:NEW -m model.tflite
    """
    output = comparing.Output(form=options.form, out=options.out, fail_on=options.fail_on)
    request = _in_turns(options, sides=tuple(options.sides), name="ab")
    return lambda settings: comparing.compare_ab(settings, request, output)


@dataclass(frozen=True, kw_only=True)
class BisectOptions(PairOptions):
    """What 'bisect' reads."""

    good: Annotated[str, typer.Option("--good", help="The build that was fast: NAME@DIGITS.")]
    bad: Annotated[str, typer.Option("--bad", help="The build that is slow: NAME@DIGITS.")]
    device: Annotated[str | None, typer.Option("--device", "-s", help="Serial number of the phone.")] = None
    fresh: Annotated[str, typer.Option("--fresh", help="Reuse stored A/B results up to this age.")] = "24 h"


@command(app, "bisect")
def _bisect(options: BisectOptions) -> Deed:
    """Find the first build that is slower than a good one.

    Example: benchfarm bisect --good tflite@4f1c --bad tflite@9e02 -m model.tflite -s SERIAL

    Each step measures two builds in turns on one phone.
    """
    from orchestrator.app.bisecting import BisectRequest

    request = BisectRequest(
        good=options.good,
        bad=options.bad,
        fresh_s=bisecting.fresh_of(options.fresh),
        ab=_in_turns(options, sides=(), name="bisect"),
    )
    return lambda settings: bisecting.bisect(settings, request)


def _in_turns(options: PairOptions, *, sides: tuple[str, ...], name: str) -> AbRequest:
    """Return the comparison that these options mean."""
    from orchestrator.app import nights
    from orchestrator.app.pairing import AbRequest

    return AbRequest(
        sides=sides,
        # The budget is a comparison's own, not the plan's.
        options={**plan_options(options, without={"budget"}), "name": name},
        detect=files.share_of(options.detect, "--detect", most=0.5),
        most=options.most_pairs,
        budget_s=nights.budget_of(options.budget),
    )


@dataclass(frozen=True, kw_only=True)
class AdviseOptions:
    """What 'advise' reads."""

    campaigns: Campaigns = None
    fleet: Annotated[bool, typer.Option("--fleet", help="Show only the one choice for all phones.")] = False
    inferences: Annotated[
        int | None, typer.Option("--inferences", min=1, help="Inferences that an app runs per start.")
    ] = None
    need_parity: Annotated[
        bool, typer.Option("--need-parity", help="Allow only configurations that agreed with the reference (parity).")
    ] = False
    accuracy: Annotated[
        Path | None,
        typer.Option("--accuracy", help="CSV of model,accuracy in percent, or what run_eval printed in MODEL.txt."),
    ] = None
    form: Annotated[
        str, typer.Option("--format", "-f", help="text, json, markdown or html-section (default: by --out, else text).")
    ] = ""
    allow_list: Annotated[
        Path | None,
        typer.Option("--allow-list", help="Write the configurations that an app may use to this JSON file."),
    ] = None
    out: Out = None


@command(app, "advise")
def _advise(options: AdviseOptions) -> Deed:
    """Recommend configurations from stored results.

    Example: benchfarm advise --inferences 100
    """
    request = filled(advising.AdviseRequest, options)
    return lambda settings: advising.advise(settings, request)
