"""Write what docs/reference says of commands and failures from the program itself: ``make docs``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrator.cli.frame import ROOT, sections
from orchestrator.config.plan import keys_table
from orchestrator.passes import passes
from orchestrator.passes.specification import Repetition
from orchestrator.records.failures import ERROR_FAILURES, RUN_FAILURES

HEAD = """# Commands

`make docs` writes this page from the commands; `benchfarm COMMAND --help` says what each option means. Every command
takes `--json`. The options before the command (`--home`, `--store`, `--log-format`, `--debug`) are the same for all.
Results go to standard output, progress and errors to standard error. [Settings](settings.md#exit-codes) lists the exit
codes.
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


def options(command: Any) -> list[str]:  # noqa: ANN401 - of typer
    """Return the options of a command that not all have, by their long names."""
    return [
        max(item.opts, key=len)
        for item in command.params
        if item.param_type_name == "option"
        and not item.hidden
        and not {"--json", "--help"} & {*item.opts}
    ]


def page() -> str:
    """Return the text of docs/reference/commands.md."""
    ROOT.load()
    parts = [HEAD]
    for section, names in sections().items():
        parts.append(f"\n## {section}\n\n| command | does | options |\n|---|---|---|\n")
        for words, command in [
            item for name in names for item in commands(ROOT.commands[name], (name,))
        ]:
            about = " ".join(command.help.split("\n\n")[0].split())
            given = f"`{' '.join(options(command))}`" if options(command) else ""
            parts.append(f"| `{' '.join(words)}{usage(command)}` | {about} | {given} |\n")
    return "".join(parts)


def failures_page(text: str) -> str:
    """Return the text of docs/reference/failures.md with its tables of codes as the records have
    them.
    """
    tables = {"In a run": RUN_FAILURES, "On the way to a phone": ERROR_FAILURES}
    for title, items in tables.items():
        lines = ["| code | meaning |", "|---|---|"]
        lines += [f"| `{item.code}` | {item.meaning} |" for item in items]
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
