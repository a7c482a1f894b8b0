"""The pass ``contention``: a run beside a stated load on the phone, and the proof that the load ran
all the time.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.analysis.effect import Mean, ratio_of
from orchestrator.delegates import DELEGATES
from orchestrator.passes.specification import (
    PassServices,
    PassSpec,
    RunProgram,
    rounds,
    why_not_executable,
)
from orchestrator.plugins import Program, benchmark_flags, environment, format_flags
from orchestrator.ports import Device, InvocationRequest, Tool
from orchestrator.records import frozen
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import LOAD_DIED, LOAD_FILE, NO_LOAD, Case, Load, Pass, load_of
from orchestrator.records.device import DeviceKind
from orchestrator.records.plan import Plan, PlanTerms
from orchestrator.records.run import RawOutput, RunRecord, ToolReport
from orchestrator.scripts import script_command
from orchestrator.tables.passes import PassTable, Round, interval_words, median_or_none
from orchestrator.tables.table import MS, NESTED, PEOPLE, Column, Kind

#: Rounds where no fixed number is given.
_ROUNDS: Final = 6
_ERRORS_FILE: Final = "load.err"
_TICKS_PER_S: Final = 100
#: Seconds in which a scheduler gives every busy process a tick, on a phone with other work too.
_TURN_S: Final = 1.0
#: The message of TFLite's programs when they have made the GPU's delegate; without it they run on
#: the CPU.
_ON_GPU: Final = b"Created TensorFlow Lite delegate for GPU"
_NOT_ON_GPU: Final = "not-on-gpu"
#: The prefix of the attachment's first line, which states the load.
_PREFIX: Final = "load "


def run_loaded(tool: Tool, device: Device, request: InvocationRequest) -> RawOutput:
    """Run one invocation under its load.

    Raises DeviceError kinds.
    """
    load = Load() if request.variant == NO_LOAD else load_of(request.variant)
    other = _gpu_loop(request) if load.gpu else ""
    seconds = math.ceil(request.timeout_s)
    enclosing = replace(
        request,
        enclosed=lambda command: script_command(
            "contention", load.cpu, load.memory, other, seconds, command
        ),
        enclosing_files=(LOAD_FILE, _ERRORS_FILE),
    )
    raw = tool.run(device, enclosing)
    load_data = f"{_PREFIX}{request.variant}\n".encode() + raw.data(LOAD_FILE)
    if load.gpu and _ON_GPU not in raw.data(_ERRORS_FILE):
        load_data += f"{_NOT_ON_GPU}\n".encode()
    attachments = tuple(item for item in raw.attachments if item.name != _ERRORS_FILE)
    return replace(raw, attachments=attachments).with_data(LOAD_FILE, load_data)


def _gpu_loop(request: InvocationRequest) -> str:
    """Return the command line of the same program with the same model on the GPU, without an end."""
    gpu = next(name for name, delegate in DELEGATES.items() if delegate.is_on_gpu)
    case = replace(
        request.case,
        delegate=gpu,
        flags=(),
        num_runs=1,
        min_secs=request.timeout_s,
        max_secs=request.timeout_s,
    )
    flags = benchmark_flags(replace(request, case=case), folder=".")
    # Result files are the run's own.
    loop_flags = {name: value for name, value in flags.items() if not value.startswith("./")}
    words = " ".join([request.program_path, *format_flags(loop_flags)])
    return f"export {environment(request)}; exec {words}"


def with_load(tool: Tool, report: ToolReport, raw: RawOutput, case: Case) -> ToolReport:
    """Return a report with its load, ``load`` and ``load_cores``; failed when the load wasn't
    running all the time.
    """
    lines = raw.data(LOAD_FILE).decode("utf-8", "replace").splitlines()
    if not lines or not lines[0].startswith(_PREFIX):
        return report
    load = lines[0].removeprefix(_PREFIX)
    extra: dict[str, float | str] = {**report.extra, "load": load}
    report = replace(report, extra=extra)
    if load == NO_LOAD or report.outcome != "ok":
        return report
    why, cores = _proof(lines[1:])
    if why:
        return replace(
            report,
            outcome="failed",
            failure_code=LOAD_DIED,
            failure_reason=f"the load {load}: {why}",
        )
    extra["load_cores"] = cores
    return report


def _proof(lines: list[str]) -> tuple[str, float]:
    """Return the reason why the lines don't show a load that ran all the time, "" if they do, and
    the number of cores that it kept busy.
    """
    samples: dict[str, tuple[float, dict[str, int]]] = {}
    moment = ""
    if _NOT_ON_GPU in lines:
        return "nothing shows that it ran on the GPU", 0.0
    for line in lines:
        name, _, rest = line.partition(" ")
        try:
            if name in {"begin", "end"}:
                moment = name
                samples[moment] = (float(rest), {})
            elif moment:
                pid, _, ticks = rest.partition(" ")
                if ticks == "gone":
                    return f"a process of it ({name}) had ended at the run's {moment}", 0.0
                samples[moment][1][pid] = int(ticks)
        except ValueError:
            return "the phone's record of it can't be read", 0.0
    if (
        samples.keys() != {"begin", "end"}
        or not samples["begin"][1]
        or samples["begin"][1].keys() != samples["end"][1].keys()
    ):
        return "nothing on the phone shows that it ran", 0.0
    (begin_s, before), (end_s, after) = samples["begin"], samples["end"]
    spent, seconds = {pid: after[pid] - ticks for pid, ticks in before.items()}, end_s - begin_s
    # A short run can end before each of many processes had its turn; together they had one.
    starved = min(spent.values()) <= 0 if seconds >= _TURN_S else sum(spent.values()) <= 0
    if starved or seconds <= 0:
        return "a process of it got no processor time", 0.0
    return "", sum(spent.values()) / _TICKS_PER_S / seconds


def _runner(services: PassServices) -> RunProgram:
    return run_loaded


def _needs(program: Program, terms: PlanTerms) -> str:
    if not program.is_benchmark_model and any(load_of(load).gpu for load in terms.contention):
        return "has no loop on the GPU; take the load gpu=1 out of 'contention'"
    return why_not_executable(program, terms)


def _numbers(plan: Plan, case: Case, program: Program) -> range:
    return range(rounds(plan, _ROUNDS) * (1 + len(plan.contention)))


def load_text(number: int, terms: PlanTerms) -> str:
    """Return the load of an invocation by its number: 0 is none, 1 the first, repeated each round."""
    return (NO_LOAD, *terms.contention)[number % (1 + len(terms.contention))]


@frozen
class LoadRow:
    """A case under one load."""

    load: str
    #: Microseconds, over the runs.
    median_us: float | None
    #: Ratio to the latency without a load, by the rounds that have both.
    factor: Mean | None
    count: int
    #: Mean number of cores that the load kept busy; None where it is unknown.
    cores: float | None
    #: Runs whose load didn't run all the time.
    died: int


def load_rows(runs: Sequence[RunRecord], campaigns: Mapping[str, Campaign]) -> tuple[LoadRow, ...]:
    """Return a case's figures by load, from its runs of that pass, the one without a load first;
    ``campaigns`` by id.
    """
    latencies: dict[str, dict[Round, float]] = {}
    cores: dict[str, list[float]] = defaultdict(list)
    died: Counter[str] = Counter()
    for run in runs:
        if run.report is None or "load" not in run.report.extra:
            continue
        load, latency_us = str(run.report.extra["load"]), run.report.latency_us()
        by_round = latencies.setdefault(load, {})
        died[load] += run.reason_code == LOAD_DIED
        if not run.is_without_result and latency_us is not None:
            campaign = campaigns.get(run.campaign_id)
            width = 1 + len(campaign.terms.contention) if campaign is not None else 1
            by_round[str(run.campaign_id), run.invocation // width] = latency_us
            if "load_cores" in run.report.extra:
                cores[load].append(float(run.report.extra["load_cores"]))
    return tuple(
        LoadRow(
            load=load,
            median_us=median_or_none(by_round.values()),
            factor=ratio_of(by_round, latencies.get(NO_LOAD, {})) if load != NO_LOAD else None,
            count=len(by_round),
            cores=statistics.fmean(cores[load]) if cores[load] else None,
            died=died[load],
        )
        for load, by_round in sorted(
            latencies.items(), key=lambda item: (item[0] != NO_LOAD, item[0])
        )
    )


_COLUMNS: Final[Sequence[Column[LoadRow]]] = (
    Column("load", value=lambda row: row.load, is_choice=True),
    Column("median_us", "median", lambda row: row.median_us, **MS),
    Column("factor", "times as long", lambda row: row.factor, kind=Kind.RECORD, forms=NESTED),
    Column(
        "factor",
        "times as long",
        lambda load: load.factor and load.factor.value,
        Kind.NUMBER,
        digits=3,
        forms=PEOPLE,
    ),
    Column(
        "factor_half",
        "±95 %",
        lambda load: load.factor and load.factor.half_width,
        Kind.NUMBER,
        scale=100,
        digits=1,
        forms=PEOPLE,
        shown=lambda load: interval_words(load.factor, getattr(load.factor, "half_width", None)),
    ),
    Column("runs", value=lambda load: load.count, kind=Kind.COUNT),
    Column(
        "cores", "load kept busy", lambda row: row.cores, kind=Kind.NUMBER, unit="cores", digits=1
    ),
    Column(
        "died",
        "load died",
        lambda row: row.died,
        kind=Kind.COUNT,
        shown=lambda load: "" if not load.died else None,
    ),
)
TABLE: Final = PassTable(
    name="loads",
    key="contention",
    title="Beside a load",
    legend="The pass contention: each case alone and beside loads, in turns. Times as long: the geometric mean over "
    "rounds, against the same round without a load. Runs without the load from begin to end are left out.",
    caption=lambda cases: "Each case beside a load, against itself alone",
    columns=_COLUMNS,
    lines=load_rows,
)


PASS = PassSpec(
    name=Pass("contention"),
    about="The latency beside a load on the phone, against that without one",
    guide="in-use",
    runner=_runner,
    kinds=frozenset({DeviceKind.ANDROID}),
    needs=_needs,
    numbers=_numbers,
    turn=lambda terms: 1 + len(terms.contention),
    variant=load_text,
    read=with_load,
    table=TABLE,
    names_suspect_runs=True,
)
