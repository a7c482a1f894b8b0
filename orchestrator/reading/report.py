"""The report of one of our runs, from its output, the phone's log and the files that it wrote: which
figures count, how it ended, where the operators ran.

The input is known to be of one process of one program, so that it isn't searched or split.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final, TypeVar

from orchestrator.delegates.evidence import family, is_delegate_kernel, read_request
from orchestrator.delegates.judging import Judge, RuntimeNodes
from orchestrator.errors import OutputParseError
from orchestrator.reading.failures import Failure, SystemLog, signal_failure
from orchestrator.reading.lines import (
    Line,
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
from orchestrator.reading.transcript import START, Transcript
from orchestrator.records.run import (
    PROFILE_FILE,
    RESULT_FILE,
    RUNTIME_INFO_FILE,
    SETUP_CODES,
    DelegateEvidence,
    DelegateTruth,
    LatencySummary,
    OperatorTime,
    OperatorTypeTime,
    RawOutput,
    ToolReport,
)
from orchestrator.units import US_PER_MS, US_PER_S

#: A native program's file name in its command line, before the first flag; it is its process's name
#: in the phone's log.
_PROGRAM: Final = re.compile(r"/([^/\s']+)'? --")
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


def parse_run(
    raw: RawOutput, *, requested: str = "", flags: Mapping[str, str] = MappingProxyType({})
) -> ToolReport:
    """Return the report of one of our runs, also for incomplete or unreadable output.

    Args:
        raw: what it printed and wrote; for an app the phone's log is the only text.
        requested: the requested delegate; from the flags in the output when empty.
        flags: the plan's; not every program echoes them.
    """
    console = Transcript()
    for name in ("stdout", "stderr"):
        for line in program_lines(raw.data(name)):
            console.feed(line)
    program = _PROGRAM.search(raw.command)
    system = SystemLog(program=program[1] if program is not None else "")
    blocks = (without_foreign(block) for block in iterate_blocks(raw.data("logcat")))
    logged = _logged_processes((line for block in blocks for line in program_lines(block)), system)
    log = _benchmark_transcript(console, logged)
    log.flags = {**flags, **log.flags}
    log.exit_code, log.timed_out = raw.exit_code, raw.timed_out
    files = {item.name: item.data for item in raw.attachments}
    return build_report(log, system, files, requested=requested)


def _logged_processes(lines: Iterable[Line], system: SystemLog) -> list[Transcript]:
    """Return a transcript of each of our processes in a log, in the order of their first lines; feed
    other lines to ``system``.
    """
    transcripts: list[Transcript] = []
    by_pid: dict[int | None, Transcript] = {}
    for line in lines:
        if line.is_foreign:
            system.feed(line)
            if line.tag != "ExecutionPlan":
                continue
        transcript = by_pid.get(line.pid)
        if transcript is None or (line.text.startswith(START) and transcript.is_started()):
            # A process of an app may run the benchmark again.
            transcript = by_pid[line.pid] = Transcript(pid=line.pid)
            transcripts.append(transcript)
        if line.is_foreign:
            transcript.delegates.read_system_line(f"ExecutionPlan: {line.text}")
        else:
            transcript.feed(line)
    return transcripts


def _benchmark_transcript(console: Transcript, logged: list[Transcript]) -> Transcript:
    """Return the benchmark's transcript: the console's, or for an app its process's in the log.

    For an app, the console has the activity manager's answer, which counts when it is a refusal.
    """
    if not console.is_empty or console.failures.ended_badly:
        return console
    candidates = (
        [log for log in logged if log.has_start]
        or [log for log in logged if not log.is_empty]
        or [console]
    )
    # A process that only fills caches makes no inference.
    return max(candidates, key=lambda log: (log.has_inferences, log.stage, len(log.echoed)))


def build_report(
    log: Transcript,
    system: SystemLog,
    files: Mapping[str, bytes] = MappingProxyType({}),
    *,
    requested: str = "",
) -> ToolReport:
    """Return the report of one run, whatever its lines are.

    Args:
        log: its lines.
        system: the phone's lines about processes that ended.
        files: what it wrote, by the names of the attachments.
        requested: the requested delegate, where the caller knows it.
    """
    doubts: list[str] = []
    written = (
        _decoded(decode_result, files.get(RESULT_FILE, b""), "result proto", doubts) or _NO_RESULT
    )
    of_signature = partial(decode_runtime_info, signature=log.signature)
    runtime = _decoded(of_signature, files.get(RUNTIME_INFO_FILE, b""), "runtime info", doubts)
    file_profile = _decoded(
        decode_op_profile, files.get(PROFILE_FILE, b""), "operator profile", doubts
    )
    figures = _printed_figures(log, doubts)
    doubts += _compare_with_file(log, figures, written)
    is_log_cut = False
    if (proto := written.inference) is not None:
        is_log_cut = not _has_result_line(log) and not log.failures.ended_badly
        is_rounded = figures.inference is not None and figures.inference_mean_us is not None
        if is_log_cut or (is_rounded and not log.stats):
            # The banner's figures are rounded, the file's aren't.
            figures = replace(figures, inference=proto, inference_mean_us=proto.mean_us)
    has_figures = figures.inference is not None and figures.inference_mean_us is not None
    is_complete = _has_result_line(log) or (written.inference is not None and has_figures)
    failure = _find_failure(log, figures, system, is_complete=is_complete)
    if failure is not None and failure.code in _CAUSELESS_CODES:
        failure = _with_last_line(failure, log, system)
    outcome = "ok" if failure is None else failure.outcome
    mean_us = None if outcome == "failed" else figures.inference_mean_us
    delegate = _judge(
        log,
        runtime,
        has_result=outcome == "ok" and is_complete,
        ended_badly=outcome in {"failed", "crashed"},
        requested=requested,
    )
    profile = file_profile or _NO_PROFILE
    if file_profile is None and (log.profile_proto or log.has_profile):
        profile = _plausible_profile(_profile_in_log(log, doubts), log, mean_us, doubts)
    if profile.blocks:
        profile = _mark_cycles(profile, log)
        delegate = _delegate_in_profile(delegate, profile, log)
    failure = failure or _failed_setup(log, delegate)
    extra = _extra(log)
    # The session's line has six digits: from a second up it differs from the result line's figure.
    session_us = log.session_us if is_complete or (log.session_us or 0) < US_PER_S else None
    return replace(
        figures,
        outcome=outcome,
        failure_code=failure.code if failure else "",
        failure_reason=failure.reason if failure else "",
        init_us=_first(
            log.timings.get("init"), session_us, log.banner.get("init"), written.init_us
        ),
        first_inference_us=_first(figures.first_inference_us, written.first_inference_us),
        inference_mean_us=mean_us,
        init_memory_mib=_first(figures.init_memory_mib, written.init_memory_mib),
        overall_memory_mib=_first(figures.overall_memory_mib, written.overall_memory_mib),
        peak_memory_mib=_first(figures.peak_memory_mib, written.peak_memory_mib),
        model_size_mb=_first(figures.model_size_mb, written.model_size_mb),
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


def _printed_figures(log: Transcript, doubts: list[str]) -> ToolReport:
    """Return a report of the figures that the lines have; add to ``doubts`` where they contradict
    each other.
    """
    warmup, inference = _warmup_and_inference(log)
    doubts += _contradictions(log, warmup, inference)
    if log.failures.invoke_failure:
        # Failing calls are timed too, and their times mean nothing.
        warmup = inference = None
    first_us, warmup_us = log.timings.get("first"), log.timings.get("warmup")
    # The result line of a run without a warm-up has zeros.
    has_warmup = warmup.count != 0 if warmup is not None else (first_us, warmup_us) != (0, 0)
    if warmup_us is None:
        warmup_us = _mean(warmup) if warmup is not None else log.banner.get("warmup_avg")
    return ToolReport(
        outcome="ok",
        first_inference_us=_first(
            first_us if has_warmup else None,
            warmup.first_us if warmup is not None else None,
            log.banner.get("warmup_first"),
        ),
        warmup_mean_us=warmup_us if has_warmup else None,
        inference_mean_us=_inference_mean(log, inference),
        warmup=warmup,
        inference=inference,
        init_memory_mib=_first(log.memory.get("init"), log.banner.get("init_footprint_mb")),
        overall_memory_mib=_first(
            log.memory.get("overall"), log.banner.get("overall_footprint_mb")
        ),
        peak_memory_mib=_first(log.peak_memory_mib, log.banner.get("peak_memory_mb")),
        model_size_mb=log.model_size_mb,
    )


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


def _compare_with_file(log: Transcript, printed: ToolReport, written: ToolReport) -> list[str]:
    """Return the contradictions between the result proto and the log."""
    if (proto := written.inference) is None:
        return []
    # Without statistics the log's figures are those of LiteRT's banner.
    rounded_us = 0.01 if log.stats else _BANNER_TOLERANCE_US
    pairs: list[tuple[str, float | None, float | None, float]] = [
        ("mean inference (us)", printed.inference_mean_us, proto.mean_us, _LOG_TOLERANCE),
        ("init (us)", log.timings.get("init"), written.init_us, 1e-6),
        ("first inference (us)", log.timings.get("first"), written.first_inference_us, 1e-6),
    ]
    if (inference := printed.inference) is not None:
        pairs += [
            ("number of inferences", inference.count, proto.count, 0.0),
            ("minimum (us)", inference.min_us, proto.min_us, 1e-6),
            ("maximum (us)", inference.max_us, proto.max_us, 1e-6),
            ("median (us)", inference.median_us, proto.median_us, 1e-6),
        ]
    return [
        f"{name}: the log says {figure:.12g}, the result proto {other:.12g}"
        for name, figure, other, tolerance in pairs
        if figure is not None
        and other is not None
        and not math.isclose(figure, other, rel_tol=tolerance, abs_tol=rounded_us)
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


def _find_failure(
    log: Transcript, figures: ToolReport, system: SystemLog, *, is_complete: bool
) -> Failure | None:
    """Return why there is no result, or the failure after it; None for a run without failures."""
    exit_code = log.exit_code
    text_failure, by_code = log.failures.text_failure(), signal_failure(exit_code)
    # A result line counts unless something else shows a failure; a signal is reported beside it.
    has_failed = exit_code is not None and (0 < exit_code < 124 or exit_code > _LAST_SIGNAL_CODE)
    is_unharmed = not has_failed and not (log.failures.best and log.is_ended)
    if is_complete and not log.failures.invoke_failure and is_unharmed:
        return _failure_after_result(log, figures, by_code)
    logged = _crash_in_system_log(log, system)
    if log.timed_out:
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
        return denial.failure
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
    return replace(failure, reason=reason)


def _failure_after_result(
    log: Transcript, figures: ToolReport, by_code: Failure | None
) -> Failure | None:
    """Return the failure of a run that printed its complete result; None for none."""
    inference, mean = figures.inference, figures.inference_mean_us
    no_inference = log.banner_failed or (mean == 0 and not log.stats)
    if inference.count == 0 if inference is not None else no_inference:
        return Failure(code="no-inferences", reason="count=0: no inference was made")
    if mean == 0 and (inference is None or not inference.max_us):
        return Failure(code="all-zero", reason="every inference took 0 us")
    if log.timed_out or log.exit_code == 124:
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
    return replace(crash.failure, reason=reason)


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
        request = replace(request, delegates=(requested,), is_explicit=True)
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


def _plausible_profile(
    profile: OperatorProfile, log: Transcript, mean: float | None, doubts: list[str]
) -> OperatorProfile:
    """Return a log's operator tables if their sum is plausible for the run's inferences; else no
    tables, and a doubt with the reason.

    The operators' time is a part of each inference: it can't be longer, and is much shorter only
    for a small model. A run's tables are of as many inferences as its statistics; LiteRT's count
    the warm-up too.
    """
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
        replace(row, unit="cycles") if row.block.startswith("delegate") else row for row in rows
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
    return replace(
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
