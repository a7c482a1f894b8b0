"""The public interface for plugins: what they may add to benchfarm, and how benchfarm finds them.

A plugin is an entry point of an installed distribution, in one of the groups ``benchfarm.GROUP``
below. Those of benchfarm itself are in its pyproject.toml. Nothing is imported before it is used: a
name is known by its entry point.

| group | the entry point's name | what it leads to |
|---|---|---|
| commands | ``SECTION of the help | WORDS | LINE of help`` | a module that declares it with
  :func:`command` |
| delegates | a prefix, a dot and a name: ``acme.npu`` | its :class:`Delegate` |
| passes | the pass; a third party's with a prefix and a dot: ``acme.idle`` | a ``PassSpec`` |
| devices | any | a :class:`DeviceSource` |
| exporters | the format, as ``benchfarm export --format`` takes it | an :class:`Exporter` |
| importers | any | an :class:`Importer` |
| notifiers | the scheme of an address (``https``) | a :class:`Notifier` |
| pages | the page's file without its ending | a :class:`Page` |
| program_sources | any | a :class:`ProgramSource` |
| programs | a prefix, a dot and a name: ``acme.sleep`` | its :class:`Program` |
| queues | any | the :class:`QueueSource` |
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from orchestrator.errors import PluginError, UsageError, nearest
from orchestrator.frozen import frozen
from orchestrator.installation import extra_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from orchestrator.app.attached import open_devices
    from orchestrator.app.doctor import Finding
    from orchestrator.app.exchange import ExportRequest, ImportRequest, store_import
    from orchestrator.app.workspace import Workspace
    from orchestrator.cli.commands import command
    from orchestrator.cli.output import CommandResult, shown
    from orchestrator.cli.reports import import_result
    from orchestrator.delegates import Delegate, FlagFamily
    from orchestrator.devices.host import HostDevice
    from orchestrator.engine.reread import ForeignRun, ImportBatch
    from orchestrator.passes.specification import (
        Figure,
        PassSpec,
        Repetition,
        as_printed,
        no_findings,
        plainly,
    )
    from orchestrator.plugin_kinds import (
        DeviceSource,
        Exported,
        Exporter,
        Importer,
        JobOwner,
        Message,
        Notifier,
        Page,
        ProgramSource,
        Queue,
        QueueSource,
        Receiver,
    )
    from orchestrator.ports import Change, CheckResult, Device, ListedPhone, PhoneCheck
    from orchestrator.programs import Program
    from orchestrator.programs.running import run_and_collect
    from orchestrator.records.case import Pass
    from orchestrator.settings import Settings
    from orchestrator.tables.table import Column, Kind, Table

__all__ = [
    "Change",
    "CheckResult",
    "Column",
    "CommandResult",
    "CommandWords",
    "Delegate",
    "Device",
    "DeviceSource",
    "ExportRequest",
    "Exported",
    "Exporter",
    "Figure",
    "Finding",
    "FlagFamily",
    "ForeignRun",
    "HostDevice",
    "ImportBatch",
    "ImportRequest",
    "Importer",
    "JobOwner",
    "Kind",
    "ListedPhone",
    "Message",
    "Notifier",
    "Page",
    "Pass",
    "PassSpec",
    "PhoneCheck",
    "Program",
    "ProgramSource",
    "Queue",
    "QueueSource",
    "Receiver",
    "Repetition",
    "Settings",
    "Table",
    "Workspace",
    "as_printed",
    "command",
    "command_words",
    "every",
    "find",
    "import_result",
    "load",
    "no_findings",
    "open_devices",
    "plainly",
    "plugins",
    "program_sources",
    "run_and_collect",
    "shown",
    "store_import",
]

_KindT = TypeVar("_KindT")
#: Names that plugins may use, in addition to the records -> their modules, loaded on first use.
_HOMES: Final = {
    name: f"orchestrator.{module}"
    for module, names in {
        "plugin_kinds": "DeviceSource Exported Exporter Importer Message Notifier Page"
        " ProgramSource Queue QueueSource JobOwner Receiver",
        "app.attached": "open_devices",
        "app.doctor": "Finding",
        "app.exchange": "ExportRequest ImportRequest store_import",
        "app.workspace": "Workspace",
        "cli.commands": "command",
        "cli.output": "CommandResult shown",
        "cli.reports": "import_result",
        "delegates": "Delegate FlagFamily",
        "devices.host": "HostDevice",
        "engine.reread": "ForeignRun ImportBatch",
        "passes.specification": "Figure PassSpec Repetition as_printed no_findings plainly",
        "ports": "Change CheckResult Device PhoneCheck ListedPhone",
        "programs": "Program",
        "programs.running": "run_and_collect",
        "records.case": "Pass",
        "settings": "Settings",
        "tables.table": "Column Kind Table",
    }.items()
    for name in names.split()
}
_OWN: Final = "benchfarm"


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'orchestrator.plugins' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


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
            hint=nearest(name, candidates) or f"there are {', '.join(candidates)}",
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


def program_sources() -> Iterable[ProgramSource]:
    """Return the sources of declared programs."""
    from orchestrator.plugin_kinds import ProgramSource

    return every("program_sources", ProgramSource).values()


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
