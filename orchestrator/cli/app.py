"""Every command with its options. What a command does is imported when it runs: ``--help`` loads nothing of it."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from orchestrator.errors import BenchfarmError, InterruptedByUserError, UsageError

if TYPE_CHECKING:
    from orchestrator.bootstrap import Settings
    from orchestrator.cli.result import CommandResult

_LOOK: Final[dict[str, Any]] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "add_completion": False,
    "no_args_is_help": True,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 110},
}

app = typer.Typer(
    name="benchfarm",
    help="Measure TensorFlow Lite (LiteRT) models on real phones, and know what each number is worth.",
    epilog="Exit codes: 0 fine, 1 a case failed or can't be trusted, 2 wrong input, 3 a phone or adb, "
    "4 a benchmark program, 5 the store or disk, 70 a fault in benchfarm, 130 stopped by Ctrl-C.",
    **_LOOK,
)
plan_app = typer.Typer(help="Look at plans without running them.", **_LOOK)
lab_app = typer.Typer(help="Virtual phones on this computer, behind a real adb server.", **_LOOK)
builds_app = typer.Typer(help="The benchmark programs that benchfarm can put on a phone.", **_LOOK)
models_app = typer.Typer(help="Look inside models; the sample models.", **_LOOK)
ios_app = typer.Typer(help="iPhones: export a plan's cases for the iOS benchmark app, import what it showed.", **_LOOK)
adb_app = typer.Typer(help="The adb server that benchfarm starts when none is running.", **_LOOK)
for name, group in (
    ("plan", plan_app),
    ("lab", lab_app),
    ("builds", builds_app),
    ("models", models_app),
    ("ios", ios_app),
    ("adb", adb_app),
):
    app.add_typer(group, name=name)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Devices = Annotated[
    list[str] | None, typer.Option("--device", "-s", help="Serial number, or host; may be given again.")
]
Profiles = Annotated[list[str] | None, typer.Option("--profile", help="Profile of phones, for example pixel-4.")]
Where = Annotated[list[str] | None, typer.Option("--where", help="Rule on facts, for example 'android >= 13'.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="File to write.")]
Campaigns = Annotated[
    list[str] | None, typer.Argument(help="Campaign id or its beginning; the newest campaign when left out.")
]
CampaignArgument = Annotated[str, typer.Argument(help="Campaign id or its beginning; the newest when left out.")]


@dataclass(slots=True)
class _Options:
    """What the options before the command said."""

    debug: bool = False
    home: Path | None = None
    store: str | None = None
    json_output: bool = False


_options = _Options()


def _print_version(wanted: bool) -> None:
    if wanted:
        from orchestrator import __version__

        typer.echo(f"benchfarm {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    home: Annotated[
        Path | None, typer.Option("--home", help="Keep store, cache and state in this folder ($BENCHFARM_HOME).")
    ] = None,
    store: Annotated[str | None, typer.Option("--store", help="Database file or URL ($BENCHFARM_STORE).")] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    _options.debug, _options.home, _options.store = debug, home, store


def run() -> None:
    """Run the command line and exit with its code; no traceback reaches a user without --debug."""
    # Known before the options are parsed, so that what the parser refuses is told as JSON too.
    _options.json_output = "--json" in sys.argv
    for number in (signal.SIGTERM, signal.SIGHUP):
        # A cancelled job and a closed terminal are no reason to leave phones changed either.
        signal.signal(number, _stop)
    try:
        app(standalone_mode=True)
    except SystemExit as end:
        # What the option parser refuses, it has told on standard error already; and it ends on Ctrl-C without a word.
        if end.code == InterruptedByUserError.exit_code:
            stop = InterruptedByUserError()
            _fail(str(stop), "", stop.code, stop.exit_code)
        elif end.code == UsageError.exit_code and _options.json_output:
            _print_error("the options can't be used; standard error says why", "", UsageError().code, end.code)
        raise
    except BenchfarmError as error:
        _fail(str(error), error.hint, error.code, error.exit_code)
    except KeyboardInterrupt:
        stop = InterruptedByUserError()
        _fail(str(stop), "", stop.code, stop.exit_code)
    except BrokenPipeError:
        # Whoever read our output has gone; that is no fault of the command.
        sys.stderr.close()
        raise SystemExit(141) from None
    except Exception as error:  # noqa: BLE001 - the last line of defence
        _fail(
            f"a fault in benchfarm itself: {type(error).__name__}: {error}",
            "run the command again with 'benchfarm --debug ...' and report the traceback",
            "internal",
            70,
        )


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _fail(message: str, hint: str, code: str, exit_code: int) -> None:
    if _options.debug:
        traceback.print_exc()
    if _options.json_output:
        _print_error(message, hint, code, exit_code)
    typer.echo(f"benchfarm: error: {message}", err=True)
    if hint:
        typer.echo(f"  {hint}", err=True)
    raise SystemExit(exit_code)


def _print_error(message: str, hint: str, code: str, exit_code: int) -> None:
    from orchestrator.cli.result import to_json

    typer.echo(to_json({"error": {"code": code, "message": message, "hint": hint, "exit_code": exit_code}}))


def _show(command: Callable[[Settings], CommandResult], *, as_json: bool) -> None:
    from orchestrator.bootstrap import Settings

    result = command(Settings.from_environment(home=_options.home, store=_options.store))
    if as_json:
        from orchestrator.cli.result import to_json

        typer.echo(to_json(result.data))
    elif result.text:
        typer.echo(result.text)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


@app.command("devices")
def _devices(as_json: Json = False) -> None:
    """List the phones that are attached, and why one can't be used."""
    from orchestrator.cli import devices

    _show(devices.list_attached, as_json=as_json)


@app.command("bench")
def _bench(
    models: Annotated[list[Path], typer.Argument(help="Model files (.tflite).")],
    delegate: Annotated[
        list[str] | None, typer.Option("--delegate", "-d", help="cpu, xnnpack, gpu, nnapi, hexagon ... (a,b,c).")
    ] = None,
    threads: Annotated[list[str] | None, typer.Option("--threads", "-t", help="Thread counts (1,4).")] = None,
    tool: Annotated[list[str] | None, typer.Option("--tool", help="native, apk or litert (a,b).")] = None,
    device: Devices = None,
    profile: Profiles = None,
    where: Where = None,
    host: Annotated[bool, typer.Option("--host", help="Measure on this computer too.")] = False,
    flag: Annotated[
        list[str] | None, typer.Option("--flag", help="Further flag of the program, name=value; may be given again.")
    ] = None,
    build: Annotated[
        list[str] | None, typer.Option("--build", help="Program to use, tool=NAME or tool=FILE; may be given again.")
    ] = None,
    run_pass: Annotated[
        list[str] | None, typer.Option("--pass", help="timing, memory, profile, cold (a,b); timing when left out.")
    ] = None,
    invocations: Annotated[int, typer.Option("--invocations", "-n", min=1, help="Processes started per case.")] = 3,
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
        delegates=_split(delegate),
        threads=_split(threads),
        tools=_split(tool),
        serials=tuple(device or ()),
        profiles=tuple(profile or ()),
        where=tuple(where or ()),
        host=host,
        flags=tuple(flag or ()),
        builds=tuple(build or ()),
        passes=_split(run_pass),
        invocations=invocations,
        num_runs=num_runs,
        min_secs=min_secs,
        max_secs=max_secs,
        affinity=affinity,
        timeout_s=timeout,
        seed=seed,
        name=campaign_name,
    )
    _show(lambda settings: measuring.bench(settings, request, out), as_json=as_json)


def _split(values: list[str] | None) -> tuple[str, ...]:
    return tuple(part.strip() for value in values or () for part in value.split(",") if part.strip())


@app.command("run")
def _run(
    plan: Annotated[Path | None, typer.Argument(help="Plan file (YAML).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a campaign that was cut off.")] = False,
    campaign: Annotated[
        str, typer.Option("--campaign", help="With --resume: which one; the newest open one else.")
    ] = "",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write the HTML report.")] = None,
    as_json: Json = False,
) -> None:
    """Run a whole plan, or go on with one that was cut off."""
    from orchestrator.cli import measuring

    if resume == (plan is not None):
        raise UsageError("give either a plan file or --resume", hint="benchfarm run plan.yaml | benchfarm run --resume")
    if plan is not None:
        _show(lambda settings: measuring.run_plan(settings, plan, out), as_json=as_json)
    else:
        _show(lambda settings: measuring.resume(settings, campaign, out), as_json=as_json)


@plan_app.command("show")
def _plan_show(
    plan: Annotated[Path, typer.Argument(help="Plan file (YAML).")],
    as_json: Json = False,
) -> None:
    """Show the cases of a plan on the attached devices, what is skipped and why, and how long it takes."""
    from orchestrator.cli import plans

    _show(lambda settings: plans.show(settings, plan), as_json=as_json)


@plan_app.command("schema")
def _plan_schema(as_json: Json = False) -> None:
    """Print the JSON schema of plan files, for editors."""
    from orchestrator.cli import plans

    _show(lambda _: plans.schema(), as_json=as_json)


@app.command("report")
def _report(
    campaigns: Campaigns = None,
    out: Out = None,
    form: Annotated[str, typer.Option("--format", "-f", help="html, text, markdown, csv or json.")] = "html",
    published: Annotated[bool, typer.Option("--published", help="Show the public reference figures beside.")] = False,
    as_json: Json = False,
) -> None:
    """Render a report of one campaign or several."""
    from orchestrator.cli import reports

    _show(
        lambda settings: reports.render(settings, tuple(campaigns or ()), form=form, out=out, published=published),
        as_json=as_json,
    )


@app.command("campaigns")
def _campaigns(as_json: Json = False) -> None:
    """List what is stored, newest first."""
    from orchestrator.cli import stored

    _show(stored.campaigns, as_json=as_json)


@app.command("runs")
def _runs(campaign: CampaignArgument = "", as_json: Json = False) -> None:
    """List the runs of a campaign."""
    from orchestrator.cli import stored

    _show(lambda settings: stored.runs(settings, campaign), as_json=as_json)


@app.command("log")
def _log(
    run_id: Annotated[str, typer.Argument(help="Run id or its beginning, as 'benchfarm runs' shows it.")],
    attachment: Annotated[str, typer.Option("--attachment", "-a", help="Only this one; all that are text else.")] = "",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Show what a run printed, byte for byte as it was kept."""
    from orchestrator.cli import stored

    _show(lambda settings: stored.log(settings, run_id, attachment, out), as_json=as_json)


@app.command("reparse")
def _reparse(campaigns: Campaigns = None, as_json: Json = False) -> None:
    """Read stored raw output again and update what was derived from it; all campaigns when none is named."""
    from orchestrator.cli import stored

    _show(lambda settings: stored.reparse(settings, tuple(campaigns or ())), as_json=as_json)


@app.command("parse")
def _parse(
    files: Annotated[list[str], typer.Argument(help="Files with benchmark output; '-' is standard input.")],
    as_json: Json = False,
) -> None:
    """Show what benchfarm gets out of any benchmark output: native runs, logcat, several runs in one text."""
    from orchestrator.cli import parsing

    _show(lambda _: parsing.parse_files(tuple(files)), as_json=as_json)


@app.command("flags")
def _flags(
    flag_name: Annotated[str, typer.Argument(metavar="NAME", help="Explain this one; all are listed else.")] = "",
    tool: Annotated[
        str, typer.Option("--tool", help="Whose flags: native, apk, perf-options, litert-native or ios-app.")
    ] = "native",
    build: Annotated[str, typer.Option("--build", help="Name, sha256 or path of one program.")] = "",
    device: Annotated[
        str, typer.Option("--device", "-s", help="Ask the program that is used on this device ('host': here).")
    ] = "",
    as_json: Json = False,
) -> None:
    """Explain the flags of a benchmark program: type, default, which builds have them, what they do, traps."""
    from orchestrator.cli import flags

    _show(lambda settings: flags.explain(settings, flag_name, build=build, tool=tool, serial=device), as_json=as_json)


@app.command("import")
def _import(
    files: Annotated[list[Path], typer.Argument(help="Firebase JSON or CSV, or report.json or report.csv.")],
    device: Annotated[str, typer.Option("--device", "-s", help="Serial number or name of the phone it ran on.")],
    model: Annotated[list[Path], typer.Option("--model", "-m", help="Model that was measured; may be given again.")],
    profile: Annotated[str, typer.Option("--profile", help="Profile of a phone that isn't known yet.")] = "",
    program: Annotated[str, typer.Option("--app", help="The app's file (with a slash), or what version it is.")] = "",
    campaign_name: Annotated[str, typer.Option("--name", help="Name of the campaign.")] = "import",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write the HTML report.")] = None,
    as_json: Json = False,
) -> None:
    """Store results of the Firebase game-loop app and the Delegate Performance Benchmark app, judged as all others."""
    from orchestrator.cli import importing

    request = importing.ImportRequest(
        files=tuple(files), device=device, profile=profile, models=tuple(model), app=program, name=campaign_name
    )
    _show(lambda settings: importing.import_files(settings, request, out), as_json=as_json)


@ios_app.command("export")
def _ios_export(
    plan: Annotated[Path, typer.Argument(help="Plan file (YAML).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="New folder to write.")],
    profile: Annotated[str, typer.Option("--profile", help="iPhone profile; the plan's own else.")] = "",
    phone_name: Annotated[
        str, typer.Option("--name", help="What the iPhone is known by; the profile's name else.")
    ] = "",
    os_version: Annotated[str, typer.Option("--ios", help="Version of iOS on it, for the records.")] = "",
    program: Annotated[str, typer.Option("--app", help="The app's file (with a slash), or what version it is.")] = "",
    as_json: Json = False,
) -> None:
    """Write, for a plan's cases on an iPhone, the files of each app bundle and what to do with them."""
    from orchestrator.cli import ios

    phone = ios.IPhone(profile=profile, name=phone_name, os_version=os_version, app=program)
    _show(lambda settings: ios.export(settings, plan, out, phone), as_json=as_json)


@ios_app.command("import")
def _ios_import(
    folder: Annotated[Path, typer.Argument(help="Folder that 'benchfarm ios export' wrote.")],
    files: Annotated[list[Path] | None, typer.Argument(help="The app's output; the results folders' else.")] = None,
    case: Annotated[str, typer.Option("--case", help="Case of the files: folder or key, or its beginning.")] = "",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write the HTML report.")] = None,
    as_json: Json = False,
) -> None:
    """Store what the iOS benchmark app showed; text that can't be of its case is refused."""
    from orchestrator.cli import ios

    _show(lambda settings: ios.import_results(settings, folder, tuple(files or ()), case, out), as_json=as_json)


@app.command("restore")
def _restore(
    serials: Annotated[list[str] | None, typer.Argument(help="Serial numbers; all with open changes else.")] = None,
    as_json: Json = False,
) -> None:
    """Put phones back as they were before a run that could not do so itself."""
    from orchestrator.cli import devices

    _show(lambda settings: devices.restore(settings, tuple(serials or ())), as_json=as_json)


@app.command("quickstart")
def _quickstart(
    folder: Annotated[Path, typer.Option("--folder", help="Where its store and report go.")] = Path(
        "reports/out/quickstart"
    ),
    as_json: Json = False,
) -> None:
    """Show the whole thing: two virtual phones and this computer, sample models, a report. Leaves nothing running."""
    from orchestrator.cli import quickstart

    _show(lambda settings: quickstart.run(settings, folder), as_json=as_json)


@lab_app.command("up")
def _lab_up(
    profiles: Annotated[list[str] | None, typer.Argument(help="Profiles, one for each phone.")] = None,
    speed: Annotated[float, typer.Option(min=0.1, help="How many phone seconds pass in a real one.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the phones' noise.")] = 0,
    execute: Annotated[bool, typer.Option("--execute", help="Run pushed x86-64 programs for real.")] = False,
    as_json: Json = False,
) -> None:
    """Start virtual phones (a Pixel 3 and a Pixel 4 when none is named) and an adb server for them."""
    from orchestrator.cli import lab

    _show(
        lambda settings: lab.up(settings, tuple(profiles or ()), speed=speed, seed=seed, execute=execute),
        as_json=as_json,
    )


@lab_app.command("down")
def _lab_down(as_json: Json = False) -> None:
    """Stop the virtual phones and their adb server."""
    from orchestrator.cli import lab

    _show(lab.down, as_json=as_json)


@lab_app.command("list")
def _lab_list(as_json: Json = False) -> None:
    """List the virtual phones, their faults, and the profiles that there are."""
    from orchestrator.cli import lab

    _show(lab.list_phones, as_json=as_json)


@lab_app.command("fault")
def _lab_fault(
    serial: Annotated[
        str, typer.Argument(help="Serial number of a virtual phone; empty lists the kinds of fault.")
    ] = "",
    kind: Annotated[str, typer.Argument(help="Kind of fault; 'clear' takes all faults of the phone back.")] = "",
    options: Annotated[list[str] | None, typer.Argument(help="Options of the fault, name=value.")] = None,
    as_json: Json = False,
) -> None:
    """Give a virtual phone a fault at a named moment or byte count."""
    from orchestrator.cli import lab

    _show(lambda settings: lab.fault(settings, serial, kind, tuple(options or ())), as_json=as_json)


@builds_app.command("list")
def _builds_list(
    everything: Annotated[bool, typer.Option("--all", help="Older releases that were kept, too.")] = False,
    as_json: Json = False,
) -> None:
    """List the known builds, which are on this computer, and which release of each is in use."""
    from orchestrator.cli import builds

    _show(lambda settings: builds.list_builds(settings, everything=everything), as_json=as_json)


@builds_app.command("fetch")
def _builds_fetch(
    names: Annotated[list[str], typer.Argument(help="Declared builds, as 'benchfarm builds list' names them.")],
    abi: Annotated[
        list[str] | None, typer.Option("--abi", help="Only for these (a,b); for all that are declared else.")
    ] = None,
    keep_pin: Annotated[
        bool, typer.Option("--keep-pin", help="Keep what is new, and go on using what is in use.")
    ] = False,
    mirror: Annotated[
        str, typer.Option("--mirror", help="Download from PREFIX, or ORIGIN=PREFIX ($BENCHFARM_MIRROR).")
    ] = "",
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that one file may take.")] = 1800.0,
    stall: Annotated[float, typer.Option(min=0.1, help="Seconds that a server may be silent.")] = 30.0,
    as_json: Json = False,
) -> None:
    """Download programs and their libraries from where their build files say, and use them from now on."""
    from orchestrator.cli import builds

    request = builds.FetchRequest(
        names=tuple(names), abis=_split(abi), keep_pin=keep_pin, mirror=mirror, timeout_s=timeout, stall_s=stall
    )
    _show(lambda settings: builds.fetch(settings, request), as_json=as_json)


@builds_app.command("add")
def _builds_add(
    file: Annotated[Path, typer.Argument(help="A benchmark_model binary, an APK, or a library for one.")],
    build_name: Annotated[str, typer.Option("--name", help="Name to know it by.")] = "",
    library: Annotated[
        list[Path] | None, typer.Option("--with", help="Library to lie beside it; may be given again.")
    ] = None,
    release: Annotated[str, typer.Option("--release", help="Which release the files are of.")] = "",
    as_json: Json = False,
) -> None:
    """Take a program and its libraries into the cache, after a look inside, and use them from now on."""
    from orchestrator.cli import builds

    _show(lambda settings: builds.add(settings, file, build_name, tuple(library or ()), release), as_json=as_json)


@builds_app.command("pin")
def _builds_pin(
    release: Annotated[str, typer.Argument(help="NAME@DIGITS, as 'benchfarm builds list --all' shows them.")],
    as_json: Json = False,
) -> None:
    """Use a release that was kept: go back to an older one, or on to a newer one."""
    from orchestrator.cli import builds

    _show(lambda settings: builds.pin(settings, release), as_json=as_json)


@builds_app.command("which")
def _builds_which(
    tool: Annotated[str, typer.Argument(help="native, apk, litert-native ...")],
    abi: Annotated[str, typer.Option("--abi", help="Of the phone.")] = "arm64-v8a",
    build: Annotated[str, typer.Option("--build", help="What a plan would name; the default build else.")] = "",
    as_json: Json = False,
) -> None:
    """Say which program would be used, where it comes from, what is in it and what lies beside it."""
    from orchestrator.cli import builds

    _show(lambda settings: builds.which(settings, tool, abi, build), as_json=as_json)


@builds_app.command("verify")
def _builds_verify(as_json: Json = False) -> None:
    """Compare every cached program and library with its sha256."""
    from orchestrator.cli import builds

    _show(builds.verify, as_json=as_json)


@models_app.command("inspect")
def _models_inspect(
    model: Annotated[Path, typer.Argument(help="Model file (.tflite).")],
    as_json: Json = False,
) -> None:
    """Show what a model holds: inputs, outputs, operators, multiply-adds, size."""
    from orchestrator.cli import models

    _show(lambda _: models.inspect(model), as_json=as_json)


@models_app.command("samples")
def _models_samples(
    build: Annotated[
        Path | None, typer.Option("--build", help="Build them again with TensorFlow into this folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say where the sample models are, or build them again."""
    from orchestrator.cli import models

    _show(lambda _: models.samples(build), as_json=as_json)


@adb_app.command("status")
def _adb_status(as_json: Json = False) -> None:
    """Say which adb servers are in use and where their binary is."""
    from orchestrator.cli import devices

    _show(devices.adb_status, as_json=as_json)


@adb_app.command("stop")
def _adb_stop(as_json: Json = False) -> None:
    """Stop the adb server that benchfarm started; any other is left alone."""
    from orchestrator.cli import devices

    _show(devices.adb_stop, as_json=as_json)
