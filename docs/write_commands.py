"""Write what the docs say of commands, plan keys, findings, failures and delegates from the
program's own records: ``make docs``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from orchestrator.analysis.findings import CODES
from orchestrator.app.exporting import EXPORTERS
from orchestrator.cli.commands import ROOT, argument_name, sections
from orchestrator.config.plan import keys_table
from orchestrator.delegates import DELEGATES
from orchestrator.passes import passes
from orchestrator.passes.specification import Repetition
from orchestrator.plugins import Exporter, every
from orchestrator.programs import program
from orchestrator.records.case import DelegateName, ToolName
from orchestrator.records.failures import ERROR_FAILURES, RUN_FAILURES
from orchestrator.records.plan import Plan, keys_of

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
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    return "".join(f" {argument_name(item)}" for item in arguments)


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


def exports_page(text: str) -> str:
    """Return the text of docs/reference/exports.md with its formats as their records are."""
    known = EXPORTERS | every("exporters", Exporter)
    rows = (f"| `{name}` | {own.about} |" for name, own in known.items() if own.about)
    return with_table(text, "Formats", "| format | what it is |", rows)


HOW_OFTEN = {
    Repetition.UNTIL_CERTAIN: "until the figure is certain enough",
    Repetition.COUNTED: "a fixed number of times",
    Repetition.FOR_A_TIME: "for a stated time",
    Repetition.AROUND_OTHERS: "before, between and after the others; by `reference_check`",
}


def quoted(names: Iterable[DelegateName]) -> str:
    """Return benchfarm's own of some delegates as code, in their order."""
    chosen = {*names}
    return ", ".join(f"`{name}`" for name in DelegateName if name in chosen)


def concepts_page(text: str) -> str:
    """Return the text of docs/concepts.md with the delegates that there are."""
    names = quoted(DelegateName)
    return re.sub(r"(?<=What runs the operators: )[^.]*", lambda _: names, text)


def outputs_page(text: str) -> str:
    """Return the text of docs/guides/choose-a-delegate.md with the delegates of half precision."""
    half = quoted(name for name in DelegateName if DELEGATES[name].is_half({}))
    return re.sub(
        r"(?<=half precision 1e-2 \()[^)]*(?=\))",
        lambda _: f"{half}, fp16 flags; `gpu` not with `gpu_precision_loss_allowed=false`",
        text,
    )


def program_row(row: re.Match[str]) -> str:
    """Return a row of the programs with the delegates that the program has."""
    own = program(ToolName(row[2]))
    names = quoted(name for kind in own.kinds for name in own.delegates(kind))
    return f"{row[1]}| {names} |"


def plans_page(text: str) -> str:
    """Return the text of docs/reference/plans.md with its tables of keys and passes, and the
    delegates of its programs, as the records have them.
    """
    head, title, rest = text.partition("\n## Programs\n")
    programs, end, others = rest.partition("\n## ")
    rows = re.sub(r"(?m)^(\| `([\w-]+)` \|.*)\|[^|]*\|$", program_row, programs)
    text = "".join((head, title, rows, end, others))
    keys = (f"| `{key}` | {means} | {default} |" for key, means, default in keys_table())
    text = with_table(text, "Keys", "| key | value | default |", keys)
    rows = (
        f"| {f'[`{own.name}`](../guides/{own.guide}.md)' if own.guide else f'`{own.name}`'}"
        f" | {own.about} | {HOW_OFTEN[own.repetition]} |"
        for own in passes()
    )
    return with_table(text, "Passes", "| pass | what it measures | how often |", rows)


def example_plan(text: str) -> str:
    """Return the text of examples/plan.yaml with the keys that it lacks, at their defaults; those
    that are nothing by default are written by hand.
    """
    written = yaml.safe_load(text)
    for key in keys_of(Plan):
        *section, name = key.at
        is_there = name in (written[section[0]] if section else written)
        if not is_there and key.default not in (None, ()):
            line = f"{'  ' * len(section)}{name}: {yaml.safe_dump(key.default).split()[0]} # {key.key.about}\n"
            # Below the last line of its section, or of the file.
            end = rf"(?<=^{section[0]}:\n)(?:[ #].*\n)+" if section else r"(?s).+"
            text = re.sub(f"(?m){end}", lambda found, line=line: found[0] + line, text, count=1)  # type: ignore[misc]
    return text


#: Page of docs -> its text from what it was; reference/commands.md is made whole.
PAGES = {
    "concepts.md": concepts_page,
    "guides/choose-a-delegate.md": outputs_page,
    "reference/exports.md": exports_page,
    "reference/plans.md": plans_page,
    "reference/findings.md": findings_page,
    "reference/failures.md": failures_page,
    "../examples/plan.yaml": example_plan,
}


if __name__ == "__main__":
    folder = Path(__file__).parent
    folder.joinpath("reference", "commands.md").write_text(page(), "utf-8")
    for name, made in PAGES.items():
        path = folder / name
        path.write_text(made(path.read_text("utf-8")), "utf-8")
