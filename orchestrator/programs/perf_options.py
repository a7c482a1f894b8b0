"""``benchmark_model_performance_options``: one process that tries several ways to run a model.

Each way (an option) is a case of its own with its own report. The program's summary names what was
asked for, not what ran, so that each option is judged by the lines of its own run. It stops at the
first option that fails, without a summary and with exit code 0: the options that it didn't come to
are then run one by one, a process for each.
"""

from __future__ import annotations

import dataclasses
import json
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from orchestrator.delegates import delegates_of, flags_of
from orchestrator.delegates.evidence import accelerators_in
from orchestrator.delegates.specification import FlagFamily
from orchestrator.passes import pass_of
from orchestrator.ports import Device, InvocationRequest
from orchestrator.programs.native import command_line
from orchestrator.programs.running import (
    benchmark_flags,
    files_written,
    format_flags,
    in_mode,
    read_collected,
    run_and_collect,
)
from orchestrator.programs.specification import Program
from orchestrator.reading.lines import parse_line, parse_stats
from orchestrator.reading.report import parse_run
from orchestrator.reading.transcript import ECHO, FIRST_ECHO, UNCONSUMED
from orchestrator.records.case import Case, DelegateName, RunId, ToolName
from orchestrator.records.device import DeviceKind
from orchestrator.records.run import (
    Attachment,
    DelegateEvidence,
    LatencySummary,
    RawOutput,
    ToolReport,
)

_TITLE: Final = "Summary of All Runs w/ Different Performance Options"
_ROW: Final = re.compile(r"\s*(?P<name>[\w/(].{0,120}?): (?:(?P<stats>count=.*)|\s*failed!\s*)$")
_KNOWN: Final = re.compile(
    r"(?:cpu w/ -?\d+ threads(?: \([\w-]+\))?|gpu-(?:default|fp16)|nnapi\(.*\)|dsp w/ hexagon|coreml)$"
)
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
    "Use gpu": DelegateName.GPU,
    "Use NNAPI": DelegateName.NNAPI,
    "Use Hexagon": DelegateName.HEXAGON,
    "Use xnnpack": DelegateName.XNNPACK,
}
#: Beginning of the names of what the options left that were run one by one.
_ALONE: Final = "alone"
_INDEX: Final = "alone.json"
_NONE: Final = "--perf_options_list=none"
#: What the program sets for each option itself, and the files of which each option would overwrite
#: the last one's.
_NOT_FOR_A_GROUP: Final = OPTION_FLAGS | {
    "num_threads",
    "use_xnnpack",
    "use_gpu",
    "use_nnapi",
    "use_hexagon",
    "result_file_path",
    "export_model_runtime_info",
    "model_runtime_info_output_file",
}


class PerformanceOptionsTool:
    """Runs one group of options (CPU, GPU, NNAPI or DSP) in a process and reads each option for
    itself.
    """

    name = ToolName.PERF_OPTIONS

    def session(self, case: Case) -> str:
        """See SessionTool.session: the options of one group.

        Memory is a high-water mark of the process and a profile goes to one file: those passes run
        an option alone.
        """
        group = OPTION_GROUPS[case.delegate]
        own_flags = [flag for flag in case.flags if flag[0] not in OPTION_FLAGS]
        settings = (
            case.num_runs,
            case.min_secs,
            case.max_secs,
            case.warmup_runs,
            case.warmup_min_secs,
            case.affinity,
        )
        return json.dumps(
            [case.model_sha256, case.build_sha256, group, own_flags, settings, case.files]
        )

    def found_cases(self, raw: RawOutput, case: Case) -> Sequence[Case]:
        """See SessionTool.found_cases: an option for each NNAPI accelerator that the phone has."""
        blocks = split_options(raw.data("stdout"))
        labels = [*(block.label for block in blocks), *(entry["label"] for entry in _index(raw))]
        names = [
            label[len("nnapi(") : -1]
            for label in labels
            if label.startswith("nnapi(") and "w/o" not in label
        ]
        plain = tuple(flag for flag in case.flags if flag[0] != ACCELERATOR_FLAG)
        return [
            dataclasses.replace(case, flags=tuple(sorted((*plain, (ACCELERATOR_FLAG, name)))))
            for name in dict.fromkeys(names)
        ]

    def run(
        self,
        device: Device,
        request: InvocationRequest,
        *,
        cancelled: threading.Event | None = None,
    ) -> RawOutput:
        """Run one group, or one option alone; whatever the end, return all that is left.

        Raises DeviceError kinds.
        """
        if not pass_of(request.run_pass).shares_process:
            return _run_alone(device, request, cancelled)
        started_at = datetime.now(UTC)
        arguments = _group_arguments(request)
        # One stream, so that what the runtime says on standard error stands in the run that it
        # belongs to.
        command = in_mode(command_line(request, arguments) + " 2>&1", request)
        count = len(options_of(request.case, accelerators=()))
        try:
            result = device.run_detached(
                command,
                run_id=request.run_id,
                timeout_s=request.timeout_s * count,
                cancelled=cancelled,
            )
        finally:
            device.discard_run(request.run_id)
        attachments = [
            Attachment(name="stdout", data=result.stdout),
            Attachment(name="stderr", data=result.stderr),
        ]
        is_over = result.timed_out or (cancelled is not None and cancelled.is_set())
        missed = [] if is_over else _missed(result.stdout, request.case)
        attachments += _run_missed(device, request, missed, cancelled)
        return RawOutput(
            command=command,
            exit_code=result.exit_code,
            timed_out=result.timed_out,
            started_at=started_at,
            duration_s=(datetime.now(UTC) - started_at).total_seconds()
            if missed
            else result.duration_s,
            attachments=tuple(attachments),
        )

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Read the run of the case's own option; an option without a run is a report that says so."""
        label = label_of(case)
        if _NONE in raw.command:
            report = read_collected(raw, case)
            return dataclasses.replace(report, label=label)
        for number, entry in enumerate(_index(raw)):
            if entry["label"] == label:
                ended = {"exit_code": entry["exit_code"], "timed_out": entry["timed_out"]}
                report = read_collected(raw, case, prefix=f"{_ALONE}-{number}.", **ended)
                return dataclasses.replace(report, label=label)
        blocks = split_options(raw.data("stdout"))
        own = next((block for block in blocks if block.label == label), None)
        if own is None:
            return _without_run(raw, case, label)
        report = _parse_block(raw, own, case, is_last=own is blocks[-1])
        return report if len(blocks) == 1 else _without_memory(report)


def _group_arguments(request: InvocationRequest) -> list[str]:
    flags = benchmark_flags(request, folder="")
    kept = [(name, value) for name, value in flags if name not in _NOT_FOR_A_GROUP]
    return [f"--perf_options_list={OPTION_GROUPS[request.case.delegate]}", *format_flags(kept)]


def _parse_block(raw: RawOutput, block: OptionBlock, case: Case, *, is_last: bool) -> ToolReport:
    """Read one option's run. Only the last can have ended with the process; the others ended well
    before it.
    """
    report = parse_run(
        stdout=block.text,
        stderr=b"",
        exit_code=raw.exit_code if is_last else 0,
        timed_out=raw.timed_out and is_last,
        requested=case.delegate.value,
    )
    told = summary_rows_in(raw.data("stdout")).get(block.label)
    disagreements = report.disagreements
    if told is not None and report.inference is not None and told != report.inference:
        disagreements += (f"the summary's row '{block.label}' differs from the option's own run",)
    return dataclasses.replace(report, label=block.label, disagreements=disagreements)


def _without_memory(report: ToolReport) -> ToolReport:
    """Leave out the memory of one of several options.

    It is read from the process's high-water mark, which the options before have raised: what an
    option shows is what it needed beyond all of them, in a random order. The memory pass runs an
    option alone.
    """
    return dataclasses.replace(
        report, init_memory_mib=None, overall_memory_mib=None, peak_memory_mib=None
    )


def _without_run(raw: RawOutput, case: Case, label: str) -> ToolReport:
    """Return the report of an option that the program never came to: why the whole program failed,
    where it did.
    """
    whole = parse_run(
        stdout=raw.data("stdout"),
        stderr=raw.data("stderr"),
        exit_code=raw.exit_code,
        timed_out=raw.timed_out,
    )
    has_failed = whole.outcome != "ok" and not split_options(raw.data("stdout"))
    code = (
        whole.failure_code if has_failed and whole.failure_code != "no-result" else "option-not-run"
    )
    reason = (
        whole.failure_reason
        if code == whole.failure_code
        else f"the program printed no run of '{label}'"
    )
    return ToolReport(
        outcome="failed",
        failure_code=code,
        failure_reason=reason,
        label=label,
        delegate=DelegateEvidence(requested=case.delegate.value),
    )


def _index(raw: RawOutput) -> list[dict[str, Any]]:
    """Return how the options that were run alone ended, in the order of their attachments' numbers."""
    rows: list[dict[str, Any]] = json.loads(raw.data(_INDEX) or b"[]")
    return rows


def _missed(stdout: bytes, case: Case) -> list[Case]:
    """Return the options that a program that stopped didn't come to; none when it went through to
    its summary.
    """
    blocks = split_options(stdout)
    if summary_rows_in(stdout) or not blocks:
        return []
    begun = {block.label for block in blocks}
    accelerators = accelerators_in(stdout.decode("utf-8", "replace")) or ()
    return [
        option
        for option in options_of(case, accelerators=accelerators)
        if label_of(option) not in begun
    ]


def _run_missed(
    device: Device,
    request: InvocationRequest,
    missed: Sequence[Case],
    cancelled: threading.Event | None,
) -> list[Attachment]:
    found: list[Attachment] = []
    index: list[dict[str, object]] = []
    for number, option in enumerate(missed):
        if cancelled is not None and cancelled.is_set():
            break
        alone = dataclasses.replace(
            request, case=option, run_id=RunId(f"{request.run_id}-{number}")
        )
        raw = _run_alone(device, alone, cancelled)
        found += [
            dataclasses.replace(item, name=f"{_ALONE}-{number}.{item.name}")
            for item in raw.attachments
        ]
        ended = {"command": raw.command, "exit_code": raw.exit_code, "timed_out": raw.timed_out}
        index.append({"label": label_of(option), **ended})
    if index:
        found.append(Attachment(name=_INDEX, data=json.dumps(index, indent=1).encode()))
    return found


def _run_alone(
    device: Device, request: InvocationRequest, cancelled: threading.Event | None
) -> RawOutput:
    """Run one option in a process of its own: with ``none`` the program takes the flags as they
    are.
    """
    folder = device.run_folder(request.run_id)
    flags = benchmark_flags(request, folder=folder)
    if request.case.delegate is DelegateName.NNAPI and ACCELERATOR_FLAG not in dict(flags):
        # As the program sets it for its own options; a named accelerator makes it idle.
        flags.append(("disable_nnapi_cpu", "false"))
    return run_and_collect(
        device,
        request,
        command_line(request, [_NONE, *format_flags(flags)]),
        files=files_written(request.run_pass),
        cancelled=cancelled,
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
        if text.startswith(FIRST_ECHO):
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
        if match := ECHO.match(text):
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


PROGRAM = Program(
    name=ToolName.PERF_OPTIONS,
    tool=PerformanceOptionsTool,
    kinds=frozenset({DeviceKind.ANDROID}),
    family=FlagFamily.PERFORMANCE_OPTIONS,
    own_flags=frozenset(
        {
            "use_xnnpack",
            "xnnpack_force_fp16",
            "gpu_precision_loss_allowed",
            "nnapi_accelerator_name",
            "disable_nnapi_cpu",
            "nnapi_allow_fp16",
            "max_delegated_partitions",
        }
    ),
    # On the CPU; every other option has one thread.
    threads=OPTION_THREADS,
    options=lambda own, _: (
        tuple(((PRECISION_FLAG, value),) for value in ("true", "false")) if own.is_on_gpu else ((),)
    ),
    file_name="benchmark_model_performance_options",
)
