"""Write what docs/reference says of commands, plan keys, findings and failures from the program's
own records: ``make docs``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from orchestrator.analysis.findings import CODES
from orchestrator.cli.frame import ROOT, sections
from orchestrator.config.plan import keys_table
from orchestrator.passes import passes
from orchestrator.passes.specification import Repetition
from orchestrator.records.failures import ERROR_FAILURES, RUN_FAILURES

HEAD = """# Commands

`benchfarm COMMAND --help` has each command's options; every one takes `--json`, and before the command `--home`,
`--store`, `--log-format` and `--debug`. Results go to standard output, progress and errors to standard error.
[Settings](settings.md#exit-codes) lists the exit codes.
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


def page() -> str:
    """Return the text of docs/reference/commands.md."""
    ROOT.load()
    parts = [HEAD]
    for section, names in sections().items():
        parts.append(f"\n## {section}\n\n| command | does |\n|---|---|\n")
        for words, command in [
            item for name in names for item in commands(ROOT.commands[name], (name,))
        ]:
            about = " ".join(command.help.split("\n\n")[0].split())
            parts.append(f"| `{' '.join(words)}{usage(command)}` | {about} |\n")
    return "".join(parts)


def with_table(text: str, title: str, heads: str, rows: Iterable[str]) -> str:
    """Return a page's text with the table below a heading as its rows are now."""
    line = "|---" * (heads.count("|") - 1) + "|"
    table = "\n".join([heads, line, *rows])
    return re.sub(rf"(?<=## {re.escape(title)}\n\n)(?:\|[^\n]*\n)*", lambda _: f"{table}\n", text)


def failures_page(text: str) -> str:
    """Return the text of docs/reference/failures.md with its codes as their records are."""
    for title, items in {"In a run": RUN_FAILURES, "On the way to a phone": ERROR_FAILURES}.items():
        rows = (f"| `{item.code}` | {item.meaning} |" for item in items)
        text = with_table(text, title, "| code | meaning |", rows)
    return text


def findings_page(text: str) -> str:
    """Return the text of docs/reference/findings.md with its codes as their records are."""
    rows = (
        f"| `{item.code}` | {item.severity.value} "
        f"| {item.meaning}{f' ({item.rule})' if item.rule else ''} |"
        for item in CODES.values()
    )
    return with_table(text, "Codes", "| code | severity | meaning |", rows)


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
    keys = (f"| `{key}` | {means} | {default} |" for key, means, default in keys_table())
    text = with_table(text, "Keys", "| key | value | default |", keys)
    rows = (
        f"| {f'[`{own.name}`](../guides/{own.guide}.md)' if own.guide else f'`{own.name}`'}"
        f" | {own.about} | {HOW_OFTEN[own.repetition]} |"
        for own in passes()
    )
    return with_table(text, "Passes", "| pass | what it measures | how often |", rows)


#: Page of docs/reference -> its text from what it was; commands.md is made whole.
PAGES = {"plans.md": plans_page, "findings.md": findings_page, "failures.md": failures_page}


if __name__ == "__main__":
    folder = Path(__file__).with_name("reference")
    folder.joinpath("commands.md").write_text(page(), "utf-8")
    for name, made in PAGES.items():
        path = folder / name
        path.write_text(made(path.read_text("utf-8")), "utf-8")
