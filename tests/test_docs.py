"""The pages tell the truth where that can be tested: links lead somewhere, commands and options
exist."""

import ast
import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs import write_commands
from orchestrator.analysis.findings import CODES
from orchestrator.cli.commands import ROOT, sections
from orchestrator.passes import passes
from tests.samples.places import REPO

PAGES = [
    *(REPO / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md", "virtual/README.md")),
    *sorted((REPO / "docs").rglob("*.md")),
]
SOURCES = sorted(
    [*(REPO / "orchestrator").rglob("*.py"), *(REPO / "virtual" / "src").rglob("*.py")]
)
#: Words of README, CONTRIBUTING and docs/ at most, and of those pages that people read from the
#: first line to the last.
WORDS_MAX, WORDS_READ_MAX = 40_100, 16_800
#: What ends a command in a shell's line.
ENDS = {"|", "||", "&&", "&", ";", ">", ">>", "<", "2>"}


def options_of(command: Any) -> set[str]:
    return {
        name
        for option in command.params
        for name in (*option.opts, *option.secondary_opts)
        if name[:1] == "-"
    }


def declared(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Every command with its options, and every group, which has none."""
    inside = getattr(command, "commands", {})
    if words:
        yield words, set() if inside else options_of(command)
    for name, item in inside.items():
        if not item.hidden:
            yield from declared(item, *words, name)


ROOT.load()
FOR_ALL = options_of(ROOT) | {"--help", "-h"}
DECLARED = dict(declared(ROOT))
COMMANDS = {words: options for words, options in DECLARED.items() if options}


def named_by(line: str) -> tuple[tuple[str, ...], list[str]]:
    """Split what follows ``benchfarm`` into the words of the command and the rest; fails where
    there is no such one.
    """
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        words = line.split()
    words = [word.strip("[]").removesuffix("...") for word in words]
    words = words[: next((place for place, word in enumerate(words) if word in ENDS), len(words))]
    before: list[str] = []
    while words and words[0].startswith("-"):
        before.append(words.pop(0))
        if before[-1] in {"--home", "--store", "--log-format"}:
            words.pop(0)
    length = next(length for length in (3, 2, 1, 0) if tuple(words[:length]) in {*DECLARED, ()})
    name = tuple(words[:length])
    # After a group only something that stands for one of its commands may come, not the name of
    # none.
    is_open = (
        name not in COMMANDS and words[length:] and re.fullmatch(r"[a-z][a-z-]*", words[length])
    )
    assert not is_open, f"there is no command 'benchfarm {line}'"
    return name, before + words[length:]


def require_exists(line: str, where: str) -> None:
    name, rest = named_by(line)
    for word in rest:
        option = re.match(r"--?[a-z][a-z-]*", word)
        if option is not None:
            known = DECLARED.get(name, set()) | FOR_ALL
            assert option[0] in known, f"{where}: benchfarm {line}: {option[0]}"


def blocks(text: str) -> Iterator[str]:
    """The lines of all code blocks, indented and fenced."""
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip()


def written_on(page: Path) -> Iterator[str]:
    """What follows ``benchfarm`` in the commands of a page, in its blocks and within its text."""
    text = page.read_text("utf-8")
    for line in blocks(text):
        yield from re.findall(r"(?:^|[|;] |&& )(?:\$ )?(?:[A-Z_]+=\S+ )*benchfarm ([a-z-].*)", line)
    for line in re.findall(r"(?<!`)`benchfarm ([^`]+)`(?!`)", text):
        yield " ".join(line.replace("\\", "").split())


def written_in(source: Path) -> Iterator[tuple[int, str]]:
    """What follows ``benchfarm`` in the commands that a module's texts name, with their lines."""
    parts: set[int] = set()
    content = source.read_text("utf-8")
    names_one = "'benchfarm " in content or "``benchfarm " in content
    for node in ast.walk(ast.parse(content)) if names_one else ():
        if isinstance(node, ast.JoinedStr):
            parts |= {id(value) for value in node.values}
            text = "".join(
                str(value.value) if isinstance(value, ast.Constant) else "X"
                for value in node.values
            )
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts
        ):
            text = node.value
        else:
            continue
        for quoted in re.findall(r"'benchfarm ([^'\n]+)'|``benchfarm ([^`\n]+)``", text):
            yield node.lineno, "".join(quoted)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    outside = re.sub(r"(?ms)^```.*?^```", "", page.read_text("utf-8"))
    heads = re.findall(r"(?m)^#+ (.+)$", outside)
    plain = (re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", head).lower() for head in heads)
    return {re.sub(r"[^\w\- ]", "", head).replace(" ", "-") for head in plain}


def test_links_lead_to_files_and_headings_that_are_there() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page}: {target}"
            assert not anchor or anchor in anchors(page.parent / target if target else page), (
                f"{page}: {target}#{anchor}"
            )


def test_the_pages_stay_short() -> None:
    """Index, reference and decisions are looked up, evidence.md is written by ``make evidence``;
    all else is read.
    """
    looked_up = ("docs/README.md", "docs/reference/", "docs/decisions/", "docs/evidence.md")
    pages = [REPO / "README.md", REPO / "CONTRIBUTING.md", *sorted((REPO / "docs").rglob("*.md"))]
    words = {
        page.relative_to(REPO).as_posix(): len(page.read_text("utf-8").split()) for page in pages
    }
    guards = "so that people read them: say it shorter, or drop what nobody needs; if your page is worth it, raise the limit"
    assert sum(words.values()) <= WORDS_MAX, f"all pages, {guards}"
    read = {name: count for name, count in words.items() if not name.startswith(looked_up)}
    assert sum(read.values()) <= WORDS_READ_MAX, (
        f"the pages that are read from top to bottom, {guards}"
    )


def test_the_readme_names_the_commands_that_do_all_the_set_up() -> None:
    text = (REPO / "README.md").read_text("utf-8")
    assert "`make quickstart` does the same, and `make test` passes the tests" in text


def test_pages_that_code_names_are_there() -> None:
    found = {
        (source, name)
        for folder in ("orchestrator", "virtual", "tests", "benchmarks", "examples", "requirements")
        for source in sorted((REPO / folder).rglob("*"))
        if source.suffix in {".py", ".html", ".sh", ".yaml", ".service", ".toml", ""}
        and source.is_file()
        for name in re.findall(
            r"(?<![\w/])docs/[\w/-]+\.md", source.read_text("utf-8", errors="replace")
        )
    }
    assert len(found) > 30
    assert (
        sorted({f"{source}: {name}" for source, name in found if not (REPO / name).is_file()}) == []
    )


def test_files_that_a_page_names_are_there() -> None:
    """Paths of this repository, from its top or from ``orchestrator/``."""
    tops = "|".join(path.name for path in REPO.iterdir() if path.is_dir() and path.name[0] != ".")
    path_of = re.compile(rf"(?<!\[)`((?:{tops})/[\w./*-]+|[\w-]+/[\w./*-]+\.(?:py|sh|js|toml))`")
    pages = [REPO / "CONTRIBUTING.md", *(page for page in PAGES if page.name != "CHANGELOG.md")]
    named = {path for page in pages for path in path_of.findall(page.read_text("utf-8"))}
    missing = [
        path
        for path in named
        if not any(any(top.glob(path.rstrip("/"))) for top in (REPO, REPO / "orchestrator"))
    ]
    assert [path for path in missing if not path.endswith("/NAME")] == []


def test_modules_that_pages_name_are_there() -> None:
    """``engine.campaign.run_on_devices``: names below ``orchestrator``."""
    parts = {path.stem for path in (REPO / "orchestrator").iterdir()}
    pages = [REPO / "docs" / name for name in ("architecture.md", "method.md")]
    for page in [*pages, *(REPO / "docs" / "decisions").glob("*.md")]:
        for name in re.findall(r"`([a-z_]+(?:\.\w+)+)`", page.read_text("utf-8")):
            if name.partition(".")[0] in parts and not name.endswith((".py", ".js")):
                pkgutil.resolve_name(f"orchestrator.{name}")


def test_every_command_has_json() -> None:
    assert len(COMMANDS) > 50
    assert [" ".join(words) for words, options in COMMANDS.items() if "--json" not in options] == []


def test_the_page_of_commands_is_as_they_are() -> None:
    assert (REPO / "docs" / "reference" / "commands.md").read_text(
        "utf-8"
    ) == write_commands.page(), "make docs"


@pytest.mark.parametrize("name", write_commands.PAGES)
def test_the_tables_of_a_page_are_as_their_records_are(name: str) -> None:
    text = (REPO / "docs" / name).read_text("utf-8")
    assert text == write_commands.PAGES[name](text), "make docs"


def test_each_pass_and_finding_has_its_row() -> None:
    plans, findings = (
        (REPO / "docs" / "reference" / name).read_text("utf-8")
        for name in ("plans.md", "findings.md")
    )
    assert [own.name for own in passes() if f"`{own.name}`" not in plans] == []
    assert [code for code in CODES if f"| `{code}` |" not in findings] == []


def test_no_two_pages_have_one_name() -> None:
    """So that ``benchfarm explain NAME`` shows one."""
    names = [page.name for page in (REPO / "docs").rglob("*.md")]
    assert len(names) == len(set(names))


def every(command: Any) -> Iterator[Any]:
    yield command
    for item in getattr(command, "commands", {}).values():
        yield from every(item)


def test_every_command_has_one_line_and_an_example() -> None:
    for command in every(ROOT):
        if command is not ROOT and not hasattr(command, "commands"):
            assert "Example: benchfarm " in command.help, command.name
            assert not command.get_short_help_str(60).endswith("..."), command.name


def test_examples_name_commands_that_exist() -> None:
    for command in every(ROOT):
        for line in re.findall(r"Example: benchfarm (.*)", command.help or ""):
            for part in line.split(" | benchfarm "):
                require_exists(part, str(command.name))


def test_the_top_level_lists_every_command_once() -> None:
    listed = [name for words in sections().values() for name in words]
    assert sorted(listed) == sorted(name for name, item in ROOT.commands.items() if not item.hidden)
    assert len(listed) == len(set(listed))
    for words in sections().values():
        for name, about in words.items():
            assert ROOT.commands[name].get_short_help_str(100) == about


def test_commands_and_options_on_the_pages_exist() -> None:
    found = [(page, line) for page in PAGES for line in written_on(page)]
    assert len(found) > 250
    for page, line in found:
        require_exists(line, page.name)


def test_commands_and_options_that_messages_name_exist() -> None:
    found = [(source, *place) for source in SOURCES for place in written_in(source)]
    assert len(found) > 100
    for source, number, line in found:
        require_exists(line, f"{source.relative_to(REPO)}:{number}")


@pytest.mark.parametrize(
    "line",
    [
        "nosuch",
        "models inspect",
        "build nosuch",
        "run --camp ID",
        "--hom X runs",
        "results runs -z",
    ],
)
def test_what_does_not_exist_is_found(line: str) -> None:
    with pytest.raises(AssertionError, match="benchfarm"):
        require_exists(line, "a page")
