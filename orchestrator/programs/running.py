"""Runs programs detached, with their flags, library folders and scheduling group; collects and reads
their output.

Every default that may change the number is passed explicitly, ``use_xnnpack`` above all: without it
the programs apply XNNPACK by themselves and print one line at most. Operators that an accelerator
leaves run on the builtin kernels unless the plan's flags say otherwise.

Scheduling groups (cgroups) belong to the system: root may write them. Android 13's
``settaskprofile`` writes the same files with its caller's rights, so that a plain shell user may
write them only on some systems. Each way is tried, and the kernel is asked for the process's group;
a program outside the group doesn't run.

An app that benchfarm doesn't start is a program too: its whole output is stored with every run that
was read from it (a store keeps equal content once), with the number of the run in it, so that
everything can be read again.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final

from orchestrator.delegates import DELEGATES, FlagFamily, delegates_of
from orchestrator.errors import DeviceError, UsageError
from orchestrator.files import expanded, sha256_of
from orchestrator.passes import pass_of
from orchestrator.passes.specification import (
    OMITTABLE_FLAGS,
    PassSpec,
)
from orchestrator.ports import DetachedCommand, Device, InvocationRequest
from orchestrator.program import Program
from orchestrator.reading.failures import Failure
from orchestrator.reading.lines import threadtime_header
from orchestrator.reading.report import parse_run
from orchestrator.records.build_spec import OWNED_FLAGS
from orchestrator.records.case import (
    Build,
    BuildSha,
    Case,
    Pass,
    ProcessMode,
    ToolName,
    content_key,
)
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.run import RESULT_FILE, SAMPLES_FILE, Attachment, RawOutput, ToolReport
from orchestrator.scripts import run_scripts, script_command

#: The most bytes that are kept of a log since a run's start; if that is unknown, the lines to read.
_LOG_LIMIT_BYTES: Final = 256 << 10
_LOG_LINES: Final = 500
_LOG_TIMEOUT_S: Final = 15.0
#: The number of the process that a log line is about.
_NAMED_PID: Final = re.compile(
    rb"(?:(?:Kill|Reclaim) '[^']*' \(|\b(?:pid|PID)[:=]? ?|PhantomProcessRecord \{\w+ )(\d+)"
)
#: Log lines about apps only; not all name a process.
_APP_MARKS: Final = (b"ANR in ", b"AndroidRuntime")
#: Process numbers restart at a power of two, at least this one.
_PIDS_MIN: Final = 1 << 15
#: The most processes that start on a phone while a run begins.
_PIDS_PER_RUN: Final = 1 << 10


class CollectingTool:
    """A program that runs detached from the connection; its streams, exit code and files are read
    afterwards.
    """

    name: ToolName
    #: The family whose flags it has.
    family = FlagFamily.BENCHMARK_MODEL

    def command(self, request: InvocationRequest, folder: str) -> str:
        """Return the command line for the device's shell; ``folder`` is the run's own.

        Raises UsageError.
        """
        raise NotImplementedError

    def run(self, device: Device, request: InvocationRequest) -> RawOutput:
        """Run one invocation and return its raw output, however it ends.

        Raises DeviceError kinds.
        """
        command = self.command(request, device.run_folder(request.run_id))
        return run_and_collect(
            device,
            request,
            command,
            files=files_written(request.run_pass, self.family),
        )

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Read the output; an unreadable output gives a failed report."""
        return parse_run(raw, requested=case.delegate.value, flags=dict(case.flags))


def run_and_collect(
    device: Device,
    request: InvocationRequest,
    command: str,
    *,
    files: Sequence[str],
    log_tags: Collection[str] = (),
) -> RawOutput:
    """Run a command line in the request's own folder and return its streams and those of ``files``
    that it wrote.

    A failed run, or one that prints to the log under ``log_tags``, adds the phone's log of that
    time. The folder is always removed. Raises DeviceError kinds.
    """
    folder = device.run_folder(request.run_id)
    command = request.enclosed(in_mode(command, request))
    started_at = datetime.now(UTC)
    try:
        result = device.run_detached(
            DetachedCommand(
                line=command,
                run_id=request.run_id,
                timeout_s=request.timeout_s,
                away_s=request.away_s,
                files=(*files, *request.enclosing_files, *mode_files(request), SAMPLES_FILE),
                cancelled=request.cancelled,
            )
        )
        attachments = [Attachment(name=name, data=data) for name, data in result.files.items()]
        if (result.exit_code or log_tags) and device.kind is DeviceKind.ANDROID:
            attachments += _read_log(device, folder, log_tags)
    finally:
        device.discard_run(request.run_id)
    return RawOutput(
        command=command,
        exit_code=result.exit_code,
        timed_out=result.timed_out,
        started_at=started_at,
        duration_s=result.duration_s,
        attachments=(
            Attachment(name="stdout", data=result.stdout),
            Attachment(name="stderr", data=result.stderr),
            *attachments,
        ),
    )


def _read_log(device: Device, folder: str, tags: Collection[str]) -> list[Attachment]:
    """Return a phone's log since a run began: why it was killed, what it was denied, and what it
    printed under ``tags``.
    """
    try:
        scripts = {
            "leader": f"cat {shlex.quote(folder)}/pid",
            "log": script_command("log_since", folder, _LOG_LINES),
        }
        answer = run_scripts(partial(device.shell, timeout_s=_LOG_TIMEOUT_S), scripts)
    except DeviceError:
        # The run is complete without its log.
        return []
    leader = answer.value("leader")
    log = _filter_log(
        answer.sections.get("log", b""), int(leader) if leader.isdigit() else None, tags
    )
    if len(log) > _LOG_LIMIT_BYTES:
        log = log[-_LOG_LIMIT_BYTES:].partition(b"\n")[2]
    return [Attachment(name="logcat", data=log)] if log.strip() else []


def _filter_log(log: bytes, leader: int | None, tags: Collection[str]) -> bytes:
    """Leave out lines that name another process than a run's, or under ``tags`` are another's, or
    that are about apps.

    The log may contain lines of the run before in the same second, and older ones after a jump of
    the phone's clock. A run's processes have the numbers right after its shell's, ``leader``;
    numbers restart after the highest.
    """
    if leader is None:
        return log

    def is_about_run(line: bytes) -> bool:
        if any(words in line for words in _APP_MARKS):
            return False
        pids = [int(pid) for pid in _NAMED_PID.findall(line)]
        header = threadtime_header(line.decode("utf-8", "replace")) if tags else None
        if header is not None and header.pid is not None and header.tag in tags:
            pids = [header.pid]
        return not pids or any(0 <= (pid - leader) % _PIDS_MIN < _PIDS_PER_RUN for pid in pids)

    return b"".join(line for line in log.splitlines(keepends=True) if is_about_run(line))


def benchmark_flags(request: InvocationRequest, *, folder: str) -> dict[str, str]:
    """Return the flags of one invocation, delegates in the order in which they are applied.

    The program writes its result files to ``folder``. If the flags of the build are known,
    OMITTABLE_FLAGS that it lacks are left out, and so is ``use_xnnpack=false`` for a build without
    XNNPACK. Raises UsageError for a delegate that this family of programs doesn't have, and for a
    flag that a plan can't set.
    """
    pass_spec = pass_of(request.run_pass)
    flags = program_flags(request, FlagFamily.BENCHMARK_MODEL, folder)
    if request.known_flags:
        flags = {
            name: value
            for name, value in flags.items()
            if name in request.known_flags
            or not (name in OMITTABLE_FLAGS or (name, value) == ("use_xnnpack", "false"))
        }
    flags |= plan_flags(request.case)
    flags = {name: value for name, value in flags.items() if name not in pass_spec.withheld_flags}
    flags |= pass_spec.last_flags(request)
    for name, path in request.file_paths.items():
        if name.startswith(_HEXAGON_SKEL):
            flags.setdefault("hexagon_lib_path", str(PurePosixPath(path).parent))
    return {name: placed_value(value, request) for name, value in flags.items()}


def placed_value(value: str, request: InvocationRequest) -> str:
    """Return a flag's value, with ``@name`` of a case's file as its path on the device."""
    return request.file_paths.get(value[1:], value) if value.startswith("@") else value


def files_written(
    run_pass: Pass, family: FlagFamily = FlagFamily.BENCHMARK_MODEL
) -> tuple[str, ...]:
    """Return the files that a program's flags make it write in a pass."""
    return (RESULT_FILE, *pass_of(run_pass).files.get(family, {}).values())


def pass_flags(pass_spec: PassSpec, family: FlagFamily, folder: str) -> dict[str, str]:
    """Return a pass's flags for programs of a family, which write their files to ``folder``."""
    files = {name: f"{folder}/{file}" for name, file in pass_spec.files.get(family, {}).items()}
    return {**pass_spec.flags.get(family, {}), **files}


def program_flags(request: InvocationRequest, family: FlagFamily, folder: str) -> dict[str, str]:
    """Return the flags of a case, its delegate and its pass for programs of a family, which write
    their files to ``folder``.

    Raises UsageError for a delegate that these programs don't have.
    """
    case = request.case
    delegate_flags = DELEGATES[case.delegate].flags.get(family)
    if delegate_flags is None:
        delegates = ", ".join(sorted(delegates_of(family, DeviceKind.ANDROID)))
        raise UsageError(f"{case.tool} has no delegate {case.delegate}: it has {delegates}")
    return {
        **measuring_flags(case, request.model_path),
        **delegate_flags,
        "result_file_path": f"{folder}/{RESULT_FILE}",
        **pass_flags(pass_of(request.run_pass), family, folder),
    }


def measuring_flags(case: Case, model_path: str) -> dict[str, str]:
    """Return the flags that all programs have: the model, threads, counts and times."""
    return {
        "graph": model_path,
        "num_threads": str(case.threads),
        "num_runs": str(case.num_runs),
        "min_secs": f"{case.min_secs:g}",
        "max_secs": f"{case.max_secs:g}",
        "warmup_runs": str(case.warmup_runs),
        "warmup_min_secs": f"{case.warmup_min_secs:g}",
    }


def plan_flags(case: Case, owned: Collection[str] = ()) -> dict[str, str]:
    """Return the flags that a plan sets; raises UsageError for one that it can't set, or that is in
    ``owned``.
    """
    for name, _ in case.flags:
        if name in OWNED_FLAGS or name in owned:
            raise UsageError(
                f"flag {name} follows from other keys of the plan and can't be set as a flag"
            )
    return dict(case.flags)


def format_flags(flags: Mapping[str, str]) -> list[str]:
    """Return the flags as ``--name=value``, one word each, not quoted for a shell."""
    return [f"--{name}={value}" for name, value in flags.items()]


#: The vendors' folders for the DSP's libraries; searched after benchfarm's.
_DSP_FOLDERS: Final = ("/vendor/lib/rfsa/adsp", "/vendor/dsp/cdsp", "/system/lib/rfsa/adsp", "/dsp")
#: The beginning of the names of the libraries for the Hexagon DSP.
_HEXAGON_SKEL: Final = "libhexagon_nn_skel"


def library_folders(request: InvocationRequest) -> list[str]:
    """Return the folders of the program and of its files, each once, the program's first."""
    paths = [request.program_path, *request.file_paths.values()]
    return list(dict.fromkeys(str(PurePosixPath(path).parent) for path in paths))


def environment(request: InvocationRequest, **more: str) -> str:
    """Return the assignments before a command in the device's shell, quoted; ``more`` are a
    program's own.

    A DSP loads its libraries through a service of the phone, which searches ADSP_LIBRARY_PATH,
    separated by semicolons.
    """
    folders = library_folders(request)
    variables = {"LD_LIBRARY_PATH": ":".join(folders)}
    if DELEGATES[request.case.delegate].is_on_dsp:
        variables["ADSP_LIBRARY_PATH"] = ";".join([*folders, *_DSP_FOLDERS])
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in (variables | more).items())


def on_cores(request: InvocationRequest, words: list[str]) -> list[str]:
    """Return the words of a command restricted to the cores of its case."""
    mask = affinity_mask(request.case.affinity, request.facts)
    return ["taskset", mask, *words] if mask else words


def affinity_mask(affinity: str, facts: DeviceFacts) -> str:
    """Return the mask for the phone's taskset in hexadecimal, empty for no restriction.

    ``big`` is every core except those of the slowest cluster, as probed; empty where all cores are
    equal or their clocks are unknown. On a computer only a mask of the plan counts.
    """
    if affinity == "all":
        return ""
    if affinity != "big":
        return affinity.removeprefix("0x")
    all_cpus = {cpu for cluster in facts.clusters for cpu in cluster.cpus}
    if facts.kind is not DeviceKind.ANDROID or set(facts.big_cores) == all_cpus:
        return ""
    return f"{sum(1 << cpu for cpu in facts.big_cores):x}"


#: The file with /proc/PID/cgroup of the shell that then runs the program.
MODE_FILE: Final = "mode"
_EXIT_CODE: Final = 97


def in_mode(command: str, request: InvocationRequest) -> str:
    """Return the command line that runs ``command`` in the case's mode, or prints why it can't."""
    return (
        script_command("top_app", MODE_FILE, _EXIT_CODE) + command
        if mode_files(request)
        else command
    )


def mode_files(request: InvocationRequest) -> tuple[str, ...]:
    """Return the file that in_mode's command writes, if the program is moved at all."""
    is_moved = (
        request.case.process_mode is ProcessMode.TOP_APP
        and request.facts.kind is DeviceKind.ANDROID
    )
    return (MODE_FILE,) if is_moved else ()


#: The attachment with the imported text or file, unchanged.
SOURCE: Final = "imported"
#: The attachment with the number of the run in it: ``{"run": 0}``.
_SELECTION: Final = "selection.json"


class ImportedTool:
    """Reads the output of an app that benchfarm doesn't start."""

    def __init__(self, name: ToolName, read: Callable[[str], list[ToolReport]]) -> None:
        """``read`` returns the runs of a text in their order."""
        self.name = name
        self._read = read
        #: The last text, and its runs: a file's runs are parsed one after the other.
        self._last: tuple[bytes, list[ToolReport]] | None = None

    def run(self, device: Device, request: InvocationRequest) -> RawOutput:
        """Raise UsageError: the app isn't started by benchfarm."""
        key = request.case.case_key
        raise UsageError(
            f"{self.name} isn't started by benchfarm; its results are imported (case {key})"
        )

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Read the run that was selected at import; a text without it gives a failed report."""
        source = raw.data(SOURCE)
        if self._last is None or self._last[0] != source:
            self._last = source, self._read(source.decode("utf-8", "replace"))
        reports = self._last[1]
        chosen = int(json.loads(raw.data(_SELECTION) or b"{}").get("run", 0))
        if chosen < len(reports):
            return reports[chosen]
        reason = f"the text has {len(reports)} results; number {chosen + 1} of {case.model_name} is missing"
        return Failure(code="no-result", reason=reason).report()


def source_attachments(data: bytes, run: int) -> tuple[Attachment, ...]:
    """Return the attachments of run number ``run``, counted from 0, of an imported file."""
    return (
        Attachment(name=SOURCE, data=data),
        Attachment(name=_SELECTION, data=json.dumps({"run": run}).encode()),
    )


def foreign_build(program: Program, app: str) -> Build:
    """Return the build of an app that was built and started elsewhere.

    ``app`` with a slash is the path of the app's own file (an ``.ipa``, an APK, a framework's
    archive), whose content identifies the build. Otherwise a description such as ``TensorFlow
    2.17`` identifies it. Raises UsageError for a file that can't be read.
    """
    if "/" in app:
        path = expanded(Path(app))
        try:
            sha256 = sha256_of(path)
        except OSError as error:
            raise UsageError(
                f"{path}: {error.strerror}", hint="name the app's own file, or describe it"
            ) from error
        return Build(name=path.name, tool=program.name, sha256=BuildSha(sha256), abi="", version="")
    return described_build(program, {"described as": app}, name=program.title, version=app)


def described_build(
    program: Program, description: Mapping[str, object], *, name: str, version: str
) -> Build:
    """Return a build without a file, identified by its description."""
    sha256 = BuildSha(content_key({"program": program.title, **description}))
    return Build(name=name, tool=program.name, sha256=sha256, abi="", version=version)
