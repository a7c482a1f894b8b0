"""What a verb is asked: the requests that the command line and Python make, with their options.

A command's options are the fields of such a record (``cli.frame``). It is light: every command's
help loads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from orchestrator.app.options import Listed, Paths, Texts, Wait, arg, opt, percentage
from orchestrator.frozen import frozen
from orchestrator.records.verdict import THRESHOLD


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """The sides of a comparison, and the differences that count."""

    by: Annotated[
        str, opt("--by", "Compare within campaigns: build, model, device, delegate or config.")
    ] = "campaign"
    campaign: Annotated[
        Texts, opt("--campaign", "With --by: campaigns to use. Repeat for several.")
    ] = ()
    threshold: Annotated[
        float | None,
        percentage(
            "--threshold",
            "Ignore differences below this (default: 2%, or --detect of an A/B comparison).",
            most=0.5,
        ),
    ] = None
    level: Annotated[
        float | None,
        percentage(
            "--level", "Confidence level of the intervals (default: 99%).", least=0.5, most=0.9999
        ),
    ] = None
    allow: Annotated[
        Listed, opt("--allow", "Allow a fact to differ: system, grade, settings ... (a,b).")
    ] = ()


@dataclass(frozen=True, kw_only=True)
class AbRequest:
    """The models, limits and waiting time of a measurement in turns: ``ab`` and ``bisect``."""

    models: Annotated[Paths, opt("--model -m", "Model to measure. Repeat for several.")] = ()
    #: The relative difference to detect, as a share.
    detect: Annotated[
        float, percentage("--detect", "Smallest relative difference to detect.", most=0.5)
    ] = THRESHOLD
    most: Annotated[
        int, opt("--runs -n", "Measure at most N pairs. A pair is one process per side.", min=2)
    ] = 200
    wait: Wait = ""


@frozen
class AddRequest:
    """A program to add to the cache."""

    file: Annotated[Path, arg("A benchmark_model binary, an APK, or a library for one.")]
    name: Annotated[str, opt("--name", "Name of the build.")] = ""
    tool: Annotated[str, opt("--tool", "Which program it is (default: by its name).")] = ""
    libraries: Annotated[
        Paths, opt("--with", "Library to install beside it. Repeat for several.")
    ] = ()
    release: Annotated[str, opt("--release", "Release that the files belong to.")] = ""
