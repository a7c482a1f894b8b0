"""TensorFlow's iOS benchmark app: the console's text of a run that somebody started by a tap.

The app reads its parameters from its bundle and echoes them to its console, so that a text shows
what it is of. The text of its result view names neither model, delegate nor threads, and is no
result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from orchestrator.delegates import DELEGATES
from orchestrator.delegates.specification import FlagFamily
from orchestrator.errors import OutputParseError
from orchestrator.extensions.interop.texts.output import parse_text
from orchestrator.programs.foreign_app import ImportedTool
from orchestrator.programs.specification import Program
from orchestrator.records.case import DelegateName, ToolName
from orchestrator.records.run import ToolReport

#: Flags of delegates as the program echoes them.
_DELEGATE_ECHOES: Final = {
    "Use CoreML": "use_coreml",
    "Use gpu": "use_gpu",
    "Use xnnpack": "use_xnnpack",
}
#: Further parameters that make another case: echo -> flag.
_FLAG_ECHOES: Final = {
    "Allow fp16": "allow_fp16",
    "Allow lower precision in gpu": "gpu_precision_loss_allowed",
    "CoreML version": "coreml_version",
    "Enable running quant models in gpu": "gpu_experimental_enable_quant",
    "GPU delegate wait type": "gpu_wait_type",
    "Input layers": "input_layer",
    "Input shapes": "input_layer_shape",
    "Inter-run delay (seconds)": "run_delay",
    "Max number of delegated partitions": "max_delegated_partitions",
    "Min nodes per partition": "min_nodes_per_partition",
    "Number of prorated runs per second": "run_frequency",
    "Require full delegation": "require_full_delegation",
    "Signature to run": "signature_to_run_for",
    "xnnpack_force_fp16": "xnnpack_force_fp16",
}
#: What a plan has keys for: echo -> field of a case.
_SETTING_ECHOES: Final = {
    "Min num runs": "num_runs",
    "Min warmup runs": "warmup_runs",
    "Min runs duration (seconds)": "min_secs",
    "Max runs duration (seconds)": "max_secs",
    "Min warmup runs duration (seconds)": "warmup_min_secs",
}
#: With one of these the figures are of something else than the model's inferences.
_NO_TIMING: Final = (
    "Enable op profiling",
    "Report the peak memory footprint",
    "Run w/o invoking kernels",
)


def read_console(text: str) -> list[ToolReport]:
    """Return one report for each run in a console's text, judged by the delegate that it echoes;
    none without a run.
    """
    source = text.encode()
    try:
        requested = [_delegate(report).value for report in parse_text(source)]
    except OutputParseError:
        return []
    judged = {delegate: parse_text(source, requested=delegate) for delegate in set(requested)}
    reports = [judged[delegate][place] for place, delegate in enumerate(requested)]
    return [_without_path(report) for report in reports if report.echoed]


def _without_path(report: ToolReport) -> ToolReport:
    """Leave out the path in the app's bundle: the file there may have any name; the size identifies
    the model.
    """
    return replace(
        report, extra={key: value for key, value in report.extra.items() if key != "graph"}
    )


def scenario_of(report: ToolReport) -> dict[str, Any]:
    """Return the fields of a case that a run's echoed parameters mean: delegate, threads, flags and
    settings; all else has the program's defaults.

    Raises OutputParseError for a run that measured no latency.
    """
    if odd := next((echo for echo in _NO_TIMING if _is_on(report.echoed, echo)), None):
        raise OutputParseError(f"it says '{odd}: [1]', so its times are no latency")
    threads = report.echoed.get("Num threads", "")
    try:
        settings = {
            field: int(report.echoed[echo])
            if field.endswith("runs")
            else float(report.echoed[echo])
            for echo, field in _SETTING_ECHOES.items()
            if echo in report.echoed
        }
        flags = {
            flag: report.echoed[echo]
            for echo, flag in _FLAG_ECHOES.items()
            if echo in report.echoed
        }
        return {
            "delegate": _delegate(report),
            "threads": int(threads) if threads else -1,
            "flags": tuple(sorted(flags.items())),
            **settings,
        }
    except ValueError as error:
        raise OutputParseError(f"a parameter that it echoes can't be read: {error}") from error


def _is_on(echoed: Mapping[str, str], echo: str) -> bool:
    return echoed.get(echo, "").lower() in {"1", "true"}


def _delegate(report: ToolReport) -> DelegateName:
    """Return the delegate whose flags the run echoes; the builtin kernels where it echoes none."""
    given = {flag for echo, flag in _DELEGATE_ECHOES.items() if _is_on(report.echoed, echo)}
    asked = {name: own.flags.get(FlagFamily.IOS_APP, {}) for name, own in DELEGATES.items()}
    fitting = (
        name for name, flags in asked.items() if any(flags.get(flag) == "true" for flag in given)
    )
    return next(fitting, DelegateName.CPU)


PROGRAM = Program(
    name=ToolName.IOS_APP,
    tool=lambda: ImportedTool(ToolName.IOS_APP, read_console),
    has_flags=False,
    title="TFLite iOS benchmark app",
)
