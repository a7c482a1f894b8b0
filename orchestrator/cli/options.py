"""Options that several commands have, and those of a plan's keys."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, get_type_hints

from typer import Argument, Context, Option

from orchestrator.cli.output import format_of
from orchestrator.errors import UsageError
from orchestrator.files import check_writable
from orchestrator.frozen import frozen
from orchestrator.units import parse_percent

if TYPE_CHECKING:
    from orchestrator.records.plan import PlanKey

#: Nobody can measure smaller differences, so a request for one is a mistake.
LEAST_DIFFERENCE: Final = 0.0001
#: The values of an option that may be repeated; None where it isn't given.
Texts: TypeAlias = list[str] | None


def share_of(text: str, option: str, *, least: float = LEAST_DIFFERENCE, most: float) -> float:
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
        default = None if item.default is MISSING else item.default
        if item.default is item.default_factory:
            default = inspect.Parameter.empty
        options.append(parameter(item.name, hints[item.name], default))
    return options


def parameter(name: str, hint: object, default: object = None) -> inspect.Parameter:
    """Return a parameter of a command."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)


def _plan_option(name: str, item: PlanKey, about: str) -> inspect.Parameter:
    kind: Any = str | None
    option = item.key.option
    if name == "models":
        files = Annotated[list[Path], Argument(help=about)]
        return parameter(name, files, inspect.Parameter.empty)
    if item.is_list or name == "builds":
        kind = Texts
    elif item.is_switch:
        kind = bool | None
        option += f"/--no-{option[2:]}" if item.default is None else ""
    elif item.is_whole:
        kind = int | None
    typed = Option(*option.split(), help=about, rich_help_panel=item.key.panel or None)
    return parameter(name, Annotated[kind, typed])


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
