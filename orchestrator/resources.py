"""Where the data files that come with benchfarm are, in a wheel and in a checkout."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

from orchestrator.errors import BenchfarmError

DataFolder = Literal["reports", "apk_builds", "device_profiles", "docs"]


#: Where a user's own declared programs are, files or folders, before the shipped ones.
_programs: list[Path] = []


def look_for_programs_in(place: Path) -> None:
    """Know a file of a declared program, or those of a folder; what was named last counts first."""
    if place in _programs:
        _programs.remove(place)
    _programs.insert(0, place)


def forget_programs_in(place: Path) -> None:
    """Know a file or folder of declared programs no more."""
    if place in _programs:
        _programs.remove(place)


def program_places() -> tuple[Path, ...]:
    """Return the user's files and folders of declared programs, in the order in which they count."""
    return tuple(_programs)


@cache
def data_folder(name: DataFolder) -> Path:
    """Return a folder of shipped data.

    An installed wheel holds them in ``orchestrator/_data``; a checkout or an editable install has
    them at the top of the repository. Raises BenchfarmError when neither is there, which means that
    the installation is damaged.
    """
    package = Path(__file__).resolve().parent
    candidates = (package / "_data" / name, package.parent / name)
    for folder in candidates:
        if folder.is_dir():
            return folder
    raise BenchfarmError(
        f"benchfarm's own folder '{name}' is missing (looked in {' and '.join(map(str, candidates))})",
        hint="The installation is damaged: install benchfarm again.",
    )
