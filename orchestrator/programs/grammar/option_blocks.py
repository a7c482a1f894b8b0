"""The options of ``benchmark_model_performance_options``: their names, their lines and their summary.

A row's name is what was asked for, not what ran: a ``gpu-default`` row of a phone without a GPU holds the CPU's time.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.delegates import delegates_of, flags_of
from orchestrator.delegates.specification import FlagFamily
from orchestrator.programs.grammar.figures import parse_stats
from orchestrator.records.device import DeviceKind
from orchestrator.records.run import LatencySummary
from orchestrator.records.workload import Case, DelegateName

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
        for start, delegate in (("gpu", "gpu"), ("nnapi", "nnapi"), ("dsp", "hexagon"), ("coreml", "coreml")):
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


def parse_row(text: str, *, in_summary: bool, has_percentiles: bool = False) -> SummaryRow | None:
    """Read a row; outside a summary only names that the program is known to use are taken for one.

    ``has_percentiles`` as for :func:`parse_stats`.
    """
    match = _ROW.match(text)
    if not match or not (in_summary or _KNOWN.match(match["name"])) or match["name"].endswith("Timings (microseconds)"):
        return None
    stats = parse_stats(match["stats"], has_percentiles=has_percentiles) if match["stats"] else None
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
#: Parameters as the program echoes them, by which an option is known.
_ECHOED_SWITCHES: Final = {
    "Use gpu": DelegateName.GPU, "Use NNAPI": DelegateName.NNAPI, "Use Hexagon": DelegateName.HEXAGON,
    "Use xnnpack": DelegateName.XNNPACK,
}  # fmt: skip


def label_of(case: Case) -> str:
    """Return what the program's summary calls a case."""
    flags = dict(case.flags)
    is_fp16 = flags.get(PRECISION_FLAG, "true") in {"true", "1"}
    return _label(case.delegate, str(case.threads), is_fp16=is_fp16, accelerator=flags.get(ACCELERATOR_FLAG, ""))


def options_of(case: Case, *, accelerators: Sequence[str]) -> list[Case]:
    """Return all options of the group that a case belongs to; ``accelerators`` are those that the phone has."""
    plain = tuple(flag for flag in case.flags if flag[0] not in OPTION_FLAGS)

    def option(delegate: DelegateName, threads: int = 1, *flags: tuple[str, str]) -> Case:
        return dataclasses.replace(case, delegate=delegate, threads=threads, flags=tuple(sorted((*plain, *flags))))

    match OPTION_GROUPS[case.delegate]:
        case "cpu":
            return [option(name, n) for name in (DelegateName.CPU, DelegateName.XNNPACK) for n in OPTION_THREADS]
        case "gpu":
            return [option(DelegateName.GPU, 1, (PRECISION_FLAG, value)) for value in ("true", "false")]
        case "nnapi":
            named = [option(DelegateName.NNAPI, 1, (ACCELERATOR_FLAG, name)) for name in accelerators]
            return [option(DelegateName.NNAPI), *named]
        case _:
            return [option(DelegateName.HEXAGON)]


def label_in(echoed: Mapping[str, str]) -> str:
    """Return what the program's summary calls a run with these parameters."""
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
