"""Measuring: bench, run, plan, quickstart, tune, trace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.declared.reading import results_app
from orchestrator.cli.frame import (
    Builds,
    Deed,
    Devices,
    HtmlOut,
    OnPhones,
    PerProcess,
    app,
    command,
    filled,
    group,
    later,
    plan_options,
    refuse,
)
from orchestrator.errors import UsageError
from orchestrator.records.workload import BUILTIN, USUAL_TOOL

if TYPE_CHECKING:
    from orchestrator.cli import measuring, plans, retention, searching, tracing
else:
    measuring, plans, retention, searching, tracing = later("measuring plans retention searching tracing")

plan_app = group("plan", "Check a plan, and show what it would measure.")


@command(app, "quickstart")
def _quickstart(
    folder: Annotated[Path, typer.Option("--folder", help="Folder for its store and report.")] = Path(
        "reports/out/quickstart"
    ),
) -> Deed:
    """Try everything on virtual phones and this computer.

    Example: benchfarm quickstart
    """
    return lambda settings: measuring.quickstart(settings, folder)


@dataclass(frozen=True, kw_only=True)
class BenchOptions(OnPhones, PerProcess):
    """What 'bench' reads."""

    models: Annotated[list[Path], typer.Argument(help="Model files (.tflite).")]
    delegate: Annotated[
        list[str] | None,
        typer.Option(
            "--delegate",
            "-d",
            help="cpu, xnnpack, gpu, nnapi, hexagon ... (a,b,c), or all (default: try what is there).",
        ),
    ] = None
    threads: Annotated[list[str] | None, typer.Option("--threads", "-t", help="Thread counts (1,4).")] = None
    every_thread_count: Annotated[
        bool,
        typer.Option("--every-thread-count", help="Use each thread count also where the delegate takes all operators."),
    ] = False
    run_pass: Annotated[
        list[str] | None,
        typer.Option("--pass", help="timing (the default), memory, profile, cold, parity, sustained, trace (a,b)."),
    ] = None
    host: Annotated[bool, typer.Option("--host", help="Include this computer.")] = False
    invocations: Annotated[
        str | None, typer.Option("--invocations", "-n", help="Processes per case: N, or FIRST-MOST (default: 8-40).")
    ] = None
    precision: Annotated[
        str | None, typer.Option("--precision", help="Stop a case at this half width of its 95 % interval (2%).")
    ] = None
    budget: Annotated[
        str | None, typer.Option("--budget", help="Time per phone for more processes than the first (30m).")
    ] = None
    sustained: Annotated[
        str | None, typer.Option("--sustained", help="Run processes without a pause for this time (30m).")
    ] = None
    campaign_name: Annotated[
        str | None, typer.Option("--name", help="Name of the campaign (default: the models' names).")
    ] = None
    out: HtmlOut = None
    tool: Annotated[
        list[str] | None,
        typer.Option("--tool", help="native, apk, litert, perf-options, litert-native, litert-lm, litert-ios (a,b)."),
    ] = None
    flag: Annotated[
        list[str] | None, typer.Option("--flag", help="Flag of the program, name=value. Repeat for several.")
    ] = None
    mode: Annotated[
        list[str] | None, typer.Option("--mode", help="Run as foreground (apk), shell, top-app (native) (a,b).")
    ] = None
    parity_inputs: Annotated[
        str | None, typer.Option("--parity-inputs", help="Folder with inputs for parity: MODEL.0.bin ...")
    ] = None
    reference_check: Annotated[
        bool,
        typer.Option(
            "--reference-check/--no-reference-check",
            help="Measure a reference workload before and after: ~30 s per phone.",
        ),
    ] = False
    reboot: Annotated[bool, typer.Option("--reboot", help="Reboot a phone whose reference check moved.")] = False


@command(app, "bench")
def _bench(options: BenchOptions) -> Deed:
    """Measure models on phones; name the fastest delegate.

    Example: benchfarm bench model.tflite

    Example: benchfarm bench model.tflite --delegate xnnpack,gpu --threads 1,4
    """
    return lambda settings: measuring.bench(settings, plan_options(options), options.out)


@command(app, "run")
def _run(
    plan: Annotated[Path | None, typer.Argument(help="Plan file (YAML).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted campaign.")] = False,
    campaign: Annotated[
        str, typer.Option("--campaign", help="With --resume: which campaign (default: the newest open one).")
    ] = "",
    budget: Annotated[
        str, typer.Option("--budget", help="Time budget per device, 2h. Cases that don't fit are left out.")
    ] = "",
    until: Annotated[str, typer.Option("--until", help="Stop at this time: 06:00, or a date with a time.")] = "",
    out: HtmlOut = None,
) -> Deed:
    """Run a plan, or resume an interrupted campaign.

    Example: benchfarm run plan.yaml | benchfarm run --resume
    """
    if resume == (plan is not None):
        raise UsageError("give either a plan file or --resume", hint="benchfarm run plan.yaml | benchfarm run --resume")
    if plan is not None:
        if campaign:
            raise UsageError("--campaign goes with --resume", hint="a plan begins a campaign of its own: leave it out")
        path = plan
        return lambda settings: measuring.run_plan(settings, path, out, budget=budget, until=until)
    if budget or until:
        raise UsageError("a campaign keeps the time that it began with", hint="leave out --budget and --until")
    return lambda settings: measuring.resume(settings, campaign, out)


@command(results_app, "close")
def _close(
    campaigns: Annotated[
        list[str], typer.Argument(metavar="CAMPAIGN...", help="Open campaigns, by id or its beginning.")
    ],
) -> Deed:
    """Abandon the rest of interrupted campaigns. What was measured stays.

    Example: benchfarm results close CAMPAIGN
    """
    return lambda settings: retention.close(settings, campaigns)


@command(plan_app, "show")
def _planshow(plan: Annotated[Path, typer.Argument(help="Plan file (YAML).")]) -> Deed:
    """Show a plan's cases on the attached devices.

    Example: benchfarm plan show plan.yaml
    """
    return lambda settings: plans.show(settings, plan)


@command(plan_app, "init")
def _plan_init(
    models: Annotated[
        list[str] | None, typer.Argument(help="Model files (.tflite), or patterns of such in quotes.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.")] = Path("plan.yaml"),
) -> Deed:
    """Write a commented plan for the attached phones.

    Example: benchfarm plan init model.tflite --out nightly.yaml

    Nothing is measured. A file that is there isn't overwritten.
    """
    return lambda settings: plans.init(settings, models or [], out)


@command(plan_app, "schema")
def _plan_schema() -> Deed:
    """Print the JSON schema of plan files, for editors.

    Example: benchfarm plan schema
    """
    return lambda _: plans.schema()


@dataclass(frozen=True, kw_only=True)
class TuneOptions(OnPhones):
    """What 'tune' reads."""

    context: typer.Context
    models: Annotated[list[Path] | None, typer.Argument(help="Model files (.tflite).")] = None
    device: Annotated[
        list[str] | None, typer.Option("--device", "-s", "--phone", help="Serial number, or host. Repeat for several.")
    ] = None
    delegate: Annotated[
        list[str] | None,
        typer.Option("--delegate", "-d", help="Delegates to try (default: cpu,xnnpack,gpu,nnapi,hexagon)."),
    ] = None
    threads: Annotated[
        list[str] | None, typer.Option("--threads", "-t", help="Thread counts to try (default: 1,2,4,8).")
    ] = None
    flags: Annotated[
        list[str] | None,
        typer.Option("--flags", help="A set of flags to try beside none, name=value,name=value. Repeat for several."),
    ] = None
    tool: Annotated[str, typer.Option("--tool", help="native, apk or litert-native.")] = USUAL_TOOL
    most: Annotated[int, typer.Option(min=2, max=64, help="Processes per configuration, at most.")] = 8
    alike: Annotated[str, typer.Option("--alike", help="Ignore differences below this.")] = "2%"
    budget: Annotated[
        str,
        typer.Option(
            "--budget", help="Share of the time of measuring every configuration, at most (from 8 configurations on)."
        ),
    ] = "33%"
    min_secs: Annotated[float, typer.Option(min=0, help="Seconds per process, at least.")] = 1.0
    parity: Annotated[bool, typer.Option("--parity/--no-parity", help="Compare the outputs of the finalists.")] = True
    seed: Annotated[int, typer.Option(help="Seed for the order of invocations.")] = 0
    campaign: Annotated[
        str, typer.Option("--campaign", help="Measure nothing. Show this search (id or its beginning).")
    ] = ""


@command(app, "tune")
def _tune(options: TuneOptions) -> Deed:
    """Find a model's fastest configuration on each phone.

    Example: benchfarm tune model.tflite --device SERIAL

    Tries delegates x threads x flags, and drops early what is clearly slower.
    """
    from orchestrator.app.searching import TuneRequest
    from orchestrator.cli.files import share_of
    from orchestrator.records.search import SearchRule

    if bool(options.models) == bool(options.campaign):
        raise UsageError(
            "give either models or --campaign",
            hint="benchfarm tune m.tflite --phone SERIAL | benchfarm tune --campaign ID",
        )
    if options.campaign:
        others = {item.name or "" for item in options.context.command.params} - {"campaign", "as_json"}
        refuse(options.context, others, "with --campaign")
        return lambda settings: searching.stored(settings, options.campaign)
    request = TuneRequest(
        options=plan_options(options, without={"flags", "budget"}),
        flag_sets=options.flags,
        rule=SearchRule(
            most=options.most,
            alike=share_of(options.alike, "--alike", least=0.0, most=0.99),
            parity=options.parity,
            budget=share_of(options.budget, "--budget", least=0.0, most=1.0),
        ),
    )
    return lambda settings: searching.tune(settings, request)


@dataclass(frozen=True, kw_only=True)
class TraceOptions:
    """What 'trace' reads."""

    context: typer.Context
    model: Annotated[Path | None, typer.Argument(help="Model file (.tflite); none with --app.")] = None
    app: Annotated[str, typer.Option("--app", help="Package of an app of yours, traced while it is used.")] = ""
    activity: Annotated[str, typer.Option("--activity", help="With --app: the activity to start (.Main).")] = ""
    during: Annotated[str, typer.Option("--during", help="With --app: record while this command runs here.")] = ""
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.1, max=600, help="With --app: record so long, not until Enter.")
    ] = None
    restart: Annotated[bool, typer.Option("--restart", help="With --app: end the running app first.")] = False
    device: Devices = None
    delegate: Annotated[str, typer.Option("--delegate", "-d", help="cpu, xnnpack, gpu, nnapi, hexagon ...")] = BUILTIN
    threads: Annotated[int, typer.Option("--threads", "-t", min=1, help="Number of threads.")] = 1
    tool: Annotated[str, typer.Option("--tool", help="native, apk, litert-native or perf-options.")] = USUAL_TOOL
    build: Builds = None
    num_runs: Annotated[int, typer.Option(min=1, help="Inferences beside the warm-up, at least.")] = 20
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that the run may take.")] = 120.0
    summary: Annotated[bool, typer.Option("--summary/--no-summary", help="Read the trace after recording it.")] = True
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the trace files.")] = None


@command(app, "trace")
def _trace(options: TraceOptions) -> Deed:
    """Record a trace of one run, or of your own app.

    Example: benchfarm trace model.tflite --delegate gpu

    Example: benchfarm trace --app com.example.camera --activity .MainActivity --seconds 20

    The trace opens in the Perfetto UI; what each operator took is summed up.
    """
    from orchestrator.app.tracing import TraceRequest
    from orchestrator.app.tracing_app import AppTraceRequest

    if options.app:
        refuse(options.context, {"model", "delegate", "threads", "tool", "build", "num_runs", "timeout"}, "with --app")
        wanted = filled(
            AppTraceRequest,
            options,
            package=options.app,
            serials=tuple(options.device or ()),
            has_summary=options.summary,
        )
        return lambda settings: tracing.trace_app(settings, wanted, options.out)
    refuse(options.context, {"activity", "during", "seconds", "restart"}, "without --app")
    if options.model is None:
        raise UsageError("nothing to trace", hint="name a model file, or an app with --app")
    request = filled(
        TraceRequest,
        options,
        serials=tuple(options.device or ()),
        builds=tuple(options.build or ()),
        timeout_s=options.timeout,
        has_summary=options.summary,
    )
    return lambda settings: tracing.trace(settings, request, options.out)
