"""Measuring: bench, run, plan, quickstart."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import AtMost, Builds, Devices, Json, OneOfEach, Profiles, Where, app, group, show, split
from orchestrator.errors import UsageError

plan_app = group("plan", "Look at plans without running them.")


@app.command("quickstart")
def _quickstart(
    folder: Annotated[Path, typer.Option("--folder", help="Where its store and report go.")] = Path(
        "reports/out/quickstart"
    ),
    as_json: Json = False,
) -> None:
    """Show the whole thing: two virtual phones and this computer, sample models, a report. Leaves nothing running."""
    from orchestrator.cli import quickstart

    show(lambda settings: quickstart.run(settings, folder), as_json=as_json)


@app.command("bench")
def _bench(
    models: Annotated[list[Path], typer.Argument(help="Model files (.tflite).")],
    delegate: Annotated[
        list[str] | None, typer.Option("--delegate", "-d", help="cpu, xnnpack, gpu, nnapi, hexagon ... (a,b,c).")
    ] = None,
    threads: Annotated[list[str] | None, typer.Option("--threads", "-t", help="Thread counts (1,4).")] = None,
    tool: Annotated[
        list[str] | None, typer.Option("--tool", help="native, apk, litert, perf-options, litert-native (a,b).")
    ] = None,
    device: Devices = None,
    profile: Profiles = None,
    where: Where = None,
    one_of_each: OneOfEach = "",
    at_most: AtMost = None,
    host: Annotated[bool, typer.Option("--host", help="Measure on this computer too.")] = False,
    flag: Annotated[
        list[str] | None, typer.Option("--flag", help="Further flag of the program, name=value; may be given again.")
    ] = None,
    mode: Annotated[
        list[str] | None, typer.Option("--mode", help="Run as: foreground (apk), shell, top-app (native) (a,b).")
    ] = None,
    build: Builds = None,
    run_pass: Annotated[
        list[str] | None,
        typer.Option("--pass", help="timing (the default), memory, profile, cold, parity, sustained, trace (a,b)."),
    ] = None,
    invocations: Annotated[
        str | None,
        typer.Option("--invocations", "-n", help="Processes per case: a number, or FIRST-MOST (8-40 when left out)."),
    ] = None,
    precision: Annotated[
        str | None, typer.Option("--precision", help="A case has enough at this half width of its interval (2%).")
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", help="Time for what is added to the first processes, each phone (30m).")
    ] = None,
    sustained: Annotated[
        str | None, typer.Option("--sustained", help="Measure one process after the other for so long (30m).")
    ] = None,
    parity_inputs: Annotated[
        str | None, typer.Option("--parity-inputs", help="Folder with MODEL.0.bin ...: inputs for the pass parity.")
    ] = None,
    sentinel: Annotated[
        bool, typer.Option("--sentinel/--no-sentinel", help="Bracket by a reference workload: ~30 s more a phone.")
    ] = False,
    reboot: Annotated[bool, typer.Option("--reboot", help="A phone whose sentinel moved may be booted anew.")] = False,
    num_runs: Annotated[int, typer.Option(min=1, help="Inferences per process, at the least.")] = 50,
    min_secs: Annotated[float, typer.Option(min=0, help="Seconds measured per process, at the least.")] = 1.0,
    max_secs: Annotated[float, typer.Option(min=0, help="Seconds measured per process, at the most.")] = 150.0,
    affinity: Annotated[str, typer.Option(help="Cores to use: big, all, or a hexadecimal mask.")] = "big",
    timeout: Annotated[float, typer.Option(min=1, help="Seconds one process may take beyond --max-secs.")] = 120.0,
    seed: Annotated[int, typer.Option(help="Of the order of invocations.")] = 0,
    campaign_name: Annotated[str, typer.Option("--name", help="Name of the campaign.")] = "bench",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write the HTML report.")] = None,
    as_json: Json = False,
) -> None:
    """Measure models on the attached phones: delegates x threads, judged and stored."""
    from orchestrator.cli import measuring

    request = measuring.BenchRequest(
        models=tuple(models),
        delegates=split(delegate),
        threads=split(threads),
        tools=split(tool),
        serials=tuple(device or ()),
        profiles=tuple(profile or ()),
        where=tuple(where or ()),
        one_of_each=one_of_each,
        at_most=at_most,
        host=host,
        flags=tuple(flag or ()),
        modes=split(mode),
        builds=tuple(build or ()),
        passes=split(run_pass),
        invocations=invocations,
        precision=precision,
        budget=budget,
        sustained=sustained,
        parity_inputs=parity_inputs,
        sentinel=sentinel,
        reboot=reboot,
        num_runs=num_runs,
        min_secs=min_secs,
        max_secs=max_secs,
        affinity=affinity,
        timeout_s=timeout,
        seed=seed,
        name=campaign_name,
    )
    show(lambda settings: measuring.bench(settings, request, out), as_json=as_json)


@app.command("run")
def _run(
    plan: Annotated[Path | None, typer.Argument(help="Plan file (YAML).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a campaign that was cut off.")] = False,
    campaign: Annotated[
        str, typer.Option("--campaign", help="With --resume: which one; the newest open one else.")
    ] = "",
    budget: Annotated[
        str, typer.Option("--budget", help="Time that each device may take in all; what doesn't fit is left out (2h).")
    ] = "",
    until: Annotated[
        str, typer.Option("--until", help="Nothing runs after it (06:00, or a date with a time); for a window's end.")
    ] = "",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write the HTML report.")] = None,
    as_json: Json = False,
) -> None:
    """Run a whole plan, or go on with one that was cut off."""
    from orchestrator.cli import measuring, resuming

    if resume == (plan is not None):
        raise UsageError("give either a plan file or --resume", hint="benchfarm run plan.yaml | benchfarm run --resume")
    if plan is not None:
        if campaign:
            raise UsageError("--campaign goes with --resume", hint="a plan begins a campaign of its own: leave it out")
        path = plan
        show(lambda settings: measuring.run_plan(settings, path, out, budget=budget, until=until), as_json=as_json)
    elif budget or until:
        raise UsageError("a campaign keeps the time that it began with", hint="leave out --budget and --until")
    else:
        show(lambda settings: resuming.resume(settings, campaign, out), as_json=as_json)


@app.command("close")
def _close(
    campaigns: Annotated[
        list[str], typer.Argument(metavar="CAMPAIGN...", help="Open campaigns: their ids or the beginnings of those.")
    ],
    as_json: Json = False,
) -> None:
    """Give up what is left of campaigns that were interrupted; what was measured stays."""
    from orchestrator.cli import closing

    show(lambda settings: closing.close(settings, campaigns), as_json=as_json)


@plan_app.command("show")
def _planshow(
    plan: Annotated[Path, typer.Argument(help="Plan file (YAML).")],
    as_json: Json = False,
) -> None:
    """Show the cases of a plan on the attached devices, what is skipped and why, and how long it takes."""
    from orchestrator.cli import plans

    show(lambda settings: plans.show(settings, plan), as_json=as_json)


@plan_app.command("schema")
def _plan_schema(as_json: Json = False) -> None:
    """Print the JSON schema of plan files, for editors."""
    from orchestrator.cli import plans

    show(lambda _: plans.schema(), as_json=as_json)
