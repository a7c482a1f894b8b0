"""The frame of all commands: their words, declaration, loading and help, and the output of results."""

from __future__ import annotations

import functools
import inspect
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    NoReturn,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
import typer.core

from orchestrator.app.options import Option, Paths, Texts, arg, opt
from orchestrator.cli.output import (
    CommandResult,
    OutputClosedError,
    format_of,
    ignore_stop_signals,
    json_pieces,
    logs_as_json,
    say,
    say_json,
)
from orchestrator.errors import UsageError
from orchestrator.installation import require_packages
from orchestrator.plugins import command_words, load
from orchestrator.units import split

if TYPE_CHECKING:
    from orchestrator.records.answers import DoneAnswer
    from orchestrator.settings import Settings

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
_METAVARS: Final = {str: "TEXT", Path: "PATH", int: "N", float: "NUMBER"}
#: The keys of a plan that choose devices and programs.
ON_PHONES: Final = "devices profiles where one_of_each at_most builds"
#: The keys for the duration, cores and order of processes.
PER_PROCESS: Final = "num_runs min_secs max_secs affinity timeout seed"
_FARM_PACKAGES: Final = ("procrastinate", "psycopg", "psycopg_pool")
_LOOK: Final[dict[str, Any]] = {
    "rich_markup_mode": None,
    "no_args_is_help": True,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 110},
}
_KEYWORD: Final = inspect.Parameter.KEYWORD_ONLY
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


class Root(typer.core.TyperGroup):
    """The root command. It loads the modules of a word when the word is used; help and completion
    need none of them.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - the parser's types have no public names
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


class Command(typer.core.TyperCommand):
    """A command; its help lists options in groups where there are many."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - as above
        """Write arguments, then a block for each group of options; few options stay in one block."""
        records = [(item, item.get_help_record(ctx)) for item in self.get_params(ctx)]
        is_long = len(records) > _FEW_OPTIONS
        blocks: dict[str, list[tuple[str, str]]] = {
            title: [] for title in ("Arguments", "Options", *PANELS)
        }
        for item, record in records:
            if item.param_type_name == "argument" and record is not None:
                name = item.metavar or item.name.upper() + "..." * (item.nargs == -1)
                blocks["Arguments"].append((name, record[1]))
            elif record is not None:
                panel = getattr(item, "rich_help_panel", None) or next(
                    (panel for panel, names in PANELS.items() if item.opts[0] in names), "Options"
                )
                blocks.setdefault(panel if is_long else "Options", []).append(record)
        for title, rows in blocks.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def command(words: str, *, has_table: bool = False) -> Callable[[_FunctionT], _FunctionT]:
    """Declare a function as the command ``benchfarm WORDS``; the function itself stays as it is.

    A parameter ``settings`` gets the settings. The others are options and arguments: ``Annotated``
    with :func:`opt` or :func:`arg`. A tuple is an option that may be repeated; with :func:`split`
    its values may hold commas too. A parameter that is a dataclass (a request) stands for its
    fields, of which those it inherits come last; one with :class:`PlanKeys` for some keys of a
    plan. Every command has ``--json``. One that ``has_table`` has ``--format`` too, for
    the table of its result; a parameter ``as_json`` gets whether the result is printed as data.
    """

    def declare(function: _FunctionT) -> _FunctionT:
        hints = get_type_hints(function, include_extras=True)
        declared: dict[str, tuple[Any, Any]] = {}
        #: Parameters that stand for several options, with the options' names and their constructor.
        groups: dict[str, tuple[list[str], Callable[..., Any]]] = {}
        for item in inspect.signature(function).parameters.values():
            hint = hints[item.name]
            keys = next((part for part in _metadata(hint) if isinstance(part, PlanKeys)), None)
            if item.name == "settings":
                continue
            if keys is not None:
                declared |= keys.parameters
                groups[item.name] = [*keys.parameters], _typed_keys
            elif isinstance(hint, type) and is_dataclass(hint):
                declared |= dict(_fields_of(hint))
                groups[item.name] = [field.name for field in fields(hint)], hint
            else:
                declared[item.name] = (hint, item.default)
        if has_table:
            declared["table_form"] = (_TableForm, "text")
        declared.setdefault("as_json", (Json, False))

        def call(**values: Any) -> None:  # noqa: ANN401 - as typer read them
            form = format_of(values.pop("table_form", ""), None, TABLE_FORMS, default="text")
            form = "json" if values["as_json"] else form
            values["as_json"] = form != "text"
            if "as_json" not in hints:
                del values["as_json"]
            values = {name: _value(declared[name][0], value) for name, value in values.items()}
            for key, (names, kind) in groups.items():
                values[key] = kind(**{name: values.pop(name) for name in names})
            if words.startswith("farm "):
                require_packages("a farm", *_FARM_PACKAGES)
            # Read for every command, so that each one reports wrong settings.
            settings = _settings(is_json=form == "json")
            if "settings" in hints:
                values["settings"] = settings
            _show(function(**values), form)

        parameters = [
            inspect.Parameter(
                name, _KEYWORD, default=_default(hint, default), annotation=_typed(hint)
            )
            for name, (hint, default) in declared.items()
        ]
        call.__doc__ = function.__doc__
        call.__annotations__ = {item.name: item.annotation for item in parameters}
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
        *above, name = words.split()
        alone = typer.Typer(add_completion=False, **_LOOK)
        alone.command(name, cls=Command)(call)
        group: Any = ROOT
        for word in above:
            subgroup = group.commands.get(word)
            if not isinstance(subgroup, typer.core.TyperGroup):
                about = subgroup.help if subgroup else ""
                subgroup = typer.core.TyperGroup(name=word, help=about, **_LOOK)
                group.add_command(subgroup)
            group = subgroup
        group.add_command(typer.main.get_command(alone))
        return function

    return declare


class PlanKeys:
    """The keys of a plan that a command takes, as records.plan declares them; a command gets the
    typed values.
    """

    def __init__(self, names: str = "", **about: str) -> None:
        """``names`` are separated by spaces (empty: all keys with an option); ``about`` replaces
        lines of help.
        """
        from orchestrator.passes import plan_keys

        keys = plan_keys()
        self.parameters: dict[str, tuple[Any, Any]] = {}
        for name in names.split() or [name for name, key in keys.items() if key.key.option]:
            item, key = keys[name], keys[name].key
            option = key.option
            kind: Any
            default: Any = None
            if name == "models":
                self.parameters[name] = (Annotated[Paths, arg(key.about)], inspect.Parameter.empty)
                continue
            if item.is_list or name == "builds":
                kind, default = Texts, ()
            elif item.is_switch:
                kind = bool | None
                option += f"/--no-{option[2:]}" if item.default is None else ""
            else:
                kind = int | None if item.is_whole else str | None
            about_it = about.get(name, key.about)
            panel = key.panel or None
            self.parameters[name] = (
                Annotated[kind, opt(option, about_it, rich_help_panel=panel)],
                default,
            )


def _typed_keys(**values: Any) -> dict[str, Any]:  # noqa: ANN401 - each key has its own type
    return {name: value for name, value in values.items() if not (value is None or value == ())}


def _metadata(hint: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any annotation
    return hint.__metadata__ if get_origin(hint) is Annotated else ()


def _fields_of(kind: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:  # noqa: ANN401 - any dataclass
    """Yield the type and default of a dataclass's fields by name, its own before those that it
    inherits.
    """
    hints = get_type_hints(kind, include_extras=True)
    for item in sorted(fields(kind), key=lambda item: item.name not in kind.__annotations__):
        default = inspect.Parameter.empty if item.default is MISSING else item.default
        yield item.name, (hints[item.name], default)


def _item_type(hint: Any) -> Any:  # noqa: ANN401 - any annotation
    """Return the type of a tuple's items; None for another type."""
    bare = get_args(hint)[0] if _metadata(hint) else hint
    return get_args(bare)[0] if get_origin(bare) is tuple else None


def _typed(hint: Any) -> Any:  # noqa: ANN401 - any annotation
    """Return an annotation for typer, which takes lists where a command has tuples."""
    option = _option(hint)
    if option is None:
        return hint
    item = _item_type(hint)
    value_type = get_args(hint)[0] if item is None else list[item]  # type: ignore[valid-type]
    value_type = str if option.read is not None else value_type
    if not option.names:
        return Annotated[value_type, typer.Argument(help=option.about, **option.further)]
    kinds = {value_type, *get_args(value_type)}
    metavar = next((word for kind, word in _METAVARS.items() if kind in kinds), None)
    return Annotated[
        value_type,
        typer.Option(*option.names, help=option.about, metavar=metavar, **option.further),
    ]


def _option(hint: Any) -> Option | None:  # noqa: ANN401 - any annotation
    return next((part for part in _metadata(hint) if isinstance(part, Option)), None)


def _default(hint: Any, default: Any) -> Any:  # noqa: ANN401 - any annotation and value
    option = _option(hint)
    if option is not None and option.read is not None and default is not None:
        return option.typed(default)
    return None if _item_type(hint) is not None and default == () else default


def _value(hint: Any, value: Any) -> Any:  # noqa: ANN401 - any annotation and value
    """Return a parameter's value as the command takes it; raises UsageError."""
    option = _option(hint)
    if option is not None and "--out" in option.names and value == Path("-"):
        raise UsageError(
            "--out takes the name of a file, not -",
            hint="name a file; without --out the result is printed, where it is text",
        )
    if option is not None and option.read is not None and value is not None:
        return option.read(value)
    if _item_type(hint) is None:
        return value
    return tuple(split(value) if split in hint.__metadata__ else value or ())


def refuse(context: typer.Context, names: Collection[str], mode: str) -> None:
    """Raise UsageError when one of these parameters was typed, which this mode doesn't use."""
    for parameter in context.command.params:
        # The type isn't public in typer's copy of click; the word is the same in every version.
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"{parameter.opts[0]} means nothing {mode}", hint="leave it out")


def _html(out: Path | None) -> Path | None:
    format_of("", out, ("html",), default="html")
    return out


#: The formats of a command's table.
TABLE_FORMS: Final = ("text", "markdown", "csv", "html", "json")
_TableForm = Annotated[str, opt("--format -f", "text, markdown, csv, html or json.")]
Json = Annotated[bool, opt("--json", "Print the result as JSON.")]
DryRun = Annotated[bool, opt("--dry-run", "List what would be done, and do nothing.")]
Legend = Annotated[
    bool,
    opt(
        "--legend",
        "Explain the table's marks and terms below it; 'benchfarm explain WORD' explains any term.",
    ),
]
HtmlOut = Annotated[Path | None, opt("--out -o", "File for the HTML report.", callback=_html)]


@dataclass(slots=True)
class GlobalOptions:
    """The options before the command."""

    debug: bool = False
    home: Path | None = None
    store: str | None = None
    json_output: bool = False
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


def _root(
    debug: Annotated[bool, opt("--debug", "Show the traceback of an error.")] = False,
    home: Annotated[
        Path | None, opt("--home", "Keep store, cache and state in this folder ($BENCHFARM_HOME).")
    ] = None,
    store: Annotated[str | None, opt("--store", "Database file or URL ($BENCHFARM_STORE).")] = None,
    log_format: Annotated[
        str | None, opt("--log-format", "Progress as text or json ($BENCHFARM_LOG).")
    ] = None,
    version: Annotated[
        bool, opt("--version", "Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    options.debug, options.home, options.store, options.log_format = debug, home, store, log_format


_root.__annotations__ = {
    name: _typed(hint) for name, hint in get_type_hints(_root, include_extras=True).items()
}
_app.callback()(_root)
_root_command = typer.main.get_command(_app)
assert isinstance(_root_command, Root)
ROOT: Final = _root_command
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


def _show(result: CommandResult | DoneAnswer, form: str) -> NoReturn:
    """Print a result in a form, and exit with its code."""
    from orchestrator.tables.renderers import as_markdown, csv_lines

    if not isinstance(result, CommandResult):
        result = CommandResult(text=result.text, data=result.data)
    if result.is_kept:
        # The work is done: a late signal must not cut off its output.
        ignore_stop_signals()
    try:
        if form == "json":
            say_json(json_pieces(result.data))
        elif form == "csv" and result.tables:
            for number, table in enumerate(result.tables):
                # A large campaign's rows aren't held in memory.
                for line in itertools.chain(["\n"] * bool(number), csv_lines(table)):
                    say(line, end="")
        elif form != "text" and result.tables:
            whole = [replace(table, rows=[*table.rows]) for table in result.tables]
            if form == "html":
                from orchestrator.tables.html import page

                text = page(whole)
            else:
                text = "\n".join(map(as_markdown, whole))
            say(text.rstrip("\n"))
        else:
            for line in [result.text] if result.text else result.lines:
                say(line, looks=result.looks)
    except OutputClosedError:
        if not result.is_kept:
            raise
    # The option parser would take 130 for Ctrl-C.
    raise SystemExit(result.exit_code)
