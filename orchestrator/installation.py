"""The folders of the data files that come with benchfarm, in a wheel and in a checkout."""

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


def add_program_place(place: Path) -> None:
    """Add a file or folder of declared programs; the one added last comes first."""
    if place in _programs:
        _programs.remove(place)
    _programs.insert(0, place)


def remove_program_place(place: Path) -> None:
    """Remove a file or folder of declared programs."""
    if place in _programs:
        _programs.remove(place)


def program_places() -> tuple[Path, ...]:
    """Return the user's files and folders of declared programs, the first of a name wins."""
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
    """Raise MissingPackageError unless all of these modules can be imported, which ``purpose`` needs."""
    for module in modules:
        if find_spec(module) is None:
            raise missing_package(module, purpose)


def missing_package(module: str, purpose: str = "this command") -> MissingPackageError:
    """Return the error for a missing module, with the extra that installs it."""
    top = module.partition(".")[0]
    extra = extra_of(top)
    requirement = f"'benchfarm[{extra}]'" if extra else top.replace("_", "-")
    return MissingPackageError(
        f"{purpose} needs the package {top.replace('_', '-')}, which isn't installed",
        hint=f"install it with: pip install {requirement}",
    )


def extra_of(module: str) -> str:
    """Return the smallest extra of benchfarm that installs a module; empty for none."""
    import importlib.metadata

    distribution = module.replace("_", "-").lower()
    try:
        requirements = importlib.metadata.requires("benchfarm") or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    matches = [match for text in requirements if (match := _REQUIREMENT.match(text))]
    sizes = Counter(match[2] for match in matches)
    extras = [match[2] for match in matches if match[1].replace("_", "-").lower() == distribution]
    return min(extras, key=lambda extra: sizes[extra], default="")
