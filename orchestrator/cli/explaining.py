"""``benchfarm explain``: what a term or a code means, from the pages that come with benchfarm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.cli.result import CommandResult
from orchestrator.errors import UsageError, nearest
from orchestrator.report.next_steps import ERROR_STEPS
from orchestrator.resources import data_folder

PAGES: Final = ("concepts.md", "reference/findings.md", "reference/failures.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One row of a page's table."""

    term: str
    #: Column of the table -> text; without the column of the term.
    columns: dict[str, str]
    #: Empty: a code of an error, which no page lists.
    page: str


def entries() -> Iterator[Entry]:
    """Yield the rows of every table whose first column holds one term, by page; then errors' codes."""
    listed = set()
    for page in PAGES:
        heads: list[str] = []
        for line in (data_folder("docs") / page).read_text("utf-8").splitlines():
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not cells:
                heads = []
            elif not heads:
                heads = cells
            elif term := re.fullmatch(r"`([^`]+)`", cells[0]):
                columns = {head: plain(cell) for head, cell in zip(heads[1:], cells[1:], strict=True) if cell}
                listed.add(term[1])
                yield Entry(term=term[1], columns=columns, page=page)
    for code, step in ERROR_STEPS.items():
        if code not in listed:
            yield Entry(term=code, columns={"what to do": step}, page="")


def plain(text: str) -> str:
    """Return Markdown as plain text: links by their words, without marks."""
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text).replace("`", "").replace("*", "").replace("\\|", "|")


def explain(word: str) -> CommandResult:
    """Explain one term or code; without one, list them all.

    Raises:
        UsageError: there is no such term.
    """
    known = list(entries())
    wanted = word.strip().strip("'\"`").casefold().replace("_", "-")
    if not wanted:
        text = "\n".join(
            f"{page or 'errors'}: {', '.join(item.term for item in known if item.page == page)}"
            for page in (*PAGES, "")
        )
        return CommandResult(text=text, data=known)
    found = [item for item in known if item.term.casefold() in {wanted, wanted.replace("-", " ")}]
    if not found:
        hint = nearest(wanted, [item.term for item in known]) or "'benchfarm explain' lists them"
        raise UsageError(f"nothing explains {word!r}", hint=hint)
    lines = []
    for item in found:
        lines.append(f"{item.term}  (docs/{item.page})" if item.page else f"{item.term}  (an error)")
        lines.extend(f"  {head}: {text}" for head, text in item.columns.items())
    return CommandResult(text="\n".join(lines), data=found)
