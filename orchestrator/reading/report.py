"""The report of one of our runs, from its output, the phone's log and the files that it wrote: which
figures count, how it ended, where the operators ran.

The input is known to be of one process of one program, so that it isn't searched or split.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final, TypeVar

from orchestrator.delegates.evidence import family, is_delegate_kernel, read_request
from orchestrator.delegates.judging import Judge, RuntimeNodes
from orchestrator.errors import OutputParseError
from orchestrator.frozen import frozen
from orchestrator.reading.failures import Failure, SystemLog, signal_failure
from orchestrator.reading.lines import (
    iterate_blocks,
    mean_as_printed,
    program_lines,
    without_foreign,
)
from orchestrator.reading.profile import (
    OperatorProfile,
    decode_op_profile,
    decode_result,
    decode_runtime_info,
    parse_op_profile,
)
from orchestrator.reading.transcript import Transcript, benchmark_transcript, logged_processes
from orchestrator.records.run import (
    SETUP_CODES,
    DelegateEvidence,
    DelegateTruth,
    LatencySummary,
    OperatorTime,
    OperatorTypeTime,
    ToolReport,
)
from orchestrator.units import US_PER_MS, US_PER_S

_LOG_CUT: Final = "the log ends before its result line: the figures are the result file's"
#: The log prints six significant digits; two roundings of one figure may differ by this much.
_LOG_TOLERANCE: Final = 1.5e-5
#: LiteRT's banner has hundredths of a millisecond.
_BANNER_TOLERANCE_US: Final = 5.01
#: Failure codes without a cause.
_CAUSELESS_CODES: Final = frozenset({"benchmark-failed", "aborted"})
#: The progress of a program by its number of "Running benchmark" lines.
_PROGRESS: Final = (
    "its warm-up hadn't begun",
    "its warm-up had begun",
    "its measurement had begun",
)
#: A shell's exit code for the last of Linux's signals.
_LAST_SIGNAL_CODE: Final = 128 + 64
_NO_RESULT: Final = ToolReport(outcome="ok")
_NO_PROFILE: Final = OperatorProfile()
_Decoded = TypeVar("_Decoded")
_Data = TypeVar("_Data", bytes, str)
_Row = TypeVar("_Row", OperatorTime, OperatorTypeTime)


@frozen
class RunOutput:
    """What is left of one of our runs; empty where it printed or wrote nothing."""

    stdout: bytes = b""
    stderr: bytes = b""
    #: The phone's log of that time; for an app this is the only text.
    logcat: bytes = b""
    #: None when there is none (an app) or it isn't known.
    exit_code: int | None = None
    #: Whether benchfarm ended the run at its deadline.
    timed_out: bool = False
    #: A BenchmarkResult, a ModelRuntimeDetails and a BenchmarkProfilingData, which it wrote.
    result_pb: bytes = b""
    runtime_info_pb: bytes = b""
    op_profile_pb: bytes = b""


def parse_run(
    output: RunOutput,
    *,
    requested: str = "",
    program: str = "",
    flags: Mapping[str, str] = MappingProxyType({}),
) -> ToolReport:
    """Return the report of one of our runs, also for incomplete or unreadable output.

    Args:
        output: what it printed and wrote.
        requested: the requested delegate; from the flags in the output when empty.
        program: the file name of a native program, which is its process's name in the phone's log.
        flags: the plan's; not every program echoes them.
    """
    console = Transcript()
    for data in (output.stdout, output.stderr):
        for line in program_lines(data):
            console.feed(line)
    system = SystemLog(program=program)
    blocks = (without_foreign(block) for block in iterate_blocks(output.logcat))
    logged = logged_processes((line for block in blocks for line in program_lines(block)), system)
    transcript = benchmark_transcript(console, logged)
    transcript.flags = {**flags, **transcript.flags}
    return build_report(transcript, system, output, requested=requested)


@dataclass(slots=True)
class _Run:
    """The intermediate state of building a run's report."""

    log: Transcript
    output: RunOutput
    warmup: LatencySummary | None = None
    inference: LatencySummary | None = None
    #: The mean of the measured inferences in microseconds.
    mean: float | None = None
    is_complete: bool = False


def build_report(
    log: Transcript, system: SystemLog, output: RunOutput, *, requested: str = ""
) -> ToolReport:
    """Return the report of one run, whatever its lines are.

    ``requested``: the requested delegate, where the caller knows it.
    """
    doubts: list[str] = []
    result = _decoded(decode_result, output.result_pb, "result proto", doubts) or _NO_RESULT
    of_signature = partial(decode_runtime_info, signature=log.signature)
    runtime = _decoded(of_signature, output.runtime_info_pb, "runtime info", doubts)
    file_profile = _decoded(decode_op_profile, output.op_profile_pb, "operator profile", doubts)
    run = _Run(log, output)
    run.warmup, run.inference = _warmup_and_inference(log)
    doubts += _contradictions(log, run.warmup, run.inference)
    if log.failures.invoke_failure:
        # Failing calls are timed too, and their times mean nothing.
        run.warmup = run.inference = None
    run.mean = _inference_mean(log, run.inference)
    is_log_cut = False
    if (proto := result.inference) is not None:
        doubts += _compare_with_proto(run, result, proto)
        is_log_cut = not _has_result_line(log) and not log.failures.ended_badly
        if is_log_cut or (run.inference is not None and run.mean is not None and not log.stats):
            # The banner's figures are rounded, the file's aren't.
            run.inference, run.mean = proto, proto.mean_us
    run.is_complete = _has_result_line(log) or (
        result.inference is not None and run.inference is not None and run.mean is not None
    )
    failure = _find_failure(run, system)
    if failure is not None and failure.code in _CAUSELESS_CODES:
        failure = _with_last_line(failure, log, system)
    outcome = "ok" if failure is None else failure.outcome
    if outcome == "failed":
        run.mean = None
    delegate = _judge(
        log,
        runtime,
        has_result=outcome == "ok" and run.is_complete,
        ended_badly=outcome in {"failed", "crashed"},
        requested=requested,
    )
    profile = file_profile or _NO_PROFILE
    if file_profile is None and (log.profile_proto or log.has_profile):
        profile = _plausible_profile(_profile_in_log(log, doubts), run, doubts)
    if profile.blocks:
        profile = _mark_cycles(profile, log)
        delegate = _delegate_in_profile(delegate, profile, log)
    failure = failure or _failed_setup(log, delegate)
    extra = _extra(log)
    session = log.session_us if run.is_complete or (log.session_us or 0) < US_PER_S else None
    peak = log.peak_memory_mib
    return ToolReport(
        outcome=outcome,
        failure_code=failure.code if failure else "",
        failure_reason=failure.reason if failure else "",
        # The session's line has six digits: from a second up it differs from the result line's
        # figure.
        init_us=_first(log.timings.get("init"), session, log.banner.get("init"), result.init_us),
        first_inference_us=_first(
            _first_us(run), log.banner.get("warmup_first"), result.first_inference_us
        ),
        warmup_mean_us=_warmup_mean_us(run),
        inference_mean_us=run.mean,
        warmup=run.warmup,
        inference=run.inference,
        init_memory_mib=_first(
            log.memory.get("init"), log.banner.get("init_footprint_mb"), result.init_memory_mib
        ),
        overall_memory_mib=_first(
            log.memory.get("overall"),
            log.banner.get("overall_footprint_mb"),
            result.overall_memory_mib,
        ),
        peak_memory_mib=_first(peak, log.banner.get("peak_memory_mb"), result.peak_memory_mib),
        model_size_mb=_first(log.model_size_mb, result.model_size_mb),
        delegate=delegate,
        echoed=log.echoed,
        unconsumed_flags=tuple(log.unconsumed),
        operators=profile.operators,
        operator_types=profile.types,
        profile_blocks=profile.blocks,
        disagreements=tuple(doubts),
        extra={**extra, "log_cut": _LOG_CUT} if is_log_cut and not log.is_empty else extra,
    )


def _decoded(
    read: Callable[[_Data], _Decoded], data: _Data, label: str, doubts: list[str]
) -> _Decoded | None:
    try:
        return read(data) if data else None
    except OutputParseError as error:
        doubts.append(f"the {label} can't be read: {error}")
        return None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _mean(summary: LatencySummary) -> float | None:
    # A single sample is printed in full, its mean elsewhere with six digits: use the latter always.
    return None if summary.mean_us is None else float(mean_as_printed(summary))


def _has_no_warmup(run: _Run) -> bool:
    """Whether a run had no warm-up: its result line then has zeros."""
    if run.warmup is not None:
        return run.warmup.count == 0
    timings = run.log.timings
    return timings.get("first") == 0 and timings.get("warmup") == 0


def _first_us(run: _Run) -> float | None:
    first = None if _has_no_warmup(run) else run.log.timings.get("first")
    return _first(first, run.warmup.first_us if run.warmup is not None else None)


def _warmup_mean_us(run: _Run) -> float | None:
    if _has_no_warmup(run):
        return None
    if (mean := run.log.timings.get("warmup")) is not None:
        return mean
    return _mean(run.warmup) if run.warmup is not None else run.log.banner.get("warmup_avg")


def _has_result_line(log: Transcript) -> bool:
    return (
        "inference" in log.timings
        or log.short_result_us is not None
        or "inference_avg" in log.banner
        or log.banner_failed
    )


def _warmup_and_inference(log: Transcript) -> tuple[LatencySummary | None, LatencySummary | None]:
    """Return the statistics of warm-up and measurement, told apart by the result line, else by the
    lines before each.

    The two statistics lines look the same. A run that was killed has only the first, and a paste
    may hold only the second, so a single one counts only if other lines show which it is.
    """
    if not log.stats:
        return None, _banner_summary(log)
    if not _has_result_line(log):
        if not (log.is_loaded or log.has_start or log.session_us is not None):
            return None, None
        warmup, inference = (
            next((each for each, stats_phase in log.stats if stats_phase == phase), None)
            for phase in (1, 2)
        )
        return warmup, inference
    last = log.stats[-1][0]
    if len(log.stats) > 1 or not log.timings:
        return log.stats[-2][0] if len(log.stats) > 1 else None, last
    mean = mean_as_printed(last)
    measured, warm = (
        f"{log.timings[name]:.6g}" if name in log.timings else ""
        for name in ("inference", "warmup")
    )
    if mean and mean != measured and mean == warm:
        return last, None
    if last.count and mean and measured and mean != measured:
        return None, None
    return None, last


def _banner_summary(log: Transcript) -> LatencySummary | None:
    """Return the figures of LiteRT's banner, which are rounded to 10 us, where no statistics line
    was printed.
    """
    count = log.banner_runs.get("inference_avg")
    if count is None or "inference_avg" not in log.banner:
        return None
    names = ("mean", "min", "max", "std", "median", "p5", "p95")
    figures = {name: log.banner.get(f"inference_{name}") for name in names}
    figures["mean"] = log.banner["inference_avg"]
    return LatencySummary(count=count, **{f"{name}_us": value for name, value in figures.items()})


def _inference_mean(log: Transcript, inference: LatencySummary | None) -> float | None:
    if "inference" in log.timings:
        return log.timings["inference"] if inference is None or inference.count != 0 else None
    if log.short_result_us is not None:
        return log.short_result_us
    if inference is not None and inference.count != 0:
        return _mean(inference)
    return log.banner.get("inference_avg") if not log.stats else None


def _contradictions(
    log: Transcript, warmup: LatencySummary | None, inference: LatencySummary | None
) -> list[str]:
    """Return the contradictions between the result line and the statistics of its inferences."""
    mean, stats = log.timings.get("inference"), inference
    if stats is None and warmup is None and log.stats:
        stats = log.stats[-1][0]
    if stats is None or stats.count == 0:
        return []
    contradictions = []
    if mean is not None and stats.mean_us is not None and not _is_same_mean(mean, stats.mean_us):
        contradictions.append(
            f"mean inference (us): the result line says {mean:.12g}, the statistics {stats.mean_us:.12g}"
        )
    mean = _first(mean, log.short_result_us, stats.mean_us)
    low, high = stats.min_us, stats.max_us
    if mean is not None and low is not None and high is not None:
        is_between = low <= mean <= high or _is_same_mean(low, mean) or _is_same_mean(mean, high)
        if not is_between:
            contradictions.append(
                f"mean inference (us): {mean:.12g} isn't between the minimum, {low:.12g}, and the maximum, {high:.12g}"
            )
    return contradictions


def _is_same_mean(mean: float, other: float) -> bool:
    return math.isclose(mean, other, rel_tol=_LOG_TOLERANCE, abs_tol=0.01)


def _compare_with_proto(run: _Run, result: ToolReport, proto: LatencySummary) -> list[str]:
    """Return the contradictions between the result proto and the log."""
    # Without statistics the log's figures are those of LiteRT's banner.
    rounded_us = 0.01 if run.log.stats else _BANNER_TOLERANCE_US
    pairs: list[tuple[str, float | None, float | None, float]] = [
        ("mean inference (us)", run.mean, proto.mean_us, _LOG_TOLERANCE),
        ("init (us)", run.log.timings.get("init"), result.init_us, 1e-6),
        ("first inference (us)", run.log.timings.get("first"), result.first_inference_us, 1e-6),
    ]
    if run.inference is not None:
        pairs += [
            ("number of inferences", run.inference.count, proto.count, 0.0),
            ("minimum (us)", run.inference.min_us, proto.min_us, 1e-6),
            ("maximum (us)", run.inference.max_us, proto.max_us, 1e-6),
            ("median (us)", run.inference.median_us, proto.median_us, 1e-6),
        ]
    return [
        f"{name}: the log says {log:.12g}, the result proto {other:.12g}"
        for name, log, other, tolerance in pairs
        if log is not None
        and other is not None
        and not math.isclose(log, other, rel_tol=tolerance, abs_tol=rounded_us)
    ]


def _failed_setup(log: Transcript, delegate: DelegateEvidence) -> Failure | None:
    """Return why a delegate wasn't created, where a line shows it; the run itself succeeded on the
    CPU.
    """
    best = log.failures.best
    if (
        delegate.truth is not DelegateTruth.FELL_BACK
        or best is None
        or not best.code.startswith(SETUP_CODES)
    ):
        return None
    return Failure(code=best.code, reason=best.reason, outcome="ok")


def _find_failure(run: _Run, system: SystemLog) -> Failure | None:
    """Return why there is no result, or the failure after it; None for a run without failures."""
    log, exit_code = run.log, run.output.exit_code
    text_failure, by_code = log.failures.text_failure(), signal_failure(exit_code)
    # A result line counts unless something else shows a failure; a signal is reported beside it.
    has_failed = exit_code is not None and (0 < exit_code < 124 or exit_code > _LAST_SIGNAL_CODE)
    is_unharmed = not has_failed and not (log.failures.best and log.is_ended)
    if run.is_complete and not log.failures.invoke_failure and is_unharmed:
        return _failure_after_result(run, by_code)
    logged = _crash_in_system_log(log, system)
    if run.output.timed_out:
        hung = (
            f"; {logged.reason}"
            if logged is not None and logged.code == "app-not-responding"
            else ""
        )
        reason = f"stopped at its time limit; {_PROGRESS[min(log.phases, 2)]}{hung}"
        return Failure(code="timed-out", reason=reason, outcome="truncated")
    # A file that can't be mapped is named by a number: any denial of the process may explain it.
    reason_filter = (
        text_failure.reason
        if text_failure is not None and text_failure.code != "model-unreadable"
        else ""
    )
    denial = system.find_denial(log.pid, reason_filter)
    if text_failure is not None:
        if denial is not None:
            # The program names the file that it couldn't open, and SELinux's line the reason.
            return Failure(code=denial.code, reason=f"{denial.reason}; {text_failure.reason}")
        if logged is not None and log.failures.best is None:
            # The shell printed one word ("Killed"); the phone's log has the cause or the place.
            return logged
        if by_code is not None and by_code.outcome == "crashed" and not log.failures.is_fatal:
            return Failure(
                code=text_failure.code,
                reason=f"{text_failure.reason} then {by_code.reason}",
                outcome="crashed",
            )
        return text_failure
    if logged is not None and (by_code is None or by_code.code != "program-not-found"):
        return logged
    if by_code is not None:
        return by_code
    if exit_code == 124:
        return Failure(code="timed-out", reason="stopped at its time limit", outcome="truncated")
    if denial is not None:
        return Failure(code=denial.code, reason=denial.reason)
    if exit_code:
        return Failure(code="benchmark-failed", reason=f"exit code {exit_code}")
    reason = "the result line is cut off" if log.is_result_cut else "no result line"
    return Failure(code="no-result", reason=reason, outcome="truncated")


def _with_last_line(failure: Failure, log: Transcript, system: SystemLog) -> Failure:
    """Return a failure with the abort message of its tombstone and the program's last line."""
    reason, crash = failure.reason, system.find_end(log.pid)
    if crash is not None and crash.abort_message:
        reason += f"; abort message: {crash.abort_message}"
    for line in log.last_lines:
        if line and line not in failure.reason and failure.reason not in line:
            reason += f"; last line: {line[:300]}"
            break
    return dataclasses.replace(failure, reason=reason)


def _failure_after_result(run: _Run, by_code: Failure | None) -> Failure | None:
    """Return the failure of a run that printed its complete result; None for none."""
    log, inference, mean = run.log, run.inference, run.mean
    no_inference = log.banner_failed or (mean == 0 and not log.stats)
    if inference.count == 0 if inference is not None else no_inference:
        return Failure(code="no-inferences", reason="count=0: no inference was made")
    if mean == 0 and (inference is None or not inference.max_us):
        return Failure(code="all-zero", reason="every inference took 0 us")
    if run.output.timed_out or run.output.exit_code == 124:
        return Failure(
            code="hung-at-exit", reason="the result is whole, the program didn't exit", outcome="ok"
        )
    if by_code is not None:
        code = "crashed-after-result" if by_code.outcome == "crashed" else "hung-at-exit"
        return Failure(code=code, reason=by_code.reason, outcome="ok")
    return None


def _crash_in_system_log(log: Transcript, system: SystemLog) -> Failure | None:
    crash = system.find_end(log.pid)
    if crash is None:
        return None
    reason = "; ".join(part for part in (crash.reason, *crash.frames[:3]) if part)
    return Failure(code=crash.code, reason=reason, outcome=crash.outcome)


def _judge(
    log: Transcript,
    runtime: RuntimeNodes | None,
    *,
    has_result: bool,
    ended_badly: bool,
    requested: str,
) -> DelegateEvidence:
    request = read_request(log)
    if requested:
        request = dataclasses.replace(request, delegates=(requested,), is_explicit=True)
    has_session = log.session_us is not None
    return Judge(
        clues=log.delegates,
        request=request,
        runtime=runtime,
        has_result=has_result,
        has_started=has_result or has_session,
        is_whole=log.is_loaded and has_session,
        ended_badly=ended_badly,
    ).evidence()


def _profile_in_log(log: Transcript, doubts: list[str]) -> OperatorProfile:
    if log.profile is not None and log.profile.left_out:
        doubts.append(
            f"the operator tables have {log.profile.left_out} more rows, which aren't kept"
        )
    text = "\n".join(log.profile_proto)
    in_text = _decoded(parse_op_profile, text, "operator profile in the log", doubts)
    return in_text or (log.profile.finish() if log.profile is not None else _NO_PROFILE)


def _plausible_profile(profile: OperatorProfile, run: _Run, doubts: list[str]) -> OperatorProfile:
    """Return a log's operator tables if their sum is plausible for the run's inferences; else no
    tables, and a doubt with the reason.

    The operators' time is a part of each inference: it can't be longer, and is much shorter only
    for a small model. A run's tables are of as many inferences as its statistics; LiteRT's count
    the warm-up too.
    """
    log, mean = run.log, run.mean
    total = next(
        (
            block.timings
            for block in profile.blocks
            if block.phase == "run" and block.block != "delegate" and block.timings
        ),
        None,
    )
    if mean is None or total is None or total.mean_us is None:
        return profile
    operators = total.mean_us
    counts = {total.count, *(stats.count for stats, _ in log.stats[-1:])}
    is_more = operators > 1.25 * mean + US_PER_MS
    is_of_others = operators < mean / 2 and len(counts) > 1 and not log.is_litert
    if not (is_more or is_of_others or operators < mean / 50 - 10 * US_PER_MS):
        return profile
    doubts.append(
        f"the operator tables are of another run: {operators:.12g} us an inference, the result line says {mean:.12g}"
    )
    return _NO_PROFILE


def _mark_cycles(profile: OperatorProfile, log: Transcript) -> OperatorProfile:
    """Mark the DSP's rows: with Hexagon profiling, the delegate's own rows are in cycles, not in
    microseconds.
    """
    if not any(
        name.lower() == "hexagon profiling" and value == "1" for name, value in log.echoed.items()
    ):
        return profile
    return OperatorProfile(
        operators=_cycle_rows(profile.operators),
        types=_cycle_rows(profile.types),
        blocks=profile.blocks,
    )


def _cycle_rows(rows: tuple[_Row, ...]) -> tuple[_Row, ...]:
    return tuple(
        dataclasses.replace(row, unit="cycles") if row.block.startswith("delegate") else row
        for row in rows
    )


def _delegate_in_profile(
    evidence: DelegateEvidence, profile: OperatorProfile, log: Transcript
) -> DelegateEvidence:
    """Return the evidence with delegates from a profile's rows, where the log has none."""
    if evidence.lines or log.echoed:
        return evidence
    rows = [row for row in profile.operators if row.phase == "run" and row.block == ""]
    kernels = [row for row in rows if is_delegate_kernel(row.node_type)]
    names = {family(row.node_type) for row in kernels}
    # Only a table with its totals is certainly complete.
    is_whole = any(block.phase == "run" and block.timings is not None for block in profile.blocks)
    if len(names) != 1 or not is_whole:
        return evidence
    return dataclasses.replace(
        evidence,
        actual=names.pop(),
        truth=DelegateTruth.FULL if len(kernels) == len(rows) else DelegateTruth.PARTIAL,
        kernels=len(kernels),
        lines=tuple(f"{row.node_type} {row.name}" for row in kernels),
    )


def _extra(log: Transcript) -> dict[str, float | str]:
    threads = log.echoed.get("Num threads") or log.flags.get("num_threads") or ""
    partitions = log.echoed.get("Max number of delegated partitions", "")
    extra: dict[str, float | str | None] = {
        "pid": None if log.pid is None else float(log.pid),
        "title": log.title or None,
        "graph": log.echoed.get("Graph")
        or log.flags.get("graph")
        or log.flags.get("model")
        or log.loaded
        or None,
        "signature": log.signature or None,
        "taskset": log.flags.get("taskset"),
        "num_threads": float(threads) if _is_count(threads.removeprefix("-")) else None,
        "max_delegated_partitions": float(partitions) if _is_count(partitions) else None,
    }
    for key, value in log.banner.items():
        if key == "init" or key.startswith(("warmup_", "inference_")):
            extra[f"reported_{key}_ms"] = float(f"{value / US_PER_MS:.12g}")
        elif key == "throughput_mb_s":
            extra[key] = value
    extra["peak_available"] = "no" if log.is_peak_unavailable else None
    extra["fully_accelerated"] = log.fully_accelerated or None
    extra["rpc_execute_us"] = log.rpc_us
    return {name: value for name, value in extra.items() if value is not None}


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
