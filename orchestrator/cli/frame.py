"""What all commands share: the root command and its options, how a result is shown and an error told."""

from __future__ import annotations

import itertools
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, Protocol, runtime_checkable

import typer

from orchestrator.cli.terminal import say, say_json
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


def refuse(context: typer.Context, names: Collection[str], mode: str) -> None:
    """Raise UsageError when one of these parameters was typed: in this mode nothing reads them."""
    for parameter in context.command.params:
        # What typer's own copy of click calls it isn't public; the word is the same in every version.
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"{parameter.opts[0]} means nothing {mode}", hint="leave it out")


app = typer.Typer(
    name="benchfarm",
    help="Measure TensorFlow Lite (LiteRT) models on real phones, and know what each number is worth.",
    epilog="Exit codes: 0 fine, 1 a case failed or can't be trusted, 2 wrong input, 3 a phone or adb, "
    "4 a benchmark program, 5 the store or disk, 6 the time didn't reach for all, 70 a fault in benchfarm, "
    "130 stopped by Ctrl-C or a signal, 141 nobody reads the output any more.",
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
OneOfEach = Annotated[
    str, typer.Option("--one-of-each", help="Of the phones that fit, one for each value of a fact: profile, soc ...")
]
AtMost = Annotated[int | None, typer.Option("--any", min=1, help="So many of the phones that fit; all if left out.")]
Builds = Annotated[
    list[str] | None,
    typer.Option(
        "--build", help="Program to use: TOOL=NAME or TOOL=FILE; NAME or FILE for a single tool. May be given again."
    ),
]
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

        say(f"benchfarm {__version__}")
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
    _options.log_format = _format_on_command_line(sys.argv)
    try:
        exit_code = app(standalone_mode=False)
        if exit_code == InterruptedByUserError.exit_code:
            # The option parser ends on Ctrl-C without a word.
            raise _interrupted()
        raise SystemExit(exit_code or 0)
    except BenchfarmError as error:
        _fail(str(error), error.hint, error.code, error.exit_code)
    except KeyboardInterrupt:
        stop = _interrupted()
        _fail(str(stop), "", stop.code, stop.exit_code)
    except BrokenPipeError:
        # Whoever read our output has gone; that is no fault of the command.
        sys.stderr.close()
        raise SystemExit(141) from None
    except Exception as error:  # noqa: BLE001 - the last line of defence
        if isinstance(error, _Refusal):
            _refuse(error)
        _fail(
            f"a fault in benchfarm itself: {type(error).__name__}: {error}",
            "run the command again with 'benchfarm --debug ...' and report the traceback",
            "internal",
            70,
        )


def _interrupted() -> InterruptedByUserError:
    """Return the error of a command that was stopped; one that never came to a phone says nothing of phones."""
    had_phones = "orchestrator.devices" in sys.modules
    return InterruptedByUserError() if had_phones else InterruptedByUserError("stopped by Ctrl-C or a signal")


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@runtime_checkable
class _Refusal(Protocol):
    """What the option parser raises: of a class that isn't public in every version of typer."""

    exit_code: int

    def format_message(self) -> str: ...


def _refuse(error: _Refusal) -> NoReturn:
    """Tell what the option parser refuses, and exit."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "benchfarm"
    message = error.format_message()
    if context is not None and message == context.get_help():
        message = f"{command} needs a command"
    if _options.json_output:
        _print_error(message, f"'{command} -h' shows what there is", UsageError().code, error.exit_code)
    if _is_json_wanted():
        _write_error(message, f"'{command} -h' shows what there is", UsageError().code, error.exit_code)
    else:
        if context is not None:
            say(f"{context.get_usage()}\nTry '{command} -h' for help.\n", err=True)
        say(f"Error: {error.format_message()}", err=True)
    raise SystemExit(error.exit_code)


def _format_on_command_line(words: Sequence[str]) -> str | None:
    """Return what ``--log-format`` says, for what is refused before the options are read."""
    for word, following in itertools.pairwise((*words, "")):
        if word == "--log-format":
            return following
        if word.startswith("--log-format="):
            return word.partition("=")[2]
    return None


def _is_json_wanted() -> bool:
    if _options.log_format is not None:
        return _options.log_format == "json"
    from orchestrator.bootstrap import Settings

    with suppress(BenchfarmError):
        return Settings.from_environment().log_format == "json"
    return False


def _write_error(message: str, hint: str, code: str, exit_code: int) -> None:
    from orchestrator.cli.log_lines import write_line

    told = traceback.format_exc() if _options.debug else None
    write_line("error", message, level="error", code=code, hint=hint, exit_code=exit_code, traceback=told)


def _fail(message: str, hint: str, code: str, exit_code: int) -> NoReturn:
    if _options.json_output:
        _print_error(message, hint, code, exit_code)
    if _is_json_wanted():
        _write_error(message, hint, code, exit_code)
        raise SystemExit(exit_code)
    if _options.debug:
        traceback.print_exc()
    say(f"benchfarm: error: {message}", err=True)
    if hint:
        say(f"  {hint}", err=True)
    raise SystemExit(exit_code)


def _print_error(message: str, hint: str, code: str, exit_code: int) -> None:
    from orchestrator.cli.result import json_pieces

    say_json(json_pieces({"error": {"code": code, "message": message, "hint": hint, "exit_code": exit_code}}))


def show(command: Callable[[Settings], CommandResult], *, as_json: bool) -> None:
    """Do a command, print its result as text or JSON, and exit with its code."""
    from orchestrator.bootstrap import Settings

    if _options.log_format not in {None, "text", "json"}:
        raise UsageError(f"--log-format is {_options.log_format!r}, neither text nor json")
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
        from orchestrator.cli.result import json_pieces

        say_json(json_pieces(result.data))
    elif result.text:
        say(result.text)
    else:
        for line in result.lines:
            say(line)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def split(values: list[str] | None) -> tuple[str, ...]:
    """Return the parts of options that may be given again and may hold commas."""
    return tuple(part.strip() for value in values or () for part in value.split(",") if part.strip())
