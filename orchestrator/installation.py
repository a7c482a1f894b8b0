"""What is installed: the folders of the data files that come with benchfarm, in a wheel and in a
checkout, what an extra installs, and the plugins.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from orchestrator.errors import (
    BenchfarmError,
    MissingPackageError,
    PluginError,
    UsageError,
    choices,
)
from orchestrator.records import frozen

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

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


_KindT = TypeVar("_KindT")
_OWN: Final = "benchfarm"


@functools.cache
def _installed() -> Sequence[EntryPoint]:
    # Imported here: a command without plugins needn't load its parsers.
    from importlib.metadata import entry_points

    all_entries = entry_points()
    groups = (group for group in all_entries.groups if group.startswith(f"{_OWN}."))
    return [entry for group in groups for entry in all_entries.select(group=group)]


@functools.cache
def plugins(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name, benchfarm's own first; a name of its own can't be
    replaced.
    """
    by_name: dict[str, EntryPoint] = {}
    for entry in sorted(_installed(), key=is_own, reverse=True):
        if entry.group == f"{_OWN}.{group}":
            by_name.setdefault(entry.name, entry)
    return by_name


def find(
    group: str, name: str, kind: type[_KindT], core: Mapping[str, _KindT] = MappingProxyType({})
) -> _KindT:
    """Return the plugin of a name, or of the core's ``core`` mapping.

    Raises UsageError for an unknown name, PluginError for a broken plugin.
    """
    candidates = {**core, **plugins(group)}
    if name not in candidates:
        raise UsageError(
            f"there is no {group.removesuffix('s')} {name!r}",
            hint=choices(name, candidates),
        )
    return core[name] if name in core else load(plugins(group)[name], kind)


def every(group: str, kind: type[_KindT], *, skips_broken: bool = False) -> Mapping[str, _KindT]:
    """Return all plugins of a group by name.

    Raises PluginError for a broken one unless it is skipped.
    """
    loaded = {}
    for name, entry in plugins(group).items():
        with suppress(PluginError) if skips_broken else nullcontext():
            loaded[name] = load(entry, kind)
    return loaded


def load(entry: EntryPoint, kind: type[_KindT]) -> _KindT:
    """Return the object of an entry point.

    Raises PluginError when it can't be imported or is of another kind.
    """
    try:
        plugin: Any = entry.load()
    except Exception as error:
        module = (getattr(error, "name", None) or "").partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and extra_of(module) and is_own(entry):
            raise
        distribution = _distribution(entry)
        raise PluginError(
            f"{entry.group} {entry.name!r} of {distribution} can't be loaded: {type(error).__name__}: {error}",
            hint=f"update {distribution}, or remove it: pip uninstall {distribution}",
        ) from error
    if not isinstance(plugin, kind):
        raise PluginError(
            f"{entry.group} {entry.name!r} of {_distribution(entry)}: {entry.value} is no"
            f" {kind.__name__}"
        )
    return plugin


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unknown distribution"


def is_own(entry: EntryPoint) -> bool:
    """Whether a plugin comes with benchfarm."""
    return entry.value.startswith("orchestrator.")


@frozen
class CommandWords:
    """The parts of the name of a command's entry point."""

    section: str
    #: Of which the first is a word of the top level.
    words: tuple[str, ...]
    about: str
    entry: EntryPoint


def command_words() -> Iterable[CommandWords]:
    """Yield the names of the installed commands, in the order of the help."""
    yielded = set()
    for name, entry in plugins("commands").items():
        parts = [part.strip() for part in name.split("|", 2)]
        section, words, about = parts if len(parts) == 3 else ("Plugins", name, "")
        if words not in yielded:
            yield CommandWords(
                section=section, words=tuple(words.split()), about=about, entry=entry
            )
        yielded.add(words)
