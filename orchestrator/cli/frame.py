"""What all commands share: the root command and its options, how a result is shown and an error told."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from orchestrator.errors import BenchfarmError, InterruptedByUserError, UsageError

if TYPE_CHECKING:
    from orchestrator.bootstrap import Settings
    from orchestrator.cli.result import CommandResult

LOOK: Final[dict[str, Any]] = {
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
    "4 a benchmark program, 5 the store or disk, 6 the time didn't reach for all, 70 a fault in benchfarm, "
    "130 stopped by Ctrl-C.",
    **LOOK,
)


def group(name: str, about: str) -> typer.Typer:
    """Return a new group of commands, ``benchfarm NAME ...``."""
    made = typer.Typer(help=about, **LOOK)
    app.add_typer(made, name=name)
    return made


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
    log_format: str | None = None


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
    log_format: Annotated[
        str | None, typer.Option("--log-format", help="Progress as text or json ($BENCHFARM_LOG).")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    _options.debug, _options.home, _options.store = debug, home, store
    _options.log_format = log_format


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
    if _options.log_format == "json":
        from orchestrator.cli.log_lines import write_line

        write_line("error", message, level="error", code=code, hint=hint, exit_code=exit_code)
        raise SystemExit(exit_code)
    typer.echo(f"benchfarm: error: {message}", err=True)
    if hint:
        typer.echo(f"  {hint}", err=True)
    raise SystemExit(exit_code)


def _print_error(message: str, hint: str, code: str, exit_code: int) -> None:
    from orchestrator.cli.result import to_json

    typer.echo(to_json({"error": {"code": code, "message": message, "hint": hint, "exit_code": exit_code}}))


def show(command: Callable[[Settings], CommandResult], *, as_json: bool) -> None:
    """Do a command, print its result as text or JSON, and exit with its code."""
    from orchestrator.bootstrap import Settings

    settings = Settings.from_environment(home=_options.home, store=_options.store)
    if _options.log_format is not None:
        settings = replace(settings, environ={**settings.environ, "BENCHFARM_LOG": _options.log_format})
    # Known before anything runs: a night's log in the wrong form is no log.
    _options.log_format = settings.log_format
    if settings.log_format == "json":
        from orchestrator.cli.log_lines import logs_as_json

        logs_as_json()
    result = command(settings)
    if as_json:
        from orchestrator.cli.result import to_json

        typer.echo(to_json(result.data))
    elif result.text:
        typer.echo(result.text)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def split(values: list[str] | None) -> tuple[str, ...]:
    """Return the parts of options that may be given again and may hold commas."""
    return tuple(part.strip() for value in values or () for part in value.split(",") if part.strip())
