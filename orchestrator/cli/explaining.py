"""``benchfarm explain`` and ``completion``: terms, codes, pages, a shell's TAB key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Final

from typer import Argument

from orchestrator.cli.commands import command
from orchestrator.cli.output import CommandResult
from orchestrator.errors import UsageError, choices, nearest
from orchestrator.installation import data_folder
from orchestrator.records import frozen
from orchestrator.records.failures import FAILURES, INSTALL_STEPS

FAILURES_PAGE: Final = "reference/failures.md"
PLUGINS_PAGE: Final = "reference/plugins.md"
PAGES: Final = (
    "concepts.md",
    "reference/findings.md",
    FAILURES_PAGE,
    "reference/plans.md",
    "reference/exports.md",
)
#: A first cell with nothing but terms, each of which may be a link.
_TERMS: Final = re.compile(r"(?:\[?`[^`]+`(?:\]\([^)]*\))?(?:, )?)+")


@frozen
class Entry:
    """One term of a page's table."""

    term: str
    #: Column of the table -> text; without the column of the term.
    columns: dict[str, str]
    page: str


def entries() -> Iterator[Entry]:
    """Yield the terms of every table whose first column has terms, by page, each with the next step
    of its record; plugins' passes; and the next steps of the package manager's codes.
    """
    from orchestrator.analysis.findings import CODES
    from orchestrator.passes import passes

    steps = {code: item.next_step for code, item in FAILURES.items()}
    steps |= {code: item.next_step for code, item in CODES.items()}
    for page in PAGES:
        heads: list[str] = []
        for line in (data_folder("docs") / page).read_text("utf-8").splitlines():
            first, *rest = re.split(r"(?<!\\)\|", line)[1:-1] or [""]
            cells = [plain(cell.strip()) for cell in rest]
            if not (cells and heads):
                heads = cells
            elif _TERMS.fullmatch(first.strip()):
                columns = {head: cell for head, cell in zip(heads, cells, strict=True) if cell}
                for term in re.findall("`([^`]+)`", first):
                    to_do = {"what to do": steps[term]} if term in steps else {}
                    yield Entry(term=term, columns=columns | to_do, page=page)
    for run_pass in passes():
        # No page has a plugin's pass.
        if "." in run_pass.name:
            yield Entry(
                term=run_pass.name, columns={"what it measures": run_pass.about}, page=PLUGINS_PAGE
            )
    for code, step in INSTALL_STEPS.items():
        yield Entry(term=code, columns={"what to do": step}, page=FAILURES_PAGE)


def plain(text: str) -> str:
    """Return Markdown as plain text: links by their words, without marks."""
    return re.sub(r"[`*]|\\(?=\|)", "", re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text))


@command("explain")
def explain(
    word: Annotated[
        str,
        Argument(
            help="Term, code or page, such as partial, throttled or plans (default: list all)."
        ),
    ] = "",
) -> CommandResult:
    """Explain a term or a code, or show a page of the docs.

    Example: benchfarm explain throttled

    Example: benchfarm explain guides/compare | less
    """
    glossary, folder = list(entries()), data_folder("docs")
    # No two pages have one name (tests/test_docs.py).
    pages = {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.rglob("*.md"))
    }
    query = word.strip().casefold()
    if not query:
        terms = [
            f"{page}: {', '.join(item.term for item in glossary if item.page == page)}"
            for page in PAGES
        ]
        text = "\n".join([*terms, "", "pages:", *(f"  {name}" for name in pages)])
        return CommandResult(text=text, data={"terms": glossary, "pages": [*pages]})
    # The last word of a plan's key is enough: ``num_runs``.
    matches = [
        item
        for item in glossary
        if (term := item.term.casefold()) in {query, query.replace("-", " ")}
        or term.rpartition(".")[2] == query
    ]
    name = query.removeprefix("docs/").removesuffix(".md")
    fitting = next((page for page in pages if f"/{page.casefold()}".endswith(f"/{name}")), None)
    if not matches and fitting:
        text = pages[fitting].read_text("utf-8").rstrip("\n")
        return CommandResult(text=text, data={"page": fitting, "markdown": text})
    if not matches:
        near = nearest(query, [*(item.term for item in glossary), *pages])
        raise UsageError(
            f"{word!r} is no term, code or page", hint=near or "'benchfarm explain' lists them"
        )
    lines = []
    for item in matches:
        lines.append(f"{item.term}  (docs/{item.page})")
        lines.extend(f"  {head}: {text}" for head, text in item.columns.items())
    if fitting:
        lines.append(f"more: benchfarm explain docs/{fitting}.md")
    return CommandResult(text="\n".join(lines), data=matches)


_SHELLS: Final = ("bash", "zsh", "fish")


@command("completion")
def completion(shell: Annotated[str, Argument(help="bash, zsh or fish.")]) -> CommandResult:
    """Print a completion script for your shell.

    Example: benchfarm completion bash >> ~/.bashrc
    """
    if shell not in _SHELLS:
        raise UsageError(f"there is no completion for {shell!r}", hint=choices(shell, _SHELLS))
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(
        prog_name="benchfarm", complete_var="_BENCHFARM_COMPLETE", shell=shell
    )
    return CommandResult(text=script, data={"shell": shell, "script": script})
