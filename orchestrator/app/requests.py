"""What a verb is asked: the requests that the command line and Python make; a field's key is its
option, or an argument of the command where it names none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

from orchestrator.records import Key, frozen
from orchestrator.records.verdict import THRESHOLD

#: Nobody can measure smaller differences, so a request for one is a mistake.
LEAST_DIFFERENCE: Final = 0.0001
_DIFFERENCES: Final = LEAST_DIFFERENCE, 0.5


@frozen
class CompareOptions:
    """The sides of a comparison, and the differences that count."""

    #: A word of ``analysis.comparison.Axis``.
    by: Annotated[
        str,
        Key("Compare within campaigns: build, model, device, delegate or config.", "--by"),
    ] = "campaign"
    #: For every axis but the campaign.
    campaign: Annotated[
        Sequence[str], Key("With --by: campaigns to use. Repeat for several.", "--campaign")
    ] = ()
    #: A share; None: 0.02, or that of an A/B comparison.
    threshold: Annotated[
        float | None,
        Key(
            "Smallest relative difference to call a change (default: 2%, or --detect of an A/B"
            " comparison).",
            "--threshold",
            share=_DIFFERENCES,
        ),
    ] = None
    #: A share; None: 0.99.
    level: Annotated[
        float | None,
        Key("Confidence level of the intervals (default: 99%).", "--level", share=(0.5, 0.9999)),
    ] = None
    #: Words of ``analysis.comparison.Fact``.
    allow: Annotated[
        Sequence[str], Key("Allow a fact to differ: system, grade, settings ... (a,b).", "--allow")
    ] = ()


@frozen
class PairLimits:
    """The limits of a measurement in turns: ``ab`` and ``bisect``."""

    #: A share.
    detect: Annotated[
        float,
        Key(
            "Smallest relative difference to detect (default: 2%).", "--detect", share=_DIFFERENCES
        ),
    ] = THRESHOLD
    most: Annotated[
        int,
        Key("Measure at most N pairs. A pair is one process per side.", "--runs -n", least=2),
    ] = 200


@frozen
class AddRequest:
    """A program to add to the cache."""

    file: Annotated[Path, Key("A benchmark_model binary, an APK, or a library for one.")]
    name: Annotated[str, Key("Name of the build.", "--name")] = ""
    tool: Annotated[str, Key("Which program it is (default: by its name).", "--tool")] = ""
    libraries: Annotated[
        Sequence[Path], Key("Library to install beside it. Repeat for several.", "--with")
    ] = ()
    release: Annotated[str, Key("Release that the files belong to.", "--release")] = ""


@frozen
class LabRequest:
    """The virtual phones to start."""

    profiles: Annotated[
        Sequence[str], Key("One profile per phone. PROFILE@1-2.3 sets its USB path.")
    ] = ()
    serial: Annotated[str, Key("Serial number, for a single phone.", "--serial -s")] = ""
    speed: Annotated[float, Key("Phone seconds per real second.", "--speed", least=0.1)] = 1.0
    seed: Annotated[int, Key("Seed of the phones' random noise.", "--seed")] = 0
    rooted: Annotated[bool, Key("Give the phones root: the command su.", "--rooted")] = False


@frozen
class ImportRequest:
    """The files to import, and what they measured."""

    files: Annotated[
        Sequence[Path],
        Key("A bundle, a session's folder, leaderboard JSONL, or a text with benchmark output."),
    ]
    device: Annotated[str, Key("Serial number or name of the measured phone.", "--serial -s")] = ""
    models: Annotated[Sequence[Path], Key("Measured model. Repeat for several.", "--model -m")] = ()
    profile: Annotated[
        str, Key("Device profile, for a phone that the store doesn't have.", "--profile")
    ] = ""
    app: Annotated[
        str,
        Key("The app that measured: its file (a path with a slash) or its version.", "--app"),
    ] = ""
    #: Of the campaign.
    name: Annotated[str, Key("Name of the campaign.", "--name")] = "import"
    #: File for the HTML report.
    out: Path | None = None
