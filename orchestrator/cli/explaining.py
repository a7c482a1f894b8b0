"""``benchfarm explain``, ``docs`` and ``completion``: terms, codes, pages, a shell's TAB key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from orchestrator.analysis.findings import CODES
from orchestrator.app.options import arg
from orchestrator.cli.frame import command
from orchestrator.cli.result import CommandResult
from orchestrator.errors import UsageError, nearest
from orchestrator.installation import data_folder
from orchestrator.records.failures import FAILURES, INSTALL_STEPS
from orchestrator.tables.escapes import text_table

PAGES: Final = ("concepts.md", "reference/findings.md", "reference/failures.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One row of a page's table."""

    term: str
    #: Column of the table -> text; without the column of the term.
    columns: dict[str, str]
    page: str


def entries() -> Iterator[Entry]:
    """Yield the rows of every table whose first column holds one term, by page, each with what its
    record says to do; and what the package manager's own codes ask for.
    """
    steps = {code: item.next_step for code, item in FAILURES.items()}
    steps |= {code: item.next_step for code, item in CODES.items()}
    for page in PAGES:
        heads: list[str] = []
        for line in (data_folder("docs") / page).read_text("utf-8").splitlines():
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not cells:
                heads = []
            elif not heads:
                heads = cells
            elif term := re.fullmatch(r"`([^`]+)`", cells[0]):
                columns = {
                    head: plain(cell)
                    for head, cell in zip(heads[1:], cells[1:], strict=True)
                    if cell
                }
                if step := steps.get(term[1]):
                    columns["what to do"] = step
                yield Entry(term=term[1], columns=columns, page=page)
    for code, step in INSTALL_STEPS.items():
        yield Entry(term=code, columns={"what to do": step}, page=PAGES[-1])


def plain(text: str) -> str:
    """Return Markdown as plain text: links by their words, without marks."""
    return (
        re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text)
        .replace("`", "")
        .replace("*", "")
        .replace("\\|", "|")
    )


@command("explain")
def explain(
    word: Annotated[
        str, arg("Term or code, such as partial or throttled (default: list all).")
    ] = "",
) -> CommandResult:
    """Explain a term or a code that benchfarm prints.

    Example: benchfarm explain throttled
    """
    known = list(entries())
    wanted = word.strip().strip("'\"`").casefold().replace("_", "-")
    if not wanted:
        text = "\n".join(
            f"{page}: {', '.join(item.term for item in known if item.page == page)}"
            for page in PAGES
        )
        return CommandResult(text=text, data=known)
    found = [
        item
        for item in known
        if item.term.casefold().replace("_", "-") in {wanted, wanted.replace("-", " ")}
    ]
    if not found:
        hint = nearest(wanted, [item.term for item in known]) or "'benchfarm explain' lists them"
        raise UsageError(f"nothing explains {word!r}", hint=hint)
    lines = []
    for item in found:
        lines.append(f"{item.term}  (docs/{item.page})")
        lines.extend(f"  {head}: {text}" for head, text in item.columns.items())
    return CommandResult(text="\n".join(lines), data=found)


@command("docs")
def docs(
    page: Annotated[
        str, arg("Page, such as plans or docs/guides/compare.md (default: list all).")
    ] = "",
) -> CommandResult:
    """Show a page of the documentation.

    Example: benchfarm docs guides/compare

    Example: benchfarm docs plans | less
    """
    folder = data_folder("docs")
    paths = {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.rglob("*.md"))
    }
    if not page:
        texts = {name: path.read_text("utf-8").partition("\n")[0] for name, path in paths.items()}
        rows = [(name, plain(text.lstrip("# "))) for name, text in texts.items()]
        return CommandResult(text=text_table(("page", "about"), rows), data=dict(rows))
    wanted = page.removeprefix("docs/").removesuffix(".md")
    found = [name for name in paths if name == wanted or name.endswith(f"/{wanted}")]
    if len(found) != 1:
        hint = nearest(wanted, list(paths)) or "'benchfarm docs' lists them"
        raise UsageError(
            f"{page!r} is {'several pages' if found else 'no page'} of the documentation",
            hint=f"choose of {', '.join(found)}" if found else hint,
        )
    text = paths[found[0]].read_text("utf-8").rstrip("\n")
    return CommandResult(text=text, data={"page": found[0], "markdown": text})


_SHELLS: Final = ("bash", "zsh", "fish")


@command("completion")
def completion(shell: Annotated[str, arg("bash, zsh or fish.")]) -> CommandResult:
    """Print a completion script for your shell.

    Example: benchfarm completion bash >> ~/.bashrc
    """
    if shell not in _SHELLS:
        raise UsageError(
            f"there is no completion for {shell!r}", hint=f"one of {', '.join(_SHELLS)}"
        )
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(
        prog_name="benchfarm", complete_var="_BENCHFARM_COMPLETE", shell=shell
    )
    return CommandResult(text=script, data={"shell": shell, "script": script})
