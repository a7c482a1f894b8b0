"""The record of each kind of plugin; ``orchestrator.plugins`` has their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.frozen import frozen

if TYPE_CHECKING:
    from orchestrator.app.exchange import ExportRequest, ImportRequest
    from orchestrator.app.workspace import Workspace
    from orchestrator.cli.output import CommandResult
    from orchestrator.ports import Device, Seen
    from orchestrator.programs import Program
    from orchestrator.reading.lines import Buffer, Line
    from orchestrator.records.campaign import Campaign
    from orchestrator.records.case import ToolName
    from orchestrator.records.run import ToolReport
    from orchestrator.settings import Settings


@frozen
class Exported:
    """What an exporter wrote, beside the files themselves."""

    #: A sentence for people after the file's name; empty: the name says enough.
    text: str = ""
    #: What ``--json`` has beside the files.
    data: Mapping[str, object] = field(default_factory=dict)


@frozen
class Exporter:
    """A format of ``benchfarm export``."""

    #: The file it is written to by default, whose suffix means the format in ``--out``.
    path: Path
    #: Writes what was asked for of the campaigns to a new file. Raises UsageError. The campaigns
    #: come without their invocations, as of many nights these are many: the store has them.
    write: Callable[[Workspace, Sequence[Campaign], ExportRequest, Path], Exported | None]
    #: What it is, as docs/reference/exports.md says of ours.
    about: str = ""
    #: Whether ``--run`` chooses some runs; else it is about whole campaigns.
    takes_runs: bool = False
    #: Whether ``--rows`` chooses what a row is; else it has no rows or always the same.
    takes_rows: bool = False


@frozen
class Importer:
    """A kind of results that ``benchfarm import`` takes."""

    #: What people call it, with its article: ``a bundle``.
    title: str
    #: Whether a file or folder, which is there, is one.
    takes: Callable[[Path], bool]
    #: Stores what files of this kind hold. Raises UsageError kinds, having stored nothing.
    take_in: Callable[[Settings, ImportRequest], CommandResult]
    #: Whether all others are asked before it.
    is_last: bool = False


@frozen
class Message:
    """What a notifier sends."""

    #: Plain values; a webhook gets them as ``report`` in one JSON object with ``text``.
    content: object
    #: For people; its first line is a headline.
    text: str


@frozen
class Receiver:
    """Where messages go."""

    #: What errors call it; no secret of its address.
    name: str
    #: Tries once, for so many seconds; returns why it failed (empty: delivered), and whether
    #: another try may help.
    deliver: Callable[[Message, float], tuple[str, bool]]


@frozen
class Notifier:
    """A way to send what ``benchfarm history changes --notify`` reports."""

    #: Returns where messages to an address go; raises ValueError with a sentence for one that can't
    #: be used.
    receiver: Callable[[str, Settings], Receiver]


@frozen
class Page:
    """A page beside those of the history, written and served with them."""

    #: What links to it are called.
    title: str
    #: Returns the HTML document; its policy loads nothing from elsewhere and runs no script that
    #: stands in it.
    render: Callable[[Workspace], str]


def _nothing_lacks(settings: Settings) -> tuple[str, str]:
    return "", ""


@frozen
class DeviceSource:
    """A way to reach devices beside Android phones behind adb, and this computer."""

    #: What stands for its devices where Android's phones have an adb server: ``usbmuxd``.
    title: str
    #: Returns the devices that are attached, usable or not; none, at once, where this computer has
    #: no way to any. Raises DeviceError, which is reported and keeps no other device from use.
    attached: Callable[[Settings], Sequence[Seen]]
    #: Opens one that can be used; a device that is a ``ports.CheckedDevice`` can be checked by
    #: ``benchfarm device check``. Raises DeviceError kinds.
    open: Callable[[Workspace, Seen], Device]
    #: Returns what this computer lacks for devices that it may have, and the next step, for
    #: ``benchfarm doctor``; empty texts for nothing.
    lacking: Callable[[Settings], tuple[str, str]] = _nothing_lacks


@frozen
class ProgramSource:
    """Programs that files of the user's declare: each file becomes a :class:`Program`."""

    #: Returns the names of all; reads no file.
    names: Callable[[], Sequence[str]]
    #: Returns the program that a plan means by a name or a file, None for another word. Raises
    #: ValueError for a faulty file.
    named: Callable[[str], ToolName | None]
    #: Returns a program; raises UsageError where it is no longer declared, PlanError for a faulty
    #: file.
    program: Callable[[ToolName], Program]
    #: Lets these files declare their programs meanwhile, before others of their names; raises
    #: ProgramInUseError, PlanError.
    lent: Callable[[Sequence[Path]], AbstractContextManager[None]]
    #: Returns the runs of its programs in a text of unknown origin, given what yields the text's
    #: lines.
    read: Callable[[Buffer, Callable[[Buffer], Iterable[Line]]], list[ToolReport]]
