"""Where the data files that come with benchfarm are, in a wheel and in a checkout."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from orchestrator.errors import BenchfarmError, MissingPackageError

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


_REQUIREMENT: Final = re.compile(r"([\w.-]+).*extra\s*==\s*[\"']([\w.-]+)[\"']")


def require_packages(purpose: str, *modules: str) -> None:
    """Raise MissingPackageError unless all of these modules can be imported; ``purpose`` needs
    them.
    """
    for module in modules:
        if find_spec(module) is None:
            raise missing_package(module, purpose)


def missing_package(module: str, purpose: str = "this command") -> MissingPackageError:
    """Return the error that says which extra installs a module that isn't there."""
    top = module.partition(".")[0]
    extra = extra_of(top)
    what = f"'benchfarm[{extra}]'" if extra else top.replace("_", "-")
    return MissingPackageError(
        f"{purpose} needs the package {top.replace('_', '-')}, which isn't installed",
        hint=f"install it with: pip install {what}",
    )


def extra_of(module: str) -> str:
    """Return the smallest extra of benchfarm that brings a module; empty where none does."""
    import importlib.metadata

    distribution = module.replace("_", "-").lower()
    try:
        requirements = importlib.metadata.requires("benchfarm") or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    found = [match for text in requirements if (match := _REQUIREMENT.match(text))]
    sizes = Counter(match[2] for match in found)
    named = [match[2] for match in found if match[1].replace("_", "-").lower() == distribution]
    return min(named, key=lambda extra: sizes[extra], default="")
