"""What all commands share: the root command and its options, how help, results and errors are shown."""

from __future__ import annotations

import importlib
import inspect
import itertools
import os
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    NoReturn,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    get_type_hints,
    runtime_checkable,
)

import typer
import typer.core

from orchestrator.cli.files import format_of
from orchestrator.cli.terminal import OutputLostError, open_standard_streams, say, say_json
from orchestrator.config.plan_keys import PlanOptions, plan_keys
from orchestrator.errors import BenchfarmError, InterruptedByUserError, UsageError

if TYPE_CHECKING:
    from orchestrator.bootstrap import Settings
    from orchestrator.cli.result import CommandResult
    from orchestrator.serve.answers import DoneAnswer

LOOK: Final[dict[str, Any]] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "add_completion": False,
    "no_args_is_help": True,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 110},
}


#: The words of the top level, as ``--help`` groups them.
SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "Measure": ("bench", "run", "tune", "trace"),
    "Look": ("devices", "status", "doctor"),
    "Results": ("report", "table", "results", "export", "import"),
    "Compare": ("compare", "ab", "bisect", "advise"),
    "History": ("history", "serve"),
    "Farm": ("farm",),
    "Things": ("build", "model", "plan", "flags"),
    "Phone": ("device",),
    "Other": ("explain", "parse", "lab", "adb", "store", "quickstart", "completion"),
}
#: The groups of options in the help of a command with many; what isn't named here is common.
PANELS: Final[dict[str, frozenset[str]]] = {
    "Devices": frozenset({"--device", "--profile", "--where", "--one-of-each", "--any", "--host"}),
    "Measuring": frozenset({
        "--invocations", "--precision", "--budget", "--sustained", "--num-runs", "--min-secs", "--max-secs", "--detect",
        "--most-pairs", "--fresh", "--most", "--alike", "--parity",
    }),
    "Output": frozenset({"--json", "--format", "--out", "--name", "--fail-on", "--summary", "--allow-list", "--title"}),
    "Advanced": frozenset({
        "--tool", "--build", "--flag", "--mode", "--parity-inputs", "--reference-check", "--reboot", "--affinity",
        "--timeout", "--seed",
    }),
}  # fmt: skip
#: Up to so many options are listed in one block.
FEW_OPTIONS: Final = 10
#: What typer calls the type of a value, and what help calls it.
VALUES: Final = {
    "<list[str]>": "TEXT",
    "<list[Path]>": "PATH",
    "<str>": "TEXT",
    "<path>": "PATH",
    "<int range>": "N",
    "<int>": "N",
    "<float range>": "NUMBER",
    "<float>": "NUMBER",
}


class Root(typer.core.TyperGroup):
    """The root command; its help lists the commands by section."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - the parser's own types have no public names
        """Write one block a section; a command without a section isn't listed."""
        width = max(len(name) for names in SECTIONS.values() for name in names)
        for section, names in SECTIONS.items():
            rows = [(name.ljust(width), self.commands[name].get_short_help_str(formatter.width)) for name in names]
            with formatter.section(section):
                formatter.write_dl(rows)


class Command(typer.core.TyperCommand):
    """A command; its help lists options in groups where some are declared."""

    def parameters(self, ctx: Any) -> Iterator[tuple[str, str, str]]:  # noqa: ANN401 - the parser's type isn't public
        """Yield for each shown parameter the title of its block, what one types, and what it means."""
        shown = [(item, record) for item in self.get_params(ctx) if (record := item.get_help_record(ctx)) is not None]
        is_long = len(shown) > FEW_OPTIONS
        for item, (names, text) in shown:
            kind = "Arguments" if item.param_type_name == "argument" else "Options"
            panel = next((panel for panel, members in PANELS.items() if is_long and item.opts[0] in members), kind)
            for value, plain in VALUES.items():
                names = names.replace(value, plain)  # noqa: PLW2901 - the same text, more readable
            yield panel, names.split()[0].upper() if kind == "Arguments" else names, text

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - as above
        """Write arguments, then one block a group of options; few options stay in one block."""
        parameters = list(self.parameters(ctx))
        for title in ("Arguments", "Options", *PANELS):
            if rows := [(names, text) for panel, names, text in parameters if panel == title]:
                with formatter.section(title):
                    formatter.write_dl(rows)


def refuse(context: typer.Context, names: Collection[str], mode: str) -> None:
    """Raise UsageError when one of these parameters was typed: in this mode nothing reads them."""
    for parameter in context.command.params:
        # What typer's own copy of click calls it isn't public; the word is the same in every version.
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"{parameter.opts[0]} means nothing {mode}", hint="leave it out")


app = typer.Typer(
    name="benchfarm",
    cls=Root,
    help="Measure TensorFlow Lite (LiteRT) models on real phones, and know what each number is worth.",
    epilog="Exit codes: 0 success, 1 a case failed or no result is clean, 2 invalid input, 3 a phone or adb, "
    "4 a benchmark program, 5 the store or the disk, 6 the time budget was too small for every case, 70 a fault in "
    "benchfarm, 130 stopped by Ctrl-C or a signal, 141 the reader of the output closed it.",
    **LOOK,
)


def group(name: str, about: str) -> typer.Typer:
    """Return a new group of commands, ``benchfarm NAME ...``."""
    made = typer.Typer(help=about, **LOOK)
    app.add_typer(made, name=name)
    return made


class _Later:
    """A module of the command line that is loaded when something of it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the module has
        return getattr(importlib.import_module(self._name), name)


def later(names: str, *, of: str = "cli") -> Iterator[Any]:
    """Yield modules of a part by their names, each loaded when it is used: ``--help`` needs none."""
    return (_Later(f"orchestrator.{of}.{name}") for name in names.split())


def filled(kind: Callable[..., _Request], options: object, **further: object) -> _Request:
    """Return a request: the options of the same name, those that may be repeated as tuples, and what else is said."""
    for item in fields(cast("type[Any]", kind)):
        if item.name not in further and hasattr(options, item.name):
            value = getattr(options, item.name)
            further[item.name] = tuple(value or ()) if str(item.type).startswith("tuple") else value
    return kind(**further)


_Request = TypeVar("_Request")
#: What a command does, once its options are read.
Deed: TypeAlias = "Callable[[Settings], CommandResult | DoneAnswer]"


def command(parent: typer.Typer, name: str) -> Callable[[Callable[..., Deed]], Callable[..., None]]:
    """Declare a function as the command ``NAME``: it reads options, and what it returns is done and shown.

    Its parameters are typer's. One that is a dataclass stands for its fields, each with typer's annotation and the
    option's default; what a class inherits comes after its own. Every command has ``--json``.
    """

    def declare(function: Callable[..., Deed]) -> Callable[..., None]:
        annotated = {key: hint for key, hint in function.__annotations__.items() if key != "return"}
        hints = get_type_hints(SimpleNamespace(__annotations__=annotated), function.__globals__, include_extras=True)
        groups = {key: hint for key, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}
        declared: list[inspect.Parameter] = []
        for parameter in inspect.signature(function).parameters.values():
            one = groups.get(parameter.name)
            declared += [parameter.replace(annotation=hints[parameter.name])] if one is None else _fields_of(one)
        if "as_json" not in hints:
            declared.append(inspect.Parameter("as_json", _KEYWORD, default=False, annotation=Json))

        def call(**given: Any) -> None:  # noqa: ANN401 - as typer read them
            as_json = given["as_json"] if "as_json" in hints else given.pop("as_json")
            for key, kind in groups.items():
                given[key] = kind(**{item.name: given.pop(item.name) for item in fields(kind)})
            show(function(**given), as_json=as_json)

        call.__doc__ = function.__doc__
        call.__annotations__ = {item.name: item.annotation for item in declared}
        call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # typer reads it
            [item.replace(kind=_KEYWORD) for item in declared]
        )
        return parent.command(name, cls=Command)(call)

    return declare


def _fields_of(kind: type[Any]) -> Iterator[inspect.Parameter]:
    """Yield a dataclass's fields as parameters, its own before those that it inherits."""
    hints = get_type_hints(kind, include_extras=True)
    for field in sorted(fields(kind), key=lambda field: field.name not in kind.__annotations__):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(field.name, _KEYWORD, default=default, annotation=hints[field.name])


_KEYWORD: Final = inspect.Parameter.KEYWORD_ONLY
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Devices = Annotated[
    list[str] | None,
    typer.Option("--device", "-s", help="Serial number, or host. Repeat for several."),
]
Profiles = Annotated[
    list[str] | None,
    typer.Option("--profile", help="Device profile, for example pixel-4."),
]
Where = Annotated[
    list[str] | None,
    typer.Option("--where", help="Rule on device facts, for example 'android >= 13'."),
]
OneOfEach = Annotated[
    str,
    typer.Option("--one-of-each", help="One matching phone for each value of a fact: profile, soc ..."),
]
AtMost = Annotated[
    int | None,
    typer.Option("--any", min=1, help="Use at most N matching phones (default: all)."),
]
Builds = Annotated[
    list[str] | None,
    typer.Option(
        "--build", help="Program to use: TOOL=NAME or TOOL=FILE, or NAME or FILE for a single tool. Repeat for several."
    ),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="File to write.")]


def _html(out: Path | None) -> Path | None:
    format_of("", out, ("html",), default="html")
    return out


HtmlOut = Annotated[Path | None, typer.Option("--out", "-o", help="File for the HTML report.", callback=_html)]
Campaigns = Annotated[
    list[str] | None, typer.Argument(help="Campaign id or its beginning (default: the newest campaign).")
]
CampaignArgument = Annotated[str, typer.Argument(help="Campaign id or its beginning (default: the newest).")]


@dataclass(frozen=True, kw_only=True)
class OnPhones:
    """Which devices a command measures on, and with which programs."""

    device: Devices = None
    profile: Profiles = None
    where: Where = None
    one_of_each: OneOfEach = ""
    at_most: AtMost = None
    build: Builds = None


@dataclass(frozen=True, kw_only=True)
class PerProcess:
    """How long a process measures, on which cores, and in which order processes run."""

    num_runs: Annotated[int, typer.Option(min=1, help="Inferences per process, at least.")] = 50
    min_secs: Annotated[float, typer.Option(min=0, help="Seconds per process, at least.")] = 1.0
    max_secs: Annotated[float, typer.Option(min=0, help="Seconds per process, at most.")] = 150.0
    affinity: Annotated[str, typer.Option(help="Cores to use: big, all, or a hexadecimal mask.")] = "big"
    timeout: Annotated[float, typer.Option(min=1, help="Seconds per process beyond --max-secs.")] = 120.0
    seed: Annotated[int, typer.Option(help="Seed for the order of invocations.")] = 0


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
    open_standard_streams()
    # Known before the options are parsed, so that what the parser refuses is told as JSON too.
    _options.json_output = "--json" in sys.argv
    for number in (signal.SIGTERM, signal.SIGHUP):
        # A cancelled job and a closed terminal are no reason to leave phones changed either.
        signal.signal(number, _stop)
    _options.log_format = _format_on_command_line(sys.argv)
    if "_BENCHFARM_COMPLETE" in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
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
    except OutputLostError:
        # That is no fault of the command.
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
    from orchestrator.cli.progress import write_line

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


def show(deed: Deed, *, as_json: bool) -> None:
    """Do a command, print its result as text or JSON, and exit with its code."""
    from orchestrator.bootstrap import Settings

    if _options.log_format not in {None, "text", "json"}:
        raise UsageError(f"--log-format is {_options.log_format!r}, neither text nor json")
    settings = Settings.from_environment(home=_options.home, store=_options.store)
    if _options.log_format is not None:
        settings = replace(settings, environ={**settings.environ, "BENCHFARM_LOG": _options.log_format})
    # Known before anything runs: a night's log in the wrong form is no log.
    _options.log_format = settings.log_format
    settings = replace(settings, may_ask=not as_json and settings.log_format != "json")
    if settings.log_format == "json":
        from orchestrator.cli.progress import logs_as_json

        logs_as_json()
    from orchestrator.cli.result import CommandResult

    done = deed(settings)
    result = done if isinstance(done, CommandResult) else CommandResult(text=done.text, data=done.data)
    try:
        _print(result, as_json=as_json)
    except OutputLostError:
        if not result.is_kept:
            raise
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _print(result: CommandResult, *, as_json: bool) -> None:
    if as_json:
        from orchestrator.cli.result import json_pieces

        say_json(json_pieces(result.data))
    elif result.text:
        say(result.text)
    else:
        for line in result.lines:
            say(line)


def split(values: list[str] | None) -> tuple[str, ...]:
    """Return the parts of options that may be given again and may hold commas."""
    return tuple(part.strip() for value in values or () for part in value.split(",") if part.strip())


def plan_options(options: object, *, without: Collection[str] = ()) -> PlanOptions:
    """Return what a command's options say of a plan; those of other names, and those ``without``, aside."""
    places = {key.option.lstrip("-"): name for name, key in plan_keys().items()}
    found = PlanOptions()
    for name, hint in get_type_hints(type(options), include_extras=True).items():
        if not hasattr(hint, "__metadata__"):
            continue
        # In an annotation typer has the first word as the default; without any, the option is called as the field.
        declared = next(iter(hint.__metadata__)).default
        word = declared if isinstance(declared, str) else name.replace("_", "-")
        key = places.get(word.partition("/")[0].lstrip("-"), name)
        value = getattr(options, name)
        if value is not None and key in plan_keys() and name not in without:
            found[key] = value  # type: ignore[literal-required]
    return found
