"""Comparing: compare, bisect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from orchestrator.cli.frame import (
    AtMost,
    Builds,
    Devices,
    Json,
    OneOfEach,
    Out,
    Profiles,
    Where,
    app,
    refuse,
    show,
    split,
)

Form = Annotated[str, typer.Option("--format", "-f", help="text, markdown, json, junit, github or html.")]
FailOn = Annotated[
    str, typer.Option("--fail-on", help="Exit code 1 when something is slower or broken, inconclusive too, or never.")
]
Models = Annotated[list[Path] | None, typer.Option("--model", "-m", help="Model to measure; may be given again.")]
Delegates = Annotated[list[str] | None, typer.Option("--delegate", "-d", help="cpu, xnnpack, gpu ... (a,b).")]
Threads = Annotated[list[str] | None, typer.Option("--threads", "-t", help="Thread counts (1,4).")]
Tools = Annotated[list[str] | None, typer.Option("--tool", help="native, apk, litert-native ...")]
Flags = Annotated[list[str] | None, typer.Option("--flag", help="Flag of both sides, name=value; may be given again.")]
Detect = Annotated[str, typer.Option("--detect", help="The relative difference that is to be found.")]
MostPairs = Annotated[int, typer.Option("--most-pairs", min=2, help="Never more pairs than this.")]
Budget = Annotated[str, typer.Option("--budget", help="Time that one device may take, for example '20 min'.")]
NumRuns = Annotated[int, typer.Option("--num-runs", min=1, help="Inferences per process, at the least.")]
MinSecs = Annotated[float, typer.Option("--min-secs", min=0, help="Seconds measured per process, at the least.")]
MaxSecs = Annotated[float, typer.Option("--max-secs", min=0, help="Seconds measured per process, at the most.")]
Affinity = Annotated[str, typer.Option("--affinity", help="Cores to use: big, all, or a hexadecimal mask.")]
Timeout = Annotated[float, typer.Option("--timeout", min=1, help="Seconds one process may take beyond --max-secs.")]
Seed = Annotated[int, typer.Option("--seed", help="Of which side begins.")]

#: What chooses among stored figures, and what is measured with --ab.
OF_STORED: Final = frozenset({"by", "campaign", "threshold", "level", "allow"})
OF_TURNS: Final = frozenset({
    "detect", "model", "device", "profile", "where", "one_of_each", "at_most", "delegate", "threads", "tool", "build",
    "flag", "most_pairs", "budget", "num_runs", "min_secs", "max_secs", "affinity", "timeout", "seed",
})  # fmt: skip


@app.command("compare")
def _compare(
    context: typer.Context,
    sides: Annotated[
        list[str] | None,
        typer.Argument(help="Baseline and candidate: campaigns (newest, previous), or what --by or --ab say."),
    ] = None,
    by: Annotated[
        str, typer.Option("--by", help="Compare within campaigns: build, model, device, delegate or config.")
    ] = "campaign",
    campaign: Annotated[
        list[str] | None, typer.Option("--campaign", help="With --by: campaigns to look in; may be given again.")
    ] = None,
    threshold: Annotated[str, typer.Option("--threshold", help="Differences below this are none.")] = "2%",
    level: Annotated[str, typer.Option("--level", help="How sure the intervals are.")] = "99%",
    allow: Annotated[
        list[str] | None, typer.Option("--allow", help="Let a fact differ: system, grade, settings ... (a,b).")
    ] = None,
    form: Form = "text",
    out: Out = None,
    fail_on: FailOn = "slower",
    ab: Annotated[
        bool, typer.Option("--ab", help="Measure both sides in turns: build:A build:B, model:, flags:, delegate: ...")
    ] = False,
    detect: Detect = "2%",
    model: Models = None,
    device: Devices = None,
    profile: Profiles = None,
    where: Where = None,
    one_of_each: OneOfEach = "",
    at_most: AtMost = None,
    delegate: Delegates = None,
    threads: Threads = None,
    tool: Tools = None,
    build: Builds = None,
    flag: Flags = None,
    most_pairs: MostPairs = 200,
    budget: Budget = "",
    num_runs: NumRuns = 50,
    min_secs: MinSecs = 1.0,
    max_secs: MaxSecs = 150.0,
    affinity: Affinity = "big",
    timeout: Timeout = 120.0,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare what is stored, or (--ab) measure two sides in turns: a verdict for each case, with interval."""
    from orchestrator.cli import comparing

    output = comparing.Output(form=form, out=out, fail_on=fail_on)
    if not ab:
        refuse(context, OF_TURNS, "without --ab")
        request = comparing.CompareRequest(
            sides=tuple(sides or ()),
            by=by,
            campaigns=tuple(campaign or ()),
            threshold=threshold,
            level=level,
            allowed=split(allow),
        )
        show(lambda settings: comparing.compare(settings, request, output), as_json=as_json)
        return
    refuse(context, OF_STORED, "with --ab")
    from orchestrator.cli import nights, pairing, shares

    wanted = pairing.AbRequest(
        sides=tuple(sides or ()),
        models=tuple(model or ()),
        delegates=split(delegate),
        threads=split(threads),
        tools=split(tool),
        serials=tuple(device or ()),
        profiles=tuple(profile or ()),
        where=tuple(where or ()),
        one_of_each=one_of_each,
        at_most=at_most,
        builds=tuple(build or ()),
        flags=tuple(flag or ()),
        settings={"num_runs": num_runs, "min_secs": min_secs, "max_secs": max_secs, "affinity": affinity},
        detect=shares.share_of(detect, "--detect", most=0.5),
        most=most_pairs,
        budget_s=nights.budget_of(budget),
        seed=seed,
        timeout_s=timeout,
    )
    show(lambda settings: pairing.compare_ab(settings, wanted, output), as_json=as_json)


@app.command("bisect")
def _bisect(
    good: Annotated[str, typer.Option("--good", help="The build that was fast: NAME@DIGITS.")],
    bad: Annotated[str, typer.Option("--bad", help="The build that is slow: NAME@DIGITS.")],
    model: Models = None,
    device: Annotated[str, typer.Option("--device", "-s", help="Serial number of the phone.")] = "",
    delegate: Delegates = None,
    threads: Threads = None,
    tool: Tools = None,
    flag: Flags = None,
    detect: Detect = "2%",
    fresh: Annotated[str, typer.Option("--fresh", help="Use stored A/B results that are no older.")] = "24 h",
    most_pairs: MostPairs = 200,
    budget: Annotated[str, typer.Option("--budget", help="Time that one comparison may take.")] = "",
    num_runs: NumRuns = 50,
    min_secs: MinSecs = 1.0,
    max_secs: MaxSecs = 150.0,
    affinity: Affinity = "big",
    timeout: Timeout = 120.0,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Find the first archived build that is slower than a good one, by A/B comparisons on one phone."""
    from orchestrator.cli import bisecting, nights, pairing, shares

    request = bisecting.BisectRequest(
        good=good,
        bad=bad,
        fresh_s=bisecting.fresh_of(fresh),
        ab=pairing.AbRequest(
            sides=(),
            models=tuple(model or ()),
            delegates=split(delegate),
            threads=split(threads),
            tools=split(tool),
            serials=(device,) if device else (),
            flags=tuple(flag or ()),
            settings={"num_runs": num_runs, "min_secs": min_secs, "max_secs": max_secs, "affinity": affinity},
            detect=shares.share_of(detect, "--detect", most=0.5),
            most=most_pairs,
            budget_s=nights.budget_of(budget),
            seed=seed,
            timeout_s=timeout,
            name="bisect",
        ),
    )
    show(lambda settings: bisecting.bisect(settings, request), as_json=as_json)
