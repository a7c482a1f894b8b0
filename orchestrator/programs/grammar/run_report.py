"""From one run's transcript to its report: which figures count, how the run ended, where the operators ran."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Final

from orchestrator.delegates.evidence import DelegateClues, family, is_delegate_kernel, read_request
from orchestrator.delegates.judging import RuntimeNodes, judge_delegate
from orchestrator.errors import OutputParseError
from orchestrator.programs.grammar.failures import Failure, SystemLog, signal_failure
from orchestrator.programs.grammar.op_profile import OperatorProfile
from orchestrator.programs.grammar.protos import ResultFigures, parse_op_profile_text
from orchestrator.programs.grammar.run_figures import (
    assign_summaries,
    compare_with_proto,
    contradictions,
    either,
    first_us,
    has_result_line,
    inference_mean,
    init_us,
    warmup_mean_us,
)
from orchestrator.programs.grammar.transcript import Transcript
from orchestrator.records.run import SETUP_CODES, DelegateEvidence, DelegateTruth, LatencySummary, ToolReport
from orchestrator.units import US_PER_MS

#: Names of native processes are cut after 15 letters by the kernel.
_NATIVE_PROCESSES: Final = ("benchmark_model", "benchmark_liter")
#: What is told of a run whose log lacks its end while its result file is whole.
_LOG_CUT: Final = "the log ends before its result line: the figures are the result file's"
#: What runs have whose lines say nothing of delegates; nobody adds to it.
_NO_CLUES: Final = DelegateClues()
_BENCHMARK_PROCESSES: Final = ("org.tensorflow.lite.benchmark", *_NATIVE_PROCESSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the process ended, as far as it is known."""

    exit_code: int | None = None
    timed_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """What the program wrote beside its log, decoded."""

    result: ResultFigures | None = None
    runtime: RuntimeNodes | None = None
    profile: OperatorProfile | None = None
    faults: tuple[str, ...] = ()


def build_report(
    transcript: Transcript,
    *,
    system: SystemLog | None = None,
    ending: Ending | None = None,
    files: Files | None = None,
    requested: str = "",
    label: str = "",
) -> ToolReport:
    """Return the report of one run; whatever its lines are, something is said about it."""
    ending, files = ending or Ending(), files or Files()
    warmup, inference = assign_summaries(transcript)
    disagreements = [*files.faults, *contradictions(transcript, warmup, inference)]
    if transcript.failures.invoke_failure:
        # Failing calls are timed too: their times are of nothing.
        warmup = inference = None
    result, is_log_cut = files.result, False
    mean = inference_mean(transcript, inference)
    if result is not None and result.inference is not None:
        disagreements += compare_with_proto(transcript, inference, mean, result)
        if not has_result_line(transcript) and not transcript.failures.ended_badly:
            inference, mean = result.inference, result.inference.mean_us
            is_log_cut = not transcript.is_empty
        elif inference is not None and mean is not None and not transcript.stats:
            # The banner's figures are rounded, the file's aren't.
            inference, mean = result.inference, result.inference.mean_us
    is_complete = has_result_line(transcript) or (result is not None and inference is not None and mean is not None)
    failure = _find_failure(transcript, ending, system, inference, mean, is_complete=is_complete)
    outcome = "ok" if failure is None else failure.outcome
    if outcome in {"failed", "crashed"}:
        transcript.delegates.ended_badly = True
    has_result = outcome == "ok" and is_complete
    if outcome == "failed":
        mean = None
    delegate, unconsumed = _judge(transcript, files.runtime, has_result=has_result, requested=requested)
    profile = files.profile or _own_profile(_profile_in_log(transcript, disagreements), transcript, mean, disagreements)
    profile = _in_cycles(profile, transcript)
    delegate = _delegate_in_profile(delegate, profile, transcript)
    failure = failure or _failed_setup(transcript, delegate)
    return ToolReport(
        outcome=outcome,
        failure_code=failure.code if failure else "",
        failure_reason=failure.reason if failure else "",
        init_us=init_us(transcript, result, is_complete=is_complete),
        first_inference_us=first_us(transcript, warmup, result),
        warmup_mean_us=warmup_mean_us(transcript, warmup),
        inference_mean_us=mean,
        warmup=warmup,
        inference=inference,
        init_memory_mib=either(
            transcript.memory.get("init", transcript.banner.get("init_footprint_mb")), result, "init_memory_mib"
        ),
        overall_memory_mib=either(
            transcript.memory.get("overall", transcript.banner.get("overall_footprint_mb")),
            result,
            "overall_memory_mib",
        ),
        peak_memory_mib=either(
            transcript.peak_memory_mib
            if transcript.peak_memory_mib is not None
            else transcript.banner.get("peak_memory_mb"),
            result,
            "peak_memory_mib",
        ),
        model_size_mb=either(transcript.model_size_mb, result, "model_size_mb"),
        delegate=delegate,
        echoed=dict(transcript.echoed),
        unconsumed_flags=unconsumed,
        operators=profile.operators,
        operator_types=profile.types,
        profile_blocks=profile.blocks,
        label=label or transcript.label,
        disagreements=tuple(disagreements),
        extra=_extra(transcript) | ({"log_cut": _LOG_CUT} if is_log_cut else {}),
    )


def _failed_setup(transcript: Transcript, delegate: DelegateEvidence) -> Failure | None:
    """Return why a delegate wasn't made, where a line names it; the run itself went well, on the CPU."""
    best = transcript.failures.best
    if delegate.truth is not DelegateTruth.FELL_BACK or best is None or not best[2].startswith(SETUP_CODES):
        return None
    return Failure(code=best[2], reason=best[3], outcome="ok")


def _find_failure(
    transcript: Transcript,
    ending: Ending,
    system: SystemLog | None,
    inference: LatencySummary | None,
    mean: float | None,
    *,
    is_complete: bool,
) -> Failure | None:
    """Return why there is no result, or what happened after it; None for a run that is well."""
    told = transcript.failures.text_failure()
    by_code = signal_failure(ending.exit_code)
    logged = _crash_in_system_log(transcript, system)
    if is_complete and not transcript.failures.invoke_failure and _is_unharmed(transcript, ending):
        if _has_no_inference(transcript, inference, mean):
            return Failure(code="no-inferences", reason="count=0: no inference was made")
        if _is_all_zero(inference, mean):
            return Failure(code="all-zero", reason="every inference took 0 us")
        if ending.timed_out or ending.exit_code == 124:
            return Failure(code="hung-at-exit", reason="the result is whole, the program didn't exit", outcome="ok")
        if by_code is not None:
            code = "crashed-after-result" if by_code.outcome == "crashed" else "hung-at-exit"
            return Failure(code=code, reason=by_code.reason, outcome="ok")
        return None
    if ending.timed_out:
        hung = f"; {logged.reason}" if logged is not None and logged.code == "app-not-responding" else ""
        return Failure(code="timed-out", reason=f"stopped at its time limit{hung}", outcome="truncated")
    if told is not None:
        denial = system.denial_of(transcript.pid, told.reason, _NATIVE_PROCESSES) if system is not None else None
        if denial is not None:
            # The program names the file that it couldn't have, and SELinux says why.
            return Failure(code=denial.code, reason=f"{denial.reason}; {told.reason}")
        if logged is not None and transcript.failures.best is None:
            # A shell's one word ("Killed") is all that was told; the phone's log says who did it, or where.
            return logged
        if by_code is not None and by_code.outcome == "crashed" and not transcript.failures.is_fatal:
            return Failure(code=told.code, reason=f"{told.reason} then {by_code.reason}", outcome="crashed")
        return told
    if logged is not None and (by_code is None or by_code.code != "program-not-found"):
        return logged
    if by_code is not None:
        return by_code
    if ending.exit_code == 124:
        return Failure(code="timed-out", reason="stopped at its time limit", outcome="truncated")
    denial = system.denial_of(transcript.pid, processes=_NATIVE_PROCESSES) if system is not None else None
    if denial is not None:
        return Failure(code=denial.code, reason=denial.reason)
    if ending.exit_code:
        return Failure(code="benchmark-failed", reason=f"exit code {ending.exit_code}")
    reason = "the result line is cut off" if transcript.is_result_cut else "no result line"
    return Failure(code="no-result", reason=reason, outcome="truncated")


def _is_unharmed(transcript: Transcript, ending: Ending) -> bool:
    """Whether nothing says that the run failed although its result line is there."""
    if ending.exit_code is not None and 0 < ending.exit_code < 124:
        return False
    best = transcript.failures.best
    return best is None or not transcript.is_ended


def _has_no_inference(transcript: Transcript, inference: LatencySummary | None, mean: float | None) -> bool:
    if inference is not None:
        return inference.count == 0
    return transcript.banner_failed or (mean == 0 and not transcript.stats)


def _is_all_zero(inference: LatencySummary | None, mean: float | None) -> bool:
    return mean == 0 and (inference is None or not inference.max_us)


def _crash_in_system_log(transcript: Transcript, system: SystemLog | None) -> Failure | None:
    crash = system.end_of(transcript.pid, _BENCHMARK_PROCESSES) if system is not None else None
    if crash is None:
        return None
    reason = "; ".join(part for part in (crash.reason, *crash.frames[:3]) if part)
    is_crash = crash.code in {"segfault", "aborted", "bus-error", "illegal-instruction", "app-crashed"}
    return Failure(code=crash.code, reason=reason, outcome="crashed" if is_crash else "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setup:
    """What is known of a run's delegates beside the lines that speak of them."""

    #: The parameters by name, without those by which runs of one series differ.
    flags: tuple[tuple[str, str], ...]
    echoed: tuple[tuple[str, str], ...]
    unconsumed: tuple[str, ...]
    title: str
    is_litert: bool
    is_elided: bool
    requested: str
    has_result: bool
    has_session: bool
    is_loaded: bool


def _judge(
    transcript: Transcript, runtime: RuntimeNodes | None, *, has_result: bool, requested: str
) -> tuple[DelegateEvidence, tuple[str, ...]]:
    setup = _Setup(
        flags=tuple(transcript.flags.items()),
        # The model's name says nothing of delegates.
        echoed=tuple([(name, "" if name == "Graph" else value) for name, value in transcript.echoed.items()]),
        unconsumed=tuple(transcript.unconsumed),
        title=transcript.title,
        is_litert=transcript.is_litert,
        is_elided=transcript.is_elided,
        requested=requested,
        has_result=has_result,
        has_session=transcript.session_us is not None,
        is_loaded=transcript.is_loaded,
    )
    if runtime is None and transcript.delegates == _NO_CLUES:
        return _judge_without_clues(setup), setup.unconsumed
    return _judge_setup(setup, transcript.delegates, runtime), setup.unconsumed


@functools.lru_cache(maxsize=64)
def _judge_without_clues(setup: _Setup) -> DelegateEvidence:
    # Runs of a series whose lines say nothing of delegates are all alike.
    return _judge_setup(setup, _NO_CLUES, None)


def _judge_setup(setup: _Setup, clues: DelegateClues, runtime: RuntimeNodes | None) -> DelegateEvidence:
    request = read_request(
        flags=dict(setup.flags),
        echoed=dict(setup.echoed),
        unconsumed=setup.unconsumed,
        clues=clues,
        title=setup.title,
        is_litert=setup.is_litert,
        is_elided=setup.is_elided,
    )
    if setup.requested:
        request = dataclasses.replace(request, delegates=(setup.requested,), is_explicit=True)
    return judge_delegate(
        clues,
        request,
        runtime=runtime,
        has_result=setup.has_result,
        has_started=setup.has_result or setup.has_session,
        is_whole=setup.is_loaded and setup.has_session,
    )


def _profile_in_log(transcript: Transcript, disagreements: list[str]) -> OperatorProfile:
    if transcript.profile_proto:
        try:
            return parse_op_profile_text("\n".join(transcript.profile_proto))
        except OutputParseError as error:
            disagreements.append(f"the operator profile in the log can't be read: {error}")
    return transcript.profile.finish()


def _own_profile(
    profile: OperatorProfile, transcript: Transcript, mean: float | None, disagreements: list[str]
) -> OperatorProfile:
    """Return a log's operator tables where their sum can be of the run's inferences; nothing, and why, where not.

    What the operators take is a part of each inference: more can't be, and much less only where little is measured.
    A run's tables are of as many inferences as its statistics; LiteRT's count the warm-up too.
    """
    if transcript.profile.left_out:
        disagreements.append(f"the operator tables have {transcript.profile.left_out} more rows, which aren't kept")
    total = next((b.timings for b in profile.blocks if b.phase == "run" and b.block != "delegate" and b.timings), None)
    if mean is None or total is None or total.mean_us is None:
        return profile
    operators = total.mean_us
    counts = {total.count, *(stats.count for stats, _ in transcript.stats[-1:])}
    is_more = operators > 1.25 * mean + US_PER_MS
    is_of_others = operators < mean / 2 and len(counts) > 1 and not transcript.is_litert
    if not (is_more or is_of_others or operators < mean / 50 - 10 * US_PER_MS):
        return profile
    disagreements.append(
        f"the operator tables are of another run: {operators:.12g} us an inference, the result line says {mean:.12g}"
    )
    return OperatorProfile()


def _in_cycles(profile: OperatorProfile, transcript: Transcript) -> OperatorProfile:
    """Mark what the DSP counted: with Hexagon profiling on, the delegate's own rows hold cycles, not microseconds."""
    if not any(name.lower() == "hexagon profiling" and value == "1" for name, value in transcript.echoed.items()):
        return profile
    return OperatorProfile(
        operators=tuple(
            dataclasses.replace(row, unit="cycles") if row.block.startswith("delegate") else row
            for row in profile.operators
        ),
        types=tuple(
            dataclasses.replace(row, unit="cycles") if row.block.startswith("delegate") else row
            for row in profile.types
        ),
        blocks=profile.blocks,
    )


def _delegate_in_profile(
    evidence: DelegateEvidence, profile: OperatorProfile, transcript: Transcript
) -> DelegateEvidence:
    """Take delegates from the rows of a profile where the log says nothing of them."""
    if evidence.lines or transcript.echoed:
        return evidence
    rows = [row for row in profile.operators if row.phase == "run" and row.block == ""]
    kernels = [row for row in rows if is_delegate_kernel(row.node_type)]
    names = {family(row.node_type) for row in kernels}
    # Only a table with its totals is known to hold all rows.
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


def _extra(transcript: Transcript) -> dict[str, float | str]:
    extra: dict[str, float | str] = {}
    if transcript.pid is not None:
        extra["pid"] = float(transcript.pid)
    if transcript.title:
        extra["title"] = transcript.title
    graph = transcript.echoed.get("Graph") or transcript.flags.get("graph") or transcript.flags.get("model")
    if graph:
        extra["graph"] = graph
    threads = transcript.echoed.get("Num threads") or transcript.flags.get("num_threads")
    if threads and threads.lstrip("-").isascii() and threads.lstrip("-").isdigit() and len(threads) < 10:
        extra["num_threads"] = float(threads)
    partitions = transcript.echoed.get("Max number of delegated partitions", "")
    if partitions.isascii() and partitions.isdigit() and len(partitions) < 10:
        extra["max_delegated_partitions"] = float(partitions)
    for key, value in transcript.banner.items():
        if key in {"init", "warmup_first"} or key.startswith(("warmup_", "inference_")):
            extra[f"reported_{key}_ms"] = float(f"{value / US_PER_MS:.12g}")
        elif key == "throughput_mb_s":
            extra[key] = value
    if transcript.is_peak_unavailable:
        extra["peak_available"] = "no"
    if transcript.rpc_us is not None:
        extra["rpc_execute_us"] = transcript.rpc_us
    return extra
