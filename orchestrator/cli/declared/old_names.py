"""Names that commands had before; they work on, but help and docs don't list them."""

from __future__ import annotations

from typing import Final

import typer

from orchestrator.cli.frame import LOOK, Command, app

#: Old words -> the words that took their place.
OLD_COMMANDS: Final[dict[str, str]] = {
    "campaigns": "results list",
    "runs": "results runs",
    "log": "results log",
    "reparse": "results reparse",
    "close": "results close",
    "sustained": "results sustained",
    "regressions": "history changes",
    "site": "history site",
    "annotate add": "history expect",
    "annotate list": "history expected",
    "annotate delete": "history forget",
    "restore": "device restore",
    "device tune": "device quiet",
    "farm go-on": "farm resume",
    "farm schedule go-on": "farm schedule resume",
    "builds pin": "build use",
}
OLD_GROUPS: Final[dict[str, str]] = {"builds": "build", "models": "model"}


def _group(words: list[str]) -> typer.Typer:
    """Return a group of commands; an old one that isn't there yet is made, hidden."""
    found = app
    for word in words:
        inside = {item.name: item.typer_instance for item in found.registered_groups}
        if inside.get(word) is None:
            found.add_typer(typer.Typer(**LOOK), name=word, hidden=True)
            inside = {item.name: item.typer_instance for item in found.registered_groups}
        made = inside[word]
        assert made is not None
        found = made
    return found


def keep_old_names() -> None:
    """Declare the old names; once, when every command is declared."""
    for old, new in OLD_GROUPS.items():
        app.add_typer(_group([new]), name=old, hidden=True)
    for old, new in OLD_COMMANDS.items():
        *group, name = new.split()
        call = next(item.callback for item in _group(group).registered_commands if item.name == name)
        assert call is not None
        *group, name = old.split()
        _group(group).command(name, cls=Command, hidden=True)(call)
