"""LiteRT-LM: language models, by ``litert_lm_advanced_main`` on a phone and ``litert-lm benchmark``
on this computer.

One process gives two cases their figures, ``figure=prefill`` and ``figure=decode``: the time of a
token of the prompt and of the answer. The command exits with 0 after most failures, and averages a
failed repetition in as a speed of 0: so it repeats once a process. The phone's program repeats on
one engine, and its first repetition is the warm-up.
"""

from __future__ import annotations

import dataclasses
import hashlib
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Final

from orchestrator.delegates import Delegate, FlagFamily, flags_of
from orchestrator.errors import ArtifactError, OutputParseError
from orchestrator.files import expanded
from orchestrator.passes import pass_of
from orchestrator.plugins import (
    Option,
    Program,
    command_line,
    format_flags,
    library_folders,
    on_cores,
    pass_flags,
    run_and_collect,
)
from orchestrator.ports import Device, InvocationRequest, TokenPhase
from orchestrator.reading.failures import end_failure
from orchestrator.reading.lines import program_lines
from orchestrator.reading.litert_lm import (
    Process,
    decode_metrics,
    processes_in,
    report_of,
)
from orchestrator.records.case import Build, BuildSha, Case, ToolName
from orchestrator.records.device import DeviceKind
from orchestrator.records.model import (
    CACHE,
    FIGURE,
    PHASES,
    REPETITIONS,
    TOKENS,
    asked_tokens,
    phase_of,
)
from orchestrator.records.run import DelegateEvidence, RawOutput, ToolReport

_USUAL_REPETITIONS: Final = "5"
#: A flag of the command alone.
_SPECULATIVE: Final = "speculative_decoding"
#: Flags of a plan that become others of a program; all else is passed on unchanged.
_OWN_FLAGS: Final = frozenset({*TOKENS, REPETITIONS, CACHE, FIGURE})
#: What the program writes at its end, by a flag of 2026; and further flags that only newer builds
#: have.
METRICS: Final = "metrics.pb"
_METRICS_FLAG: Final = "metric_proto_file_path"
_NEWER_FLAGS: Final = frozenset({_METRICS_FLAG, "boost_performance"})
_UNKNOWN_FLAG: Final = re.compile(rb"Unknown command line flag '(\w+)'")
_DECODE: Final = "--benchmark_decode_tokens="
#: Values of ``cache`` with which a cache is kept on disk.
_ON_DISK: Final = frozenset({"cold", "disk"})
#: Runs a command and prints the peak of its memory as the phone's program does, in units of 2**20
#: bytes.
_PEAK_MEMORY: Final = """\
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
print(f"Peak system ram usage: {peak:.2f}MB.", file=sys.stderr)
sys.exit(code if code >= 0 else 128 - code)
"""


class LitertLmTool:
    """Runs the program detached from the link and reads prefill and decode from what it printed."""

    name = ToolName.LITERT_LM

    def __init__(self) -> None:
        """Begin without knowing which flags a build lacks."""
        self._unknown: dict[BuildSha, set[str]] = {}

    def session(self, case: Case) -> str:
        """See SessionTool.session: prefill and decode are measured by one process."""
        return case.without_figure.case_key

    def run(self, device: Device, request: InvocationRequest) -> RawOutput:
        """Run one process and return its output, however it ends.

        Raises DeviceError kinds, UsageError.
        """
        folder = device.run_folder(request.run_id)
        if device.kind is not DeviceKind.ANDROID:
            return run_and_collect(device, request, _host_command(request, folder), files=())
        build = request.case.build_sha256
        while True:
            left_out = self._unknown.setdefault(build, set())
            command = _phone_command(request, folder, left_out)
            raw = run_and_collect(device, request, command, files=(METRICS,))
            # Older programs lack some flags, and exit at an unknown one before doing anything.
            refused = (
                _UNKNOWN_FLAG.search(raw.data("stdout") + raw.data("stderr"))
                if raw.exit_code == 1
                else None
            )
            name = refused[1].decode() if refused is not None else ""
            if name not in _NEWER_FLAGS or name in left_out:
                return raw
            left_out.add(name)

    def for_energy(self, case: Case, repetitions: int) -> Case:
        """See PhasedTool.for_energy: a prompt without an answer; an answer always has a prompt before
        it.
        """
        flags = {**dict(case.flags), REPETITIONS: str(repetitions)}
        if phase_of(flags) == PHASES[0]:
            flags["decode_tokens"] = "1"
        return dataclasses.replace(case, flags=tuple(sorted(flags.items())))

    def token_phases(self, raw: RawOutput, case: Case) -> Sequence[TokenPhase]:
        """See PhasedTool.token_phases."""
        phase = phase_of(dict(case.flags))
        phases: list[TokenPhase] = []
        before_s = None
        for repetition in _process(raw).repetitions:
            phase_turns = [*repetition.turns.values()]
            length_s = sum(turns.time_us for turns in phase_turns) / 1e6
            if before_s is not None and repetition.at_s is not None:
                # Over midnight too.
                between_s = (repetition.at_s - before_s) % 86_400 - length_s
                phases += (
                    [TokenPhase(seconds=between_s, tokens=0, is_own=False)]
                    if 0 < between_s < length_s
                    else []
                )
            before_s = repetition.at_s
            phases += [
                TokenPhase(seconds=turns.time_us / 1e6, tokens=turns.tokens, is_own=name == phase)
                for name, turns in zip(PHASES, phase_turns, strict=True)
            ]
        return phases

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Read the case's own figure; the exit code counts only where the output doesn't say more."""
        process = _process(raw)
        flags = dict(case.flags)
        phase = phase_of(flags)
        process.backend = _backend(case)
        process.asked = asked_tokens(flags)
        # A block of energy asks for other numbers than the case.
        process.asked |= {
            name: int(count)
            for name, count in re.findall(r"--benchmark_(\w+_tokens)=(\d+)", raw.command)
        }
        report = _with_end_failure(report_of(process, phase, requested=case.delegate.value), raw)
        return dataclasses.replace(
            report, label=phase, extra={**report.extra, "engine": _engine(raw)}
        )


def _process(raw: RawOutput) -> Process:
    """Return the last process of a run, read from its output."""
    lines = (line for name in ("stdout", "stderr") for line in program_lines(raw.data(name)))
    process = next(reversed(processes_in(lines, is_known=True)), None) or Process()
    _take_metrics(process, raw)
    return process


def _take_metrics(process: Process, raw: RawOutput) -> None:
    """Add the metrics file that the program writes at its end; where the text has no results, these
    are the results.
    """
    if f"--{_METRICS_FLAG}=" not in raw.command:
        return
    printed_count = len(process.repetitions)
    try:
        metrics = decode_metrics(raw.data(METRICS))
    except OutputParseError as error:
        # Without results there is nothing to doubt; with them the program's last act is missing.
        if printed_count:
            process.disagreements = (
                f"{METRICS}, which the program writes at its end, is missing: {error}",
            )
        return
    if printed_count and printed_count != len(metrics.repetitions):
        process.disagreements = (
            f"{printed_count} repetitions were printed, {METRICS} has {len(metrics.repetitions)}",
        )
    # The text has nanoseconds, the file whole microseconds.
    for name in ("repetitions", "peak_mib", "private_mib", "dmabuf_mib"):
        setattr(process, name, getattr(process, name) or getattr(metrics, name))
    iterations = re.search(r"--num_iterations=(\d+)", raw.command)
    if (
        iterations is not None
        and process.repetitions
        and len(process.repetitions) < int(iterations[1])
    ):
        shortfall = f"{len(process.repetitions)} of {iterations[1]} repetitions are in the results"
        process.disagreements = (*process.disagreements, shortfall)


def _with_end_failure(report: ToolReport, raw: RawOutput) -> ToolReport:
    """Return a report with the failure that the process's end shows, if any."""
    failure = end_failure(raw)
    has_own_failure = report.failure_code not in {"", "no-result"} and not raw.timed_out
    if (
        failure is None
        or has_own_failure
        or (report.failure_code and failure.code == "benchmark-failed")
    ):
        return report
    delegate = DelegateEvidence(requested=report.delegate.requested, lines=report.delegate.lines)
    return failure.report(delegate, report.extra)


def _engine(raw: RawOutput) -> str:
    """Return whether the measured engine had done nothing before: only the phone's program warms it
    up.
    """
    return "fresh" if "--skip-warmup" in raw.command else "reused"


def _backend(case: Case) -> str:
    return flags_of(case.delegate, FlagFamily.LITERT_LM)["backend"]


def _host_command(request: InvocationRequest, folder: str) -> str:
    """Return the command line of ``litert-lm benchmark``; what the user's own settings say doesn't
    count.

    Caches are kept beside the model and named after its time: a link in the run's own folder keeps
    them apart from other runs and from the user's files, so that they are cold. A process before
    fills them, or is left out. The command's own warm-up isn't used: since 0.19 it leaves its
    engine to the run, which is another quantity.
    """
    flags, case = dict(request.case.flags), request.case
    backend, cache, model = _backend(case), flags.get(CACHE, "no"), request.model_path
    is_kept = cache in _ON_DISK
    link = f"{folder}/{model.rpartition('/')[2]}"
    words = [
        request.program_path,
        "benchmark",
        link if is_kept else model,
        "--config",
        "/dev/null",
        "--verbose",
        "--runs",
        "1",
        "--skip-warmup",
        "--prefill-tokens",
        flags["prefill_tokens"],
        "--decode-tokens",
        flags["decode_tokens"],
        "--max-num-tokens",
        flags["max_num_tokens"],
        "--cache",
        "disk" if is_kept else cache,
        "--backend",
        backend,
    ]
    if backend == "cpu":
        words += ["--cpu-thread-count", str(case.threads)]
    if mode := flags.get(_SPECULATIVE):
        words += [f"--{_SPECULATIVE.replace('_', '-')}", mode]
    words = on_cores(request, words)
    filling = "" if cache == "cold" else f"{shlex.join(words)} > /dev/null 2>&1; "
    if pass_of(request.run_pass).measures_memory:
        # The command prints no memory; its parent process gets it from the system.
        words = [sys.executable, "-c", _PEAK_MEMORY, *words]
    linked = f"ln -s {shlex.quote(model)} {shlex.quote(link)} && " if is_kept else ""
    return f"{linked}{{ {filling}{shlex.join(words)}; }}"


def _phone_command(request: InvocationRequest, folder: str, left_out: Set[str]) -> str:
    """Return the command line of ``litert_lm_advanced_main``, one message at a time, its log as
    full as it goes.

    Caches are kept in the run's own folder, which is new: beside the model their names hold its
    time, so that a model that was sent again would be cold and others' caches would stay. A process
    before fills them, where they are to be warm. ``left_out``: flags that the build hasn't.
    """
    flags, case = dict(request.case.flags), request.case
    cache = flags.get(CACHE, "no")
    arguments = [
        f"--backend={_backend(case)}",
        f"--model_path={request.model_path}",
        "--benchmark=true",
        f"--benchmark_prefill_tokens={flags['prefill_tokens']}",
        f"--benchmark_decode_tokens={flags['decode_tokens']}",
        f"--max_num_tokens={flags['max_num_tokens']}",
        f"--num_iterations={flags.get(REPETITIONS, _USUAL_REPETITIONS)}",
        "--async=false",
        "--min_log_severity=0",
        f"--num_cpu_threads={case.threads}",
        *format_flags({name: value for name, value in case.flags if name not in _OWN_FLAGS}),
    ]
    places = {"no": "--disable_cache=true", "memory": "--cache_dir=:memory"}
    arguments.append(places.get(cache, f"--cache_dir={folder}"))
    filling = [
        argument
        for argument in arguments
        if not argument.startswith(("--num_iterations=", _DECODE))
    ]
    newer = {
        _METRICS_FLAG: f"{folder}/{METRICS}",
        # Its own priority and choice of cores are what no app gets.
        "boost_performance": "disabled",
    }
    arguments += [f"--{name}={value}" for name, value in newer.items() if name not in left_out]
    arguments += format_flags(pass_flags(pass_of(request.run_pass), FlagFamily.LITERT_LM, folder))
    if folders := library_folders(request):
        arguments.append(f"--litert_dispatch_lib_dir={folders[0]}")
        filling.append(f"--litert_dispatch_lib_dir={folders[0]}")
    measured = f"{command_line(request, arguments)} < /dev/null"
    if cache != "disk":
        return measured
    return f"{command_line(request, [*filling, f'{_DECODE}1'])} < /dev/null > /dev/null 2>&1; {measured}"


def on_path(program: str, name_or_path: str, hint: str) -> Path:
    """Return a program of this computer, ``name_or_path`` or on PATH; raises ArtifactError."""
    path = expanded(Path(name_or_path or shutil.which(program) or program)).absolute()
    if not path.is_file():
        where = f"at {name_or_path}" if name_or_path else "on PATH"
        raise ArtifactError(f"{program} isn't {where}", hint=hint)
    return path


def installed_build(name_or_path: str) -> Build:
    """Return the command litert-lm of this computer, ``name_or_path`` or on PATH, known by the hashes of
    its packages' files.

    Raises ArtifactError where there is none, or it isn't installed as a package.
    """
    hint = "pip install litert-lm in an environment of its own, then --build litert-lm=ENVIRONMENT/bin/litert-lm"
    path = on_path("litert-lm", name_or_path, hint)
    records = sorted(
        path.parent.parent.glob("lib/python*/site-packages/litert_lm*.dist-info/RECORD")
    )
    if not records:
        raise ArtifactError(
            f"{path} isn't an installed litert-lm",
            hint="name the program in its environment's folder bin",
        )
    folders = [record.parent.name.removesuffix(".dist-info") for record in records]
    version = next(
        (name.partition("-")[2] for name in folders if name.startswith("litert_lm-")), ""
    )
    return Build(
        name=f"litert-lm {version}".rstrip(),
        tool=ToolName.LITERT_LM,
        sha256=BuildSha(
            hashlib.sha256(b"".join(record.read_bytes() for record in records)).hexdigest()
        ),
        abi=platform.machine(),
        version=version,
        path=path,
    )


def _figures(delegate: Delegate, plan_flags: Option) -> tuple[Option, ...]:
    """Return the flags of both figures of a process: how many tokens, where the plan doesn't say,
    and which figure.
    """
    del delegate
    usual = tuple((name, value) for name, value in TOKENS.items() if name not in dict(plan_flags))
    return tuple((*usual, (FIGURE, phase)) for phase in PHASES)


PROGRAM = Program(
    name=ToolName.LITERT_LM,
    tool=LitertLmTool,
    kinds=frozenset({DeviceKind.ANDROID, DeviceKind.HOST}),
    family=FlagFamily.LITERT_LM,
    options=_figures,
    is_for_bundles=True,
    file_name="litert_lm_advanced_main",
    installed=installed_build,
)
