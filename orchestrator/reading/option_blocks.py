"""The options of ``benchmark_model_performance_options``: their names, their lines and their
summary.

A row's name is what was asked for, not what ran: a ``gpu-default`` row of a phone without a GPU
holds the CPU's time.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.delegates import delegates_of, flags_of
from orchestrator.delegates.specification import FlagFamily
from orchestrator.reading.figures import parse_stats
from orchestrator.reading.lines import parse_line
from orchestrator.reading.transcript import UNCONSUMED
from orchestrator.records.case import Case, DelegateName
from orchestrator.records.device import DeviceKind
from orchestrator.records.run import LatencySummary

_TITLE: Final = "Summary of All Runs w/ Different Performance Options"
_ROW: Final = re.compile(r"\s*(?P<name>[\w/(].{0,120}?): (?:(?P<stats>count=.*)|\s*failed!\s*)$")
_KNOWN: Final = re.compile(
    r"(?:cpu w/ -?\d+ threads(?: \([\w-]+\))?|gpu-(?:default|fp16)|nnapi\(.*\)|dsp w/ hexagon|coreml)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRow:
    """One row: its name and its statistics, None when the option failed."""

    name: str
    stats: LatencySummary | None

    @property
    def requested(self) -> str:
        """The delegate that the option asks for, "" when the name is new."""
        for start, delegate in (
            ("gpu", "gpu"),
            ("nnapi", "nnapi"),
            ("dsp", "hexagon"),
            ("coreml", "coreml"),
        ):
            if self.name.startswith(start):
                return delegate
        if self.name.startswith("cpu"):
            return "xnnpack" if "xnnpack" in self.name else "cpu"
        return ""

    @property
    def accelerator(self) -> str:
        """The NNAPI accelerator that the option names, "" for none."""
        match = re.match(r"nnapi\((?!w/o)(.*)\)$", self.name)
        return match[1] if match else ""


def starts_summary(text: str) -> bool:
    """Whether a line is the summary's title."""
    return _TITLE in text and text.strip("= ") == _TITLE


def parse_row(
    text: str, *, in_summary: bool, has_percentiles: bool = False, is_cut: bool = False
) -> SummaryRow | None:
    """Read a row; outside a summary only names that the program is known to use are taken for one.

    ``has_percentiles`` and ``is_cut`` as for :func:`parse_stats`.
    """
    match = _ROW.match(text)
    if (
        not match
        or not (in_summary or _KNOWN.match(match["name"]))
        or match["name"].endswith("Timings (microseconds)")
    ):
        return None
    stats = (
        parse_stats(match["stats"], has_percentiles=has_percentiles, is_cut=is_cut)
        if match["stats"]
        else None
    )
    return None if match["stats"] and stats is None else SummaryRow(name=match["name"], stats=stats)


#: Delegate -> what the program calls the group of options that holds it.
OPTION_GROUPS: Final = {
    name: flags_of(name, FlagFamily.PERFORMANCE_OPTIONS)["perf_options_list"]
    for name in delegates_of(FlagFamily.PERFORMANCE_OPTIONS, DeviceKind.ANDROID)
}
PRECISION_FLAG: Final = "gpu_precision_loss_allowed"
ACCELERATOR_FLAG: Final = "nnapi_accelerator_name"
#: The flags by which options of one group differ.
OPTION_FLAGS: Final = frozenset({PRECISION_FLAG, ACCELERATOR_FLAG})

OPTION_THREADS: Final = (1, 2, 4)
_FIRST_LINE: Final = "Log parameter values verbosely:"
_ECHO: Final = re.compile(r"([^:]{1,80}): \[(.*)\]")
#: Parameters as the program echoes them, by which an option is known.
_ECHOED_SWITCHES: Final = {
    "Use gpu": DelegateName.GPU,
    "Use NNAPI": DelegateName.NNAPI,
    "Use Hexagon": DelegateName.HEXAGON,
    "Use xnnpack": DelegateName.XNNPACK,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionBlock:
    """One option's run: its name and its lines, as printed, after what the program said of all
    runs' flags.
    """

    label: str
    text: bytes


def label_of(case: Case) -> str:
    """Return what the program's summary calls a case."""
    flags = dict(case.flags)
    is_fp16 = flags.get(PRECISION_FLAG, "true") in {"true", "1"}
    return _label(
        case.delegate,
        str(case.threads),
        is_fp16=is_fp16,
        accelerator=flags.get(ACCELERATOR_FLAG, ""),
    )


def options_of(case: Case, *, accelerators: Sequence[str]) -> list[Case]:
    """Return all options of the group that a case belongs to; ``accelerators`` are those that the
    phone has.
    """
    plain = tuple(flag for flag in case.flags if flag[0] not in OPTION_FLAGS)

    def option(delegate: DelegateName, threads: int = 1, *flags: tuple[str, str]) -> Case:
        return dataclasses.replace(
            case, delegate=delegate, threads=threads, flags=tuple(sorted((*plain, *flags)))
        )

    match OPTION_GROUPS[case.delegate]:
        case "cpu":
            return [
                option(name, n)
                for name in (DelegateName.CPU, DelegateName.XNNPACK)
                for n in OPTION_THREADS
            ]
        case "gpu":
            return [
                option(DelegateName.GPU, 1, (PRECISION_FLAG, value)) for value in ("true", "false")
            ]
        case "nnapi":
            named = [
                option(DelegateName.NNAPI, 1, (ACCELERATOR_FLAG, name)) for name in accelerators
            ]
            return [option(DelegateName.NNAPI), *named]
        case _:
            return [option(DelegateName.HEXAGON)]


def split_options(output: bytes) -> list[OptionBlock]:
    """Return the runs in the program's output (both streams in one), in its order.

    A run begins with the first line of its echoed parameters, which name its option. What the
    program says once, before the first, of flags that it doesn't know is put in front of each: none
    of the runs had them.
    """
    blocks: list[list[bytes]] = []
    unconsumed: list[bytes] = []
    for data in output.splitlines(keepends=True):
        text = parse_line(data).text
        if starts_summary(text):
            break
        if text.startswith(_FIRST_LINE):
            blocks.append([*unconsumed])
        elif not blocks and text.startswith(UNCONSUMED):
            unconsumed.append(data)
        if blocks:
            blocks[-1].append(data)
    return [OptionBlock(label=_label_in(block), text=b"".join(block)) for block in blocks]


def summary_rows_in(output: bytes) -> dict[str, LatencySummary]:
    """Return the summary's rows by their names; empty when the program didn't come to its end."""
    rows: dict[str, LatencySummary] = {}
    is_inside = False
    for data in output.splitlines():
        text = parse_line(data).text
        is_inside = is_inside or starts_summary(text)
        row = parse_row(text, in_summary=True) if is_inside else None
        if row is not None and row.stats is not None:
            rows[row.name] = row.stats
    return rows


def _label_in(block: Sequence[bytes]) -> str:
    echoed: dict[str, str] = {}
    for data in block:
        text = parse_line(data).text
        if text.startswith("Loaded model "):
            break
        if match := _ECHO.fullmatch(text):
            echoed.setdefault(match[1], match[2])
    used = (delegate for name, delegate in _ECHOED_SWITCHES.items() if echoed.get(name) == "1")
    # Builds for a computer have no choice of precision and don't echo one.
    is_fp16 = echoed.get("Allow lower precision in gpu", "0") == "1"
    accelerator = echoed.get("NNAPI accelerator name", "")
    threads = echoed.get("Num threads", "?")
    return _label(next(used, DelegateName.CPU), threads, is_fp16=is_fp16, accelerator=accelerator)


def _label(delegate: DelegateName, threads: str, *, is_fp16: bool, accelerator: str) -> str:
    match delegate:
        case DelegateName.GPU:
            return "gpu-fp16" if is_fp16 else "gpu-default"
        case DelegateName.NNAPI:
            return f"nnapi({accelerator or 'w/o accel name'})"
        case DelegateName.HEXAGON:
            return "dsp w/ hexagon"
    return f"cpu w/ {threads} threads" + (" (xnnpack)" if delegate is DelegateName.XNNPACK else "")
