"""The iOS benchmark app: its parameters for a case, and what it showed read against the case that it was meant for.

The app takes no arguments and writes no file: it reads ``benchmark_params.json`` out of its own bundle, a person taps
its button, and it shows its figures in a text view and prints the usual transcript to its console. So the right text
for a case can't be fetched, only recognised: by what the transcript echoes, and where it doesn't by the counts, times
and sizes that any output of the case must have.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Mapping
from typing import Final

from orchestrator.delegates import DELEGATES, flags_of
from orchestrator.delegates.specification import FlagFamily
from orchestrator.errors import OutputParseError, UsageError
from orchestrator.ports import Device, InvocationRequest
from orchestrator.programs.flags.arguments import RESULT_FILE
from orchestrator.programs.flags.checking import check_flags, documented_flags
from orchestrator.programs.foreign_app import SOURCE, not_startable, selected_run
from orchestrator.programs.grammar.output import RunFiles, parse_run, parse_text
from orchestrator.programs.specification import Program
from orchestrator.records.build_spec import OWNED_FLAGS
from orchestrator.records.device import DeviceKind
from orchestrator.records.run import LatencySummary, RawOutput, ToolReport
from orchestrator.records.workload import Case, DelegateName, Pass, ToolName
from orchestrator.units import US_PER_S

_PASS_PARAMS: Final[Mapping[Pass, Mapping[str, str]]] = {
    Pass.TIMING: {},
    Pass.MEMORY: {"report_peak_memory_footprint": "true"},
    # An app can't be told a path that it may write to; the console takes the table.
    Pass.PROFILE: {"enable_op_profiling": "true", "op_profiling_output_mode": "stdout"},
}
#: What the app can be asked to do: it has nowhere to keep a cache that it could be started with and without.
PASSES: Final = frozenset(_PASS_PARAMS)
#: Builds that a flag of the documented tables must be in to be one of the app's.
_IOS_BUILDS: Final = frozenset({"all", "ios", "gpu", "coreml"})
#: Flags of the GPU delegate that only its OpenCL and OpenGL build has, and files that an app can't write.
_NOT_ON_IOS: Final = frozenset(
    {
        "gpu_backend", "gpu_inference_for_sustained_speed", "gpu_invoke_loop_times", "benchmark_name",
        "output_filepath", "output_proto_filepath", "delegate_serialize_dir", "delegate_serialize_token",
        "xnnpack_weight_cache_file_path", "external_delegate_path", "external_delegate_options",
    }
)  # fmt: skip
#: Parameters as the program echoes them, and the flag each stands for.
_ECHOES: Final[Mapping[str, str]] = {
    "Allow fp16": "allow_fp16",
    "Allow lower precision in gpu": "gpu_precision_loss_allowed",
    "Benchmark name": "benchmark_name",
    "CoreML version": "coreml_version",
    "Enable op profiling": "enable_op_profiling",
    "Enable running quant models in gpu": "gpu_experimental_enable_quant",
    "GPU delegate wait type": "gpu_wait_type",
    "Graph": "graph",
    "Input layers": "input_layer",
    "Input shapes": "input_layer_shape",
    "Inter-run delay (seconds)": "run_delay",
    "Max number of delegated partitions": "max_delegated_partitions",
    "Max runs duration (seconds)": "max_secs",
    "Min nodes per partition": "min_nodes_per_partition",
    "Min num runs": "num_runs",
    "Min runs duration (seconds)": "min_secs",
    "Min warmup runs": "warmup_runs",
    "Min warmup runs duration (seconds)": "warmup_min_secs",
    "Num threads": "num_threads",
    "#threads used for CPU inference": "num_threads",
    "Number of prorated runs per second": "run_frequency",
    "Report the peak memory footprint": "report_peak_memory_footprint",
    "Require full delegation": "require_full_delegation",
    "Run w/o invoking kernels": "dry_run",
    "Signature to run": "signature_to_run_for",
    "Use CoreML": "use_coreml",
    "Use gpu": "use_gpu",
    "Use xnnpack": "use_xnnpack",
    "xnnpack_force_fp16": "xnnpack_force_fp16",
}
#: The size is printed with six digits, the proto's with seven.
_SIZE_TOLERANCE: Final = 1e-5
#: A clock that is read between the inferences sees a little more than their sum.
_SPAN_TOLERANCE: Final = 1.02


class IosAppTool:
    """Reads what the app showed; a person starts it."""

    name = ToolName.IOS_APP

    def run(self, device: Device, request: InvocationRequest, *, cancelled: threading.Event | None = None) -> RawOutput:
        """Raise UsageError: nothing can start the app from here."""
        not_startable(self.name, device, request, cancelled)

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Read the run that was selected at import; an unreadable text is a report that says so."""
        try:
            reports = read_results(raw.data(SOURCE), result_pb=raw.data(RESULT_FILE), delegate=case.delegate)
        except OutputParseError as error:
            return ToolReport(outcome="failed", failure_code="no-result", failure_reason=str(error))
        chosen = selected_run(raw)
        if chosen >= len(reports):
            return ToolReport(
                outcome="failed", failure_code="no-result", failure_reason=f"the text holds {len(reports)} runs"
            )
        return reports[chosen]


def benchmark_params(case: Case, run_pass: Pass, *, resource: str) -> dict[str, str]:
    """Return the content of ``benchmark_params.json`` for a case: flags to values, all of them text.

    ``resource`` is the model's file name in the bundle. ``benchmark_name`` carries the case's key: the app echoes it,
    so that a console's text tells which case it belongs to. Raises UsageError for what this app hasn't got.
    """
    if FlagFamily.IOS_APP not in DELEGATES[case.delegate].flags:
        raise UsageError(f"the iOS benchmark app has no delegate {case.delegate}")
    if run_pass not in PASSES:
        raise UsageError(f"the pass {run_pass} can't be done with the iOS benchmark app")
    faults = flag_faults(case.flags)
    if faults:
        raise UsageError("; ".join(faults))
    return {
        "benchmark_name": case_mark(case, run_pass),
        "graph": resource,
        "num_threads": str(case.threads),
        "num_runs": str(case.num_runs),
        "min_secs": f"{case.min_secs:g}",
        "max_secs": f"{case.max_secs:g}",
        "warmup_runs": str(case.warmup_runs),
        "warmup_min_secs": f"{case.warmup_min_secs:g}",
        **flags_of(case.delegate, FlagFamily.IOS_APP),
        **_PASS_PARAMS[run_pass],
        **dict(case.flags),
    }


def case_mark(case: Case, run_pass: Pass) -> str:
    """Return the name under which a case and pass are known to the app."""
    return f"benchfarm-{case.case_key}-{run_pass}"


def flag_faults(flags: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return what is wrong with a plan's further flags for this app, a sentence each."""
    documented = documented_flags(FlagFamily.BENCHMARK_MODEL)
    known = {
        name: spec
        for name, spec in documented.flags.items()
        if spec.build in _IOS_BUILDS and name not in _NOT_ON_IOS and name not in OWNED_FLAGS
    }
    faults = [f"the iOS benchmark app has no flag {name}" for name, _ in flags if name not in known]
    # What a flag needs may be one that the delegate implies; whether it is effective, the delegate's own flags show.
    words = [f"--{name}={value}" for name, value in flags if name in known]
    checked = check_flags(words, documented)
    return (*faults, *(fault.message for fault in checked if fault.code != "ineffective-flag"))


def read_results(source: bytes, *, result_pb: bytes = b"", delegate: DelegateName) -> tuple[ToolReport, ...]:
    """Return one report for each run in what the app left behind, its delegate judged against the one asked for.

    Args:
        source: the text of the result view, or the console's; several runs in a row are several reports.
        result_pb: a BenchmarkResult proto, alone or of the one run that ``source`` holds.
        delegate: the one that was asked for.

    Raises:
        OutputParseError: there is no run in it, or a proto stands beside a text that it can't belong to.
    """
    written = RunFiles(result_pb=result_pb)
    if not source:
        report = parse_run(
            stdout=b"", stderr=b"", exit_code=None, timed_out=False, files=written, requested=delegate.value
        )
        if report.inference_mean_us is None:
            raise OutputParseError("the file isn't a BenchmarkResult with an average")
        return (_unidentified(report, delegate),)
    reports = parse_text(source, requested=delegate.value)
    if result_pb:
        if len(reports) != 1 or not reports[0].echoed:
            raise OutputParseError("a result proto beside a text belongs to the console's text of one run")
        return (
            parse_run(
                stdout=source, stderr=b"", exit_code=None, timed_out=False, files=written,
                requested=delegate.value,
            ),
        )  # fmt: skip
    return tuple(report if report.echoed else _unidentified(report, delegate) for report in reports)


def _unidentified(report: ToolReport, delegate: DelegateName) -> ToolReport:
    """Mark a report whose text names neither model, delegate nor threads."""
    return dataclasses.replace(
        report,
        delegate=dataclasses.replace(report.delegate, requested=delegate.value),
        extra={**report.extra, "unidentified": "the text names neither model, delegate nor threads"},
    )


def mismatches(report: ToolReport, params: Mapping[str, str], *, model_size_bytes: int) -> tuple[str, ...]:
    """Return what shows that a report isn't of the case that these parameters were exported for, a sentence each."""
    faults = [fault for echo, value in report.echoed.items() if (fault := _echo_fault(echo, value, params))]
    size_mb = model_size_bytes / 1e6
    if report.model_size_mb is not None and not math.isclose(report.model_size_mb, size_mb, rel_tol=_SIZE_TOLERANCE):
        faults.append(f"its model has {report.model_size_mb:g} MB, the case's has {size_mb:g} MB")
    if report.outcome == "ok":
        has_pauses = bool({"run_delay", "run_frequency"} & params.keys())
        most_s = float(params["max_secs"])
        for what, summary, runs, span in (
            ("measurement", report.inference, "num_runs", "min_secs"),
            ("warm-up", report.warmup, "warmup_runs", "warmup_min_secs"),
        ):
            if summary is not None:
                faults += _count_faults(
                    what, summary, int(params[runs]), float(params[span]), most_s, has_pauses=has_pauses
                )
    return tuple(faults)


def _echo_fault(echo: str, value: str, params: Mapping[str, str]) -> str:
    flag = _ECHOES.get(echo)
    if flag is None:
        return ""
    if flag == "graph":
        value = value.rpartition("/")[2]
    wanted = params.get(flag, documented_flags(FlagFamily.BENCHMARK_MODEL).flags[flag].default)
    if _plain(value) == _plain(wanted):
        return ""
    return f"it says '{echo}: [{value}]', the case has {wanted or 'none'}"


def _plain(value: str) -> str | float:
    """Return a value such that equal ones are equal: ``1`` and ``true``, ``1`` and ``1.0``."""
    word = {"true": "1", "false": "0"}.get(value.lower(), value)
    try:
        return float(word)
    except ValueError:
        return word


def _count_faults(
    what: str, summary: LatencySummary, least: int, least_s: float, most_s: float, *, has_pauses: bool
) -> list[str]:
    """Return what a phase's count and times show; it goes on until both its least are reached, or the most."""
    if summary.mean_us is None or summary.count == 0:
        return []
    spent_s = summary.count * summary.mean_us / US_PER_S
    last_s = (summary.max_us or summary.mean_us) / US_PER_S
    if summary.count < least and not has_pauses and (spent_s + last_s) * _SPAN_TOLERANCE < most_s:
        return [f"its {what} has {summary.count} inferences, the case asks for at least {least}"]
    if summary.count > least and spent_s - last_s > least_s * _SPAN_TOLERANCE:
        did = f"its {what} took {spent_s:.3g} s for {summary.count} inferences"
        return [f"{did}, the case asks for {least} and {least_s:g} s"]
    return []


PROGRAM = Program(
    name=ToolName.IOS_APP,
    tool=IosAppTool,
    kinds=frozenset({DeviceKind.IOS}),
    family=FlagFamily.IOS_APP,
    title="TFLite iOS benchmark app",
)
