"""The pages tell the truth where that can be tested: links lead somewhere, commands and options exist."""

import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples.places import REPO

PAGES = [REPO / "README.md", REPO / "CHANGELOG.md", *sorted((REPO / "docs").rglob("*.md"))]
BENCHFARM = Path(sys.executable).with_name("benchfarm")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_links_lead_to_files_that_are_there(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


@functools.cache
def help_of(*words: str) -> str:
    done = subprocess.run([BENCHFARM, *words, "--help"], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def commands_of(*words: str) -> list[str]:
    listed = help_of(*words).partition("Commands:\n")[2].partition("\n\n")[0]
    return re.findall(r"^  (\S+)  ", listed, re.M)


def all_commands() -> dict[str, str]:
    """Every command with its help text."""
    found: dict[str, str] = {}
    groups: list[tuple[str, ...]] = [()]
    while groups:
        group = groups.pop(0)
        for name in commands_of(*group):
            words = (*group, name)
            if commands_of(*words):
                groups.append(words)
            else:
                found[" ".join(words)] = help_of(*words)
    return found


def test_every_command_is_on_some_page_and_has_json() -> None:
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    commands = all_commands()
    assert len(commands) > 15
    assert [name for name in commands if f"benchfarm {name}" not in text] == []
    assert [name for name, shown in commands.items() if "--json" not in shown] == []


def test_commands_and_options_on_the_pages_exist() -> None:
    commands = all_commands()
    for page in PAGES:
        for line in re.findall(r"^(?:    |\$ )benchfarm ([a-z].*)$", page.read_text("utf-8"), re.M):
            words = line.split("#")[0].split()
            known = [" ".join(words[:length]) for length in (3, 2, 1)]
            name = next((item for item in known if item in commands), words[0])
            assert name in commands, f"{page.name}: benchfarm {line}"
            for option in re.findall(r"(?<!\S)(--[a-z-]+)", line.split("#")[0]):
                assert option in commands[name] or option in help_of(), f"{page.name}: benchfarm {line}"
