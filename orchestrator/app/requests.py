"""What a verb is asked: the requests that the command line and Python make."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from orchestrator.frozen import frozen


@frozen
class CompareOptions:
    """The sides of a comparison, and the differences that count."""

    #: A word of ``analysis.comparison.Axis``.
    by: str = "campaign"
    #: Campaigns to search within, for every axis but the campaign.
    campaign: Sequence[str] = ()
    #: Smaller differences don't count, as a share; None: 0.02, or that of an A/B comparison.
    threshold: float | None = None
    #: Confidence level of the intervals, as a share; None: 0.99.
    level: float | None = None
    #: Words of ``analysis.comparison.Fact`` that may differ.
    allow: Sequence[str] = ()


@frozen
class PairLimits:
    """The limits of a measurement in turns: ``ab`` and ``bisect``."""

    #: The smallest relative difference to detect, as a share.
    detect: float
    #: Pairs at most, of a process per side each.
    most: int


@frozen
class AddRequest:
    """A program to add to the cache."""

    file: Path
    name: str = ""
    #: Which program it is; empty: by its name.
    tool: str = ""
    #: Libraries to install beside it.
    libraries: Sequence[Path] = ()
    #: The release that the files belong to.
    release: str = ""


@frozen
class LabRequest:
    """The virtual phones to start."""

    #: One profile per phone; ``PROFILE@1-2.3`` sets its USB path.
    profiles: Sequence[str] = ()
    #: For a single phone.
    serial: str = ""
    #: Phone seconds per real second.
    speed: float = 1.0
    #: Of the phones' random noise.
    seed: int = 0
    rooted: bool = False


#: What a row of an export is about, the usual one first.
ROWS: Final = ("cases", "invocations")


@frozen
class ExportRequest:
    """The campaigns to export, and the file; ``form`` is the name of an exporter."""

    campaigns: Sequence[str] = ()
    out: Path | None = None
    form: str = ""
    #: Ids of single runs, or their beginnings.
    runs: Sequence[str] = ()
    rows: str = ROWS[0]
    #: Whether an existing file is replaced.
    force: bool = False


@frozen
class ImportRequest:
    """The files to import, and what they measured."""

    files: Sequence[Path]
    #: Serial number or name of the measured phone.
    device: str = ""
    models: Sequence[Path] = ()
    #: For a phone that the store doesn't have.
    profile: str = ""
    #: The file (a path with a slash) or the version of the app that measured.
    app: str = ""
    #: Of the campaign.
    name: str = "import"
    #: File for the HTML report.
    out: Path | None = None
