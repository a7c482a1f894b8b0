"""Write what docs/reference says of commands and failures from the program itself: ``make docs``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from orchestrator.cli.frame import ROOT, sections
from orchestrator.config.plan import keys_table
from orchestrator.passes import passes
from orchestrator.passes.specification import Repetition
from orchestrator.records.failures import ERROR_FAILURES, INSTALL_STEPS, RUN_FAILURES

HEAD = """# Commands

`make docs` writes this page from the commands. Every command takes `--json` and `--help`. The options before the
command (`--home`, `--store`, `--log-format`, `--debug`) are the same for all. `benchfarm --version` prints the version.
Results go to standard output, progress and errors to standard error.
[Settings](settings.md#exit-codes) lists the exit codes.

Options that several commands share:

"""


def commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401 - of typer
    """Yield the words of each command below one, with the command."""
    inside = getattr(command, "commands", None)
    if inside is None:
        yield words, command
    for name, item in sorted((inside or {}).items()):
        if not item.hidden:
            yield from commands(item, (*words, name))


def usage(command: Any) -> str:  # noqa: ANN401 - of typer
    """Return the arguments of a command as its title shows them."""
    names = []
    for item in command.params:
        if item.param_type_name == "argument":
            name = (item.metavar or item.name.upper()).removesuffix("...") + (
                "..." if item.nargs == -1 else ""
            )
            names.append(name if item.required else f"[{name}]")
    return "".join(f" {name}" for name in names)


#: An option that so many commands have with the same text is explained once.
SHARED_MIN = 3


def options(command: Any) -> list[tuple[str, str]]:  # noqa: ANN401 - of typer
    """Return what can be typed after a command, but for what all take, with its meaning."""
    rows = command.parameters(command.context_class(command))
    return [
        (typed, meaning)
        for _, typed, meaning in rows
        if typed not in {"--json", "--help", "-h, --help"}
    ]


def page() -> str:
    """Return the text of docs/reference/commands.md."""
    ROOT.load()
    every = {
        section: [item for name in names for item in commands(ROOT.commands[name], (name,))]
        for section, names in sections().items()
    }
    counts = Counter(
        row for items in every.values() for _, command in items for row in options(command)
    )
    often = [row for row, count in counts.items() if count >= SHARED_MIN]
    spelled = Counter(typed for typed, _ in often)
    shared = sorted(row for row in often if spelled[row[0]] == 1)
    parts = [HEAD, *(f"- `{typed}`: {meaning}\n" for typed, meaning in shared)]
    for section, items in every.items():
        parts.append(f"\n## {section}\n")
        for words, command in items:
            parts.append(f"\n### benchfarm {' '.join(words)}{usage(command)}\n")
            for paragraph in command.help.split("\n\n"):
                text = " ".join(paragraph.split())
                example = text.removeprefix("Example: ")
                parts.append(f"\n    {example}\n" if example != text else f"\n{text}\n")
            rows = options(command)
            own = [
                f"- `{typed}`: {meaning}\n"
                for typed, meaning in rows
                if (typed, meaning) not in shared
            ]
            also = [
                typed.split()[0].strip(",") for typed, meaning in rows if (typed, meaning) in shared
            ]
            if own or also:
                parts.append("\n")
            parts += own
            if also:
                parts.append(f"- shared: `{' '.join(also)}`\n")
    return "".join(parts)


def failures_page(text: str) -> str:
    """Return the text of docs/reference/failures.md with its tables of codes as the records have
    them.
    """
    of_codes = ("code", "meaning", "next step")
    tables: dict[str, tuple[tuple[str, ...], Iterable[tuple[str, ...]]]] = {
        "In a run": (
            of_codes,
            [(item.code, item.meaning, item.next_step) for item in RUN_FAILURES],
        ),
        "On the way to a phone": (
            of_codes,
            [(item.code, item.meaning, item.next_step) for item in ERROR_FAILURES],
        ),
        "What the package manager says (`install-failed`)": (
            ("code", "next step"),
            INSTALL_STEPS.items(),
        ),
    }
    for title, (heads, rows) in tables.items():
        lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
        lines += [f"| `{code}` | {' | '.join(cells)} |" for code, *cells in rows]
        table = "\n".join(lines)
        text = re.sub(
            rf"(?<=## {re.escape(title)}\n\n)(?:\|[^\n]*\n)*",
            lambda _, table=table: f"{table}\n",
            text,
        )  # type: ignore[misc]
    return text


HOW_OFTEN = {
    Repetition.UNTIL_CERTAIN: "until the figure is certain enough",
    Repetition.COUNTED: "a fixed number of times",
    Repetition.FOR_A_TIME: "for a stated time",
    Repetition.AROUND_OTHERS: "before, between and after the others; by `reference_check`",
}


def plans_page(text: str) -> str:
    """Return the text of docs/reference/plans.md with its tables of keys and passes as the records
    have them.
    """
    rows = "".join(f"| `{key}` | {means} | {default} |\n" for key, means, default in keys_table())
    keys = f"| key | value | default |\n|---|---|---|\n{rows}"
    text = re.sub(r"(?<=## Keys\n\n)(?:\|[^\n]*\n)*", lambda _: keys, text)
    lines = ["| pass | what it measures | how often |", "|---|---|---|"]
    for own in passes():
        name = f"[`{own.name}`](../guides/{own.guide}.md)" if own.guide else f"`{own.name}`"
        lines.append(f"| {name} | {own.about} | {HOW_OFTEN[own.repetition]} |")
    table = "\n".join(lines)
    return re.sub(r"(?<=## Passes\n\n)(?:\|[^\n]*\n)*", lambda _: f"{table}\n", text)


if __name__ == "__main__":
    folder = Path(__file__).with_name("reference")
    folder.joinpath("commands.md").write_text(page(), "utf-8")
    plans = folder / "plans.md"
    plans.write_text(plans_page(plans.read_text("utf-8")), "utf-8")
    failures = folder / "failures.md"
    failures.write_text(failures_page(failures.read_text("utf-8")), "utf-8")
