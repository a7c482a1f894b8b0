"""What typer lacks: commands that are loaded when their word is typed, help in blocks, and
``--json`` on all of them.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
import typer.core
from typer import Argument, Context, Option

from orchestrator.cli.output import CommandResult, format_of, logs_as_json, say, show
from orchestrator.errors import UsageError
from orchestrator.files import check_writable
from orchestrator.installation import command_words, load
from orchestrator.records import Key, frozen
from orchestrator.units import parse_percent

if TYPE_CHECKING:
    from orchestrator.app.workspace import Workspace
    from orchestrator.records.answers import DoneAnswer
    from orchestrator.records.plan import PlanKey
    from orchestrator.settings import Settings

#: The values of an option that may be repeated; None where it isn't given.
Texts: TypeAlias = list[str] | None


def share_of(text: str, option: str, *, least: float, most: float) -> float:
    """Return a percentage as a share: 0.02 for ``2%``, ``2 %`` and ``2``; the limits are inclusive
    shares.

    Raises:
        UsageError: no percentage, one outside of the limits, or ``0.02``, which may be meant as
            either.
    """
    try:
        share = parse_percent(text) / 100
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
    if not least <= share <= most:
        raise UsageError(
            f"{option} {text} isn't between {_typed(least)} and {_typed(most)}",
            hint=f"a percentage, for example {_typed(max(least, 0.02))}",
        )
    return share


def _typed(share: float) -> str:
    """Return a share as it is typed: ``2%``."""
    return f"{share * 100:.4g}%"


def refuse(context: Context, names: Collection[str], mode: str) -> None:
    """Raise UsageError when one of these parameters was typed, which this mode doesn't use."""
    for item in context.command.params:
        # The type isn't public in typer's copy of click; the word is the same in every version.
        source = context.get_parameter_source(item.name or "")
        if item.name in names and source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"{item.opts[0]} means nothing {mode}", hint="leave it out")


def plan_keys(names: str = "", **about: str) -> list[inspect.Parameter]:
    """Return the options of a plan's keys, as records.plan declares them.

    ``names`` are separated by spaces (empty: all keys with an option); ``about`` replaces lines of
    help.
    """
    from orchestrator.passes import plan_keys

    keys = plan_keys()
    chosen = names.split() or [name for name, item in keys.items() if item.key.option]
    return [
        _plan_option(name, keys[name], about.get(name, keys[name].key.about)) for name in chosen
    ]


def record_options(record: Any) -> list[inspect.Parameter]:  # noqa: ANN401 - a record's class
    """Return the options in a record's fields, as parameters; a list that isn't typed is None."""
    hints = get_type_hints(record, include_extras=True)
    options = []
    for item in fields(record):
        if get_origin(hints[item.name]) is not Annotated:
            continue
        kind, about = get_args(hints[item.name])
        default = inspect.Parameter.empty if item.default is MISSING else item.default
        if get_origin(kind) is collections.abc.Sequence:
            kind, default = list[get_args(kind)], default or None  # type: ignore[misc]  # for typer
        if isinstance(about, Key):
            # The line of help says a share's default, as a percentage.
            default = default if about.share is None else None
            about = _option(about, about.option)
        options.append(parameter(item.name, Annotated[kind, about], default))
    return options


def parameter(name: str, hint: object, default: object = None) -> inspect.Parameter:
    """Return a parameter of a command."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)


def _plan_option(name: str, item: PlanKey, about: str) -> inspect.Parameter:
    kind: Any = str | None
    option = item.key.option
    if name == "models":
        files = Annotated[list[Path], _option(item.key, "", about)]
        return parameter(name, files, inspect.Parameter.empty)
    if item.is_list or name == "builds":
        kind = Texts
    elif item.is_switch:
        kind = bool | None
        option += f"/--no-{option[2:]}" if item.default is None else ""
    elif item.is_whole:
        kind = int | None
    return parameter(name, Annotated[kind, _option(item.key, option, about)])


def _option(key: Key, names: str, about: str = "") -> Any:  # noqa: ANN401 - of typer
    """Return a key as an option of these names, as an argument without any."""
    about, share = about or key.about, key.share
    if not names:
        return Argument(help=about)
    limits: dict[str, Any] = {"min": key.least}
    if share is not None:
        limits = {
            "parser": lambda text: share_of(text, names, least=share[0], most=share[1]),
            "metavar": "TEXT",
        }
    return Option(*names.split(), help=about, rich_help_panel=key.panel or None, **limits)


def format_option(forms: Sequence[str], default: str = "") -> Any:  # noqa: ANN401 - of typer
    """Return the option of a command that writes these formats; ``default`` where ``--out`` may say
    the format.
    """
    *first, last = forms
    without = f" (default: by --out, else {default})" if default else ""
    return Option("--format", "-f", help=f"{', '.join(first)} or {last}{without}.")


def _html(out: Path | None) -> Path | None:
    format_of("", out, ("html",), default="html")
    if out is not None:
        # Before anything is measured for it.
        check_writable(out)
    return out


Json = Annotated[bool, Option("--json", help="Print the result as JSON.")]
DryRun = Annotated[bool, Option("--dry-run", help="List what would be done, and do nothing.")]
Legend = Annotated[
    bool,
    Option(
        "--legend",
        help="Explain the table's marks and terms below it; 'benchfarm explain WORD' explains any"
        " term.",
    ),
]
Out = Annotated[Path | None, Option("--out", "-o", help="File to write.")]
HtmlOut = Annotated[
    Path | None, Option("--out", "-o", help="File for the HTML report.", callback=_html)
]
CAMPAIGNS: Final = Argument(
    help="Campaign id, its beginning, or a name (default: the newest campaign)."
)
Campaigns = Annotated[Texts, CAMPAIGNS]
Wait = Annotated[
    str,
    Option(
        "--wait",
        help="Wait at most this long for phones in use, for example 10m (default: skip them).",
    ),
]


@frozen
class Reporting:
    """How a campaign is waited for and shown, as options."""

    out: HtmlOut = None
    wait: Wait = ""
    legend: Legend = False


_FunctionT = TypeVar("_FunctionT", bound="Callable[..., CommandResult | DoneAnswer]")

#: The groups of options in the help of a command with many options. A plan's keys name their own
#: group; options without a group are listed under "Options".
PANELS: Final[dict[str, frozenset[str]]] = {
    "Devices": frozenset({"--serial", "--wait"}),
    "Measuring": frozenset({"--budget", "--detect", "--since"}),
    "Output": frozenset({"--json", "--format", "--out", "--fail-on"}),
    "Advanced": frozenset({"--tool", "--build", "--timeout"}),
}
#: Up to this many options are listed in one block.
_FEW_OPTIONS: Final = 10
#: The names of options' values in help.
_METAVARS: Final[Mapping[object, str]] = {str: "TEXT", Path: "PATH", int: "N", float: "NUMBER"}
#: The formats of a command's table.
_TABLE_FORMS: Final = ("text", "markdown", "csv", "html", "json")
_LOOK: Final[dict[str, Any]] = {
    "rich_markup_mode": None,
    "no_args_is_help": True,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 110},
}
#: Words whose modules are loaded.
_loaded: set[str] = set()


_FIRST_SECTIONS: Final = ("Measure", "Inspect", "Results", "Compare")


@functools.cache
def sections() -> Mapping[str, Mapping[str, str]]:
    """Return the words of the top level as ``--help`` groups them, each with its line of help."""
    by_section: dict[str, dict[str, str]] = {section: {} for section in _FIRST_SECTIONS}
    for item in command_words():
        if len(item.words) == 1:
            by_section.setdefault(item.section, {})[item.words[0]] = item.about
    return by_section | {"Other": by_section.pop("Other", {})}


class Group(typer.core.TyperGroup):
    """A group of commands. Its options stand before a command's word: where that comes first none is
    read, since typer loads pydantic to read one, which a command's help needn't wait for.
    """

    _reads_options = True

    def parse_args(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - the parser's types have no public names
        """Read the words of a command line."""
        self._reads_options = not args or args[0].startswith("-")
        try:
            return super().parse_args(ctx, args)
        finally:
            self._reads_options = True

    def get_params(self, ctx: Any) -> Any:  # noqa: ANN401 - as above
        """Return the options to read."""
        return super().get_params(ctx) if self._reads_options else []


class Root(Group):
    """The root command. It loads the modules of a word when the word is used; help and completion
    need none of them.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - as above
        """Read the words of a command line; raises UsageError for an empty word: else an option
        would be ignored, this folder be the home, or the newest campaign be taken.
        """
        for before, word in itertools.pairwise((str(ctx.info_name), *args)):
            if not word.strip(" ,") or re.fullmatch("--[a-z-]+=[ ,]*", word):
                name = word.partition("=")[0] if word.startswith("--") else before
                raise UsageError(
                    f"the value after '{name}' is empty",
                    hint="leave it out, or give a value; a shell variable may be unset",
                )
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - as above
        """Return the command or group of a word; None for an unknown word.

        ``lab`` is the former name of ``virtual``, without help.
        """
        cmd_name = "virtual" if cmd_name == "lab" else cmd_name
        if cmd_name in self.commands and cmd_name not in _loaded:
            _loaded.add(cmd_name)
            for item in command_words():
                if item.words[0] == cmd_name:
                    load(item.entry, ModuleType)
        return self.commands.get(cmd_name)

    def load(self) -> None:
        """Load every command, for a walk through all of them."""
        for name in [*self.commands]:
            self.get_command(None, name)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:  # noqa: ANN401 - as above
        """Return the completions of a word of the top level; no module is loaded."""
        _loaded.update(self.commands)
        return super().shell_complete(ctx, incomplete)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - as above
        """Write a block for each section."""
        width = max(map(len, self.commands))
        for section, words in sections().items():
            with formatter.section(section):
                formatter.write_dl([(word.ljust(width), about) for word, about in words.items()])


def argument_name(item: Any) -> str:  # noqa: ANN401 - as above
    """Return an argument as help names it: ``MODELS...``, in brackets where it may be left out."""
    name = f"{(item.metavar or item.name.upper()).removesuffix('...')}{'...' * (item.nargs == -1)}"
    return name if item.required else f"[{name}]"


class Command(typer.core.TyperCommand):
    """A command; its help lists options in groups where there are many."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401 - as above
        """Return the words after the command's own in the line of usage."""
        arguments = [item for item in self.params if item.param_type_name == "argument"]
        return ["[OPTIONS]", *map(argument_name, arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - as above
        """Write arguments, then a block for each group of options; few options stay in one block."""
        records = [(item, item.get_help_record(ctx)) for item in self.get_params(ctx)]
        is_long = len(records) > _FEW_OPTIONS
        blocks: dict[str, list[tuple[str, str]]] = {
            title: [] for title in ("Arguments", "Options", *PANELS)
        }
        for item, record in records:
            if item.param_type_name == "argument" and record is not None:
                blocks["Arguments"].append((argument_name(item).strip("[]"), record[1]))
            elif record is not None:
                panel = getattr(item, "rich_help_panel", None) or next(
                    (panel for panel, names in PANELS.items() if item.opts[0] in names), "Options"
                )
                blocks.setdefault(panel if is_long else "Options", []).append(record)
        for title, rows in blocks.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def command(
    words: str, *, has_table: bool = False, keys: Sequence[inspect.Parameter] = ()
) -> Callable[[_FunctionT], _FunctionT]:
    """Declare a function as the command ``benchfarm WORDS``; the function itself stays as it is.

    Its parameters are typer's. Three names have a meaning of their own: ``settings`` gets the
    settings, ``options`` the typed values of a plan's ``keys`` (:func:`plan_keys`), ``as_json``
    whether the result is printed as data. A parameter that is a record has options in its fields,
    and gets those that were typed. Every command has ``--json``, one that ``has_table`` has
    ``--format`` too, for the table of its result.
    """

    def declare(function: _FunctionT) -> _FunctionT:
        hints = get_type_hints(function, include_extras=True)
        parameters: list[inspect.Parameter] = []
        groups: dict[str, tuple[Callable[..., object], Sequence[inspect.Parameter]]] = {}
        if keys:
            groups["options"] = dict, keys
        for item in inspect.signature(function).parameters.values():
            hint = hints[item.name]
            if item.name != "settings" and isinstance(hint, type) and is_dataclass(hint):
                groups[item.name] = hint, record_options(hint)
            if item.name in groups:
                parameters += groups[item.name][1]
            elif item.name not in {"settings", "as_json"}:
                parameters.append(parameter(item.name, hint, item.default))
        if has_table:
            form_option = Annotated[str, format_option(_TABLE_FORMS)]
            parameters.append(parameter("table_form", form_option, "text"))
        parameters.append(parameter("as_json", Json, False))

        def call(**values: Any) -> None:  # noqa: ANN401 - as typer read them
            form = format_of(values.get("table_form", ""), None, _TABLE_FORMS, default="text")
            form = "json" if values["as_json"] else form
            if values.get("out") == Path("-"):
                raise UsageError(
                    "--out takes the name of a file, not -",
                    hint="name a file; without --out the result is printed, where it is text",
                )
            # Read for every command, so that each one reports wrong settings.
            values |= {"settings": _settings(is_json=form == "json"), "as_json": form != "text"}
            for name, (make, members) in groups.items():
                typed = {
                    item.name: value
                    for item in members
                    if (value := values[item.name]) not in (None, [])
                }
                values[name] = make(**typed)
            show(function(**{name: values[name] for name in values if name in hints}), form)

        call.__doc__ = function.__doc__
        call.__annotations__ = {item.name: item.annotation for item in parameters}
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
        _add(words.split(), call)
        return function

    return declare


def _add(words: Sequence[str], call: Callable[..., None]) -> None:
    """Add a command to its group, which is made where it is missing."""
    *above, name = words
    app = typer.Typer(add_completion=False, **_LOOK)
    app.command(name, cls=Command)(call)
    made = typer.main.get_command(app)
    _name_values(made, call.__annotations__)
    group: Any = ROOT
    for word in above:
        subgroup = group.commands.get(word)
        if not isinstance(subgroup, typer.core.TyperGroup):
            about = subgroup.help if subgroup else ""
            subgroup = Group(name=word, help=about, **_LOOK)
            group.add_command(subgroup)
        group = subgroup
    group.add_command(made)


def _name_values(made: Any, hints: Mapping[str, Any]) -> None:  # noqa: ANN401 - of typer
    """Name the values of a command's options in its help by their types."""
    for item in made.params:
        kind = hints.get(item.name)
        while arguments := get_args(kind):
            kind = arguments[0]
        if item.param_type_name == "option" and item.metavar is None:
            item.metavar = _METAVARS.get(kind)


@dataclass(slots=True)
class GlobalOptions:
    """The options before the command."""

    debug: bool = False
    home: Path | None = None
    store: str | None = None
    log_format: str | None = None


options = GlobalOptions()


def _print_version(is_given: bool) -> None:
    if is_given:
        from orchestrator import __version__

        say(f"benchfarm {__version__}")
        raise typer.Exit


_app = typer.Typer(
    name="benchfarm",
    cls=Root,
    help="Measure TensorFlow Lite (LiteRT) models on real phones, and know what each number is worth.",
    epilog="Exit codes: 0 success, 1 a case failed or no result is clean, 2 invalid input, 3 a phone or adb, "
    "4 a benchmark program, 5 the store or the disk, 6 the time budget was too small for every case, 70 a fault in "
    "benchfarm, 130 stopped by Ctrl-C or a signal, 141 the reader of the output closed it.",
    add_completion=False,
    **_LOOK,
)


@_app.callback()
def _root(
    debug: Annotated[bool, Option("--debug", help="Show the traceback of an error.")] = False,
    home: Annotated[
        Path | None,
        Option("--home", help="Keep store, cache and state in this folder ($BENCHFARM_HOME)."),
    ] = None,
    store: Annotated[
        str | None, Option("--store", help="Database file or URL ($BENCHFARM_STORE).")
    ] = None,
    log_format: Annotated[
        str | None, Option("--log-format", help="Progress as text or json ($BENCHFARM_LOG).")
    ] = None,
    version: Annotated[
        bool,
        Option("--version", help="Print the version.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    options.debug, options.home, options.store, options.log_format = debug, home, store, log_format


ROOT: Final = cast(Root, typer.main.get_command(_app))
_name_values(ROOT, get_type_hints(_root, include_extras=True))
#: Placeholders for help and completion; a word's command replaces each when it is loaded.
ROOT.commands = {
    word: typer.core.TyperCommand(word, help=about)
    for words in sections().values()
    for word, about in words.items()
}


def _settings(*, is_json: bool) -> Settings:
    """Return the settings of the options before the command and of the environment."""
    from orchestrator.settings import Settings

    if options.log_format not in {None, "text", "json"}:
        raise UsageError(f"--log-format is {options.log_format!r}, neither text nor json")
    settings = Settings.from_environment(home=options.home, store=options.store)
    if options.log_format is not None:
        environ = {**settings.environ, "BENCHFARM_LOG": options.log_format}
        settings = replace(settings, environ=environ)
    # Checked before anything runs: a night's log in the wrong format is useless.
    options.log_format = settings.log_format
    if settings.log_format == "json":
        logs_as_json()
    return replace(settings, may_ask=not is_json and settings.log_format != "json")


def workspace_of(settings: Settings, *, needs_store: bool = True) -> Workspace:
    """Return a workspace without progress, in which a missing store isn't made."""
    from orchestrator.app.workspace import Workspace

    return Workspace(settings, makes_store=False, needs_store=needs_store)
