"""How programs are started, and what they leave behind: their flags, where they find their libraries,
their scheduling group; run detached, their output collected and read.

Every default that may change the number is passed explicitly. ``use_xnnpack`` above all: without it
the programs apply XNNPACK by themselves and say so in one line at most. An accelerator's leftovers
run on the builtin kernels unless the plan's flags say otherwise.

Scheduling groups (cgroups) belong to the system: root may write them. Android 13's
``settaskprofile`` writes the same files with its caller's rights, so that a plain shell user gets
there only on systems that let it. Each way is tried and the kernel is asked where the process is; a
program that isn't there doesn't run.

An app that somebody else starts is a program too: what it printed is kept whole with every run that
was read from it (a store keeps equal content once), and beside it which of the runs in it is meant,
so that everything can be read again.
"""

from __future__ import annotations

import json
import re
import shlex
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final

from orchestrator.delegates import DELEGATES, FlagFamily, delegates_of
from orchestrator.errors import DeviceError, UsageError
from orchestrator.files import sha256_of
from orchestrator.passes import pass_of
from orchestrator.passes.specification import (
    NOTHING_PREPARED,
    OMITTABLE_FLAGS,
    PROFILE_FILE,
    RUNTIME_INFO_FILE,
    PassSpec,
    Prepared,
)
from orchestrator.ports import Device, InvocationRequest
from orchestrator.programs import Program
from orchestrator.reading.lines import threadtime_header
from orchestrator.reading.report import RunFiles, Started, parse_run
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
from orchestrator.records.device import DeviceKind
from orchestrator.records.run import SAMPLES_FILE, Attachment, RawOutput, ToolReport
from orchestrator.scripts import ask, call

#: The last bytes that are kept of a log since a run's begin; where that moment is unknown, lines
#: that are asked for.
_LOG_LIMIT_BYTES: Final = 256 << 10
_LOG_LINES: Final = 500
_LOG_TIMEOUT_S: Final = 15.0
#: How a log names the process that it is about.
_NAMED_PID: Final = re.compile(
    rb"(?:(?:Kill|Reclaim) '[^']*' \(|\b(?:pid|PID)[:=]? ?|PhantomProcessRecord \{\w+ )(\d+)"
)
#: What happens to apps only, in lines that don't all name a process.
_OF_APPS: Final = (b"ANR in ", b"AndroidRuntime")
#: Numbers of processes restart after a power of two that is at least this one.
_PIDS_MIN: Final = 1 << 15
#: Processes that are started on a phone while a run begins, with those of others.
_PIDS_OF_A_RUN: Final = 1 << 10
#: A native program's file name in its command line, before the first flag.
_PROGRAM: Final = re.compile(r"/([^/\s']+)'? --")


class CollectingTool:
    """A program that is run detached from the link; its streams, exit code and files are read
    afterwards.
    """

    name: ToolName
    #: Whose flags it has.
    family = FlagFamily.BENCHMARK_MODEL

    def command(self, request: InvocationRequest, folder: str) -> str:
        """Return the command line for the device's shell; ``folder`` is the run's own.

        Raises UsageError.
        """
        raise NotImplementedError

    def run(
        self,
        device: Device,
        request: InvocationRequest,
        *,
        cancelled: threading.Event | None = None,
    ) -> RawOutput:
        """Run one invocation; whatever its end, return all that it left behind.

        Raises DeviceError kinds.
        """
        command = self.command(request, device.run_folder(request.run_id))
        return run_and_collect(
            device,
            request,
            command,
            files=files_written(request.run_pass, self.family),
            cancelled=cancelled,
        )

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Read the output; an unreadable output is a report that says so."""
        return read_collected(raw, case)


def run_and_collect(
    device: Device,
    request: InvocationRequest,
    command: str,
    *,
    files: Sequence[str],
    cancelled: threading.Event | None = None,
    log_tags: Collection[str] = (),
) -> RawOutput:
    """Run a command line in the request's own folder and return its streams and those of ``files``
    that it wrote.

    With a run that failed, or that prints to the log under ``log_tags``, comes what the phone
    logged meanwhile. Whatever its end, the folder is removed. Raises DeviceError kinds.
    """
    folder = device.run_folder(request.run_id)
    command = request.enclosed(in_mode(command, request))
    started_at = datetime.now(UTC)
    try:
        result = device.run_detached(
            command,
            run_id=request.run_id,
            timeout_s=request.timeout_s,
            files=(*files, *request.enclosing_files, *mode_files(request), SAMPLES_FILE),
            cancelled=cancelled,
        )
        written = [Attachment(name=name, data=data) for name, data in result.files.items()]
        if (result.exit_code or log_tags) and device.kind is DeviceKind.ANDROID:
            written += _logged(device, folder, log_tags)
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
            *written,
        ),
    )


def _logged(device: Device, folder: str, tags: Collection[str]) -> list[Attachment]:
    """Return what a phone logged since a run of ours began: what killed it, or what it was denied,
    and what it printed under ``tags``.
    """
    try:
        scripts = {
            "leader": f"cat {shlex.quote(folder)}/pid",
            "log": call("log_since", folder, _LOG_LINES),
        }
        answer = ask(partial(device.shell, timeout_s=_LOG_TIMEOUT_S), scripts)
    except DeviceError:
        # The run is whole without it.
        return []
    leader = answer.value("leader")
    told = _without_strangers(
        answer.sections.get("log", b""), int(leader) if leader.isdigit() else None, tags
    )
    if len(told) > _LOG_LIMIT_BYTES:
        told = told[-_LOG_LIMIT_BYTES:].partition(b"\n")[2]
    return [Attachment(name="logcat", data=told)] if told.strip() else []


def _without_strangers(log: bytes, leader: int | None, tags: Collection[str]) -> bytes:
    """Leave out lines that name another process than a run's, or under ``tags`` are of another, or
    that are about apps.

    What the run before did in the same second seems to have happened since, as after a jump of the
    phone's clock. A run's processes have the numbers right after its shell's, ``leader``, which
    restart after the highest.
    """
    if leader is None:
        return log

    def is_ours(line: bytes) -> bool:
        if any(words in line for words in _OF_APPS):
            return False
        named = [int(pid) for pid in _NAMED_PID.findall(line)]
        header = threadtime_header(line.decode("utf-8", "replace")) if tags else None
        if header is not None and header.pid is not None and header.tag in tags:
            named = [header.pid]
        return not named or any(0 <= (pid - leader) % _PIDS_MIN < _PIDS_OF_A_RUN for pid in named)

    return b"".join(line for line in log.splitlines(keepends=True) if is_ours(line))


def read_collected(raw: RawOutput, case: Case) -> ToolReport:
    """Read a program's streams, log and result files; an unreadable output is a report that says
    so.
    """
    program = _PROGRAM.search(raw.command)
    return parse_run(
        stdout=raw.data("stdout"),
        stderr=raw.data("stderr"),
        logcat=raw.data("logcat"),
        exit_code=raw.exit_code,
        timed_out=raw.timed_out,
        files=RunFiles(
            result_pb=raw.data(RESULT_FILE),
            runtime_info_pb=raw.data(RUNTIME_INFO_FILE),
            op_profile_pb=raw.data(PROFILE_FILE),
        ),
        requested=case.delegate.value,
        started=Started(program=program[1] if program is not None else "", flags=dict(case.flags)),
    )


RESULT_FILE: Final = "result.pb"


def benchmark_flags(request: InvocationRequest, *, folder: str) -> dict[str, str]:
    """Return the flags of one invocation, delegates in the order in which they are to be applied.

    ``folder`` is where the program may write its result files. Raises UsageError for a delegate
    that this family of programs doesn't have, and for a flag that isn't the plan's to set.
    """
    own = pass_of(request.run_pass)
    prepared = Prepared(
        model_path=request.model_path,
        folder=folder,
        variant=request.variant,
        cache_folder=request.cache_folder,
        inputs=request.inputs,
    )
    flags = case_flags(request.case, own, request.known_flags, prepared)
    skels = hexagon_folder(request)
    if skels:
        flags.setdefault("hexagon_lib_path", skels)
    return {name: placed_value(value, request) for name, value in flags.items()}


def placed_value(value: str, request: InvocationRequest) -> str:
    """Return a flag's value with ``@name`` of one of the case's files as that file's path on the
    device.
    """
    return request.file_paths.get(value[1:], value) if value.startswith("@") else value


def files_written(
    run_pass: Pass, family: FlagFamily = FlagFamily.BENCHMARK_MODEL
) -> tuple[str, ...]:
    """Return the files that a program writes in a pass, by the flags that it is given."""
    return (RESULT_FILE, *pass_of(run_pass).files.get(family, {}).values())


def pass_flags(own: PassSpec, family: FlagFamily, folder: str) -> dict[str, str]:
    """Return the flags that a pass means for programs of a family; they write their files to
    ``folder``.
    """
    files = {name: f"{folder}/{file}" for name, file in own.files.get(family, {}).items()}
    return {**own.flags.get(family, {}), **files}


def own_flags(case: Case, own: PassSpec, family: FlagFamily, prepared: Prepared) -> dict[str, str]:
    """Return the flags that a case, its delegate and its pass mean for programs of a family.

    Raises UsageError for a delegate that these programs don't have.
    """
    chosen = DELEGATES[case.delegate].flags.get(family)
    if chosen is None:
        known = ", ".join(sorted(delegates_of(family, DeviceKind.ANDROID)))
        raise UsageError(f"{case.tool} has no delegate {case.delegate}: it has {known}")
    return {
        **measuring_flags(case, prepared.model_path),
        **chosen,
        "result_file_path": f"{prepared.folder}/{RESULT_FILE}",
        **pass_flags(own, family, prepared.folder),
    }


def case_flags(
    case: Case,
    own: PassSpec,
    known: frozenset[str] = frozenset(),
    prepared: Prepared = NOTHING_PREPARED,
) -> dict[str, str]:
    """Return the flags of one pass over a case, see :func:`benchmark_flags`.

    ``known`` are the flags that the very program has, where that is known: those of ours that only
    gather more are left out when it doesn't have them, and so is ``use_xnnpack=false`` where there
    is no XNNPACK to leave out.
    """
    flags = own_flags(case, own, FlagFamily.BENCHMARK_MODEL, prepared)
    if known:
        flags = {
            name: value
            for name, value in flags.items()
            if name in known
            or not (name in OMITTABLE_FLAGS or (name, value) == ("use_xnnpack", "false"))
        }
    flags |= users_flags(case)
    flags = {name: value for name, value in flags.items() if name not in own.withheld_flags}
    return {**flags, **own.last_flags(case, prepared)}


def measuring_flags(case: Case, model_path: str) -> dict[str, str]:
    """Return the flags that all programs have: what is measured, and for how long."""
    return {
        "graph": model_path,
        "num_threads": str(case.threads),
        "num_runs": str(case.num_runs),
        "min_secs": f"{case.min_secs:g}",
        "max_secs": f"{case.max_secs:g}",
        "warmup_runs": str(case.warmup_runs),
        "warmup_min_secs": f"{case.warmup_min_secs:g}",
    }


def users_flags(case: Case, owned: Collection[str] = ()) -> dict[str, str]:
    """Return the flags that a plan sets; raises UsageError for one that isn't its to set, or that
    ``owned`` names.
    """
    for name, _ in case.flags:
        if name in OWNED_FLAGS or name in owned:
            raise UsageError(
                f"flag {name} follows from the plan's own keys and can't be set beside them"
            )
    return dict(case.flags)


def format_flags(flags: Mapping[str, str]) -> list[str]:
    """Return the flags as the programs read them: ``--name=value``, one word each, not quoted for a
    shell.
    """
    return [f"--{name}={value}" for name, value in flags.items()]


#: Where the vendors keep the DSP's own libraries; searched after ours.
_DSP_FOLDERS: Final = ("/vendor/lib/rfsa/adsp", "/vendor/dsp/cdsp", "/system/lib/rfsa/adsp", "/dsp")
_HEXAGON_SKEL: Final = "libhexagon_nn_skel"


def library_folders(request: InvocationRequest) -> list[str]:
    """Return the folders of the program and of its files, each once, the program's first."""
    paths = [request.program_path, *request.file_paths.values()]
    return list(dict.fromkeys(str(PurePosixPath(path).parent) for path in paths))


def environment(request: InvocationRequest, **more: str) -> str:
    """Return the assignments to stand before a command in the device's shell, quoted; ``more`` are
    a program's own.

    A DSP loads its libraries through a service of the phone, which searches ADSP_LIBRARY_PATH,
    divided by semicolons.
    """
    folders = library_folders(request)
    variables = {"LD_LIBRARY_PATH": ":".join(folders)}
    if DELEGATES[request.case.delegate].is_on_dsp:
        variables["ADSP_LIBRARY_PATH"] = ";".join([*folders, *_DSP_FOLDERS])
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in (variables | more).items())


def hexagon_folder(request: InvocationRequest) -> str:
    """Return the folder of the libraries that run on the Hexagon DSP, empty when none was placed."""
    paths = (path for name, path in request.file_paths.items() if name.startswith(_HEXAGON_SKEL))
    return next((str(PurePosixPath(path).parent) for path in paths), "")


#: Where the kernel's word is kept: /proc/PID/cgroup of the shell that then runs the program.
MODE_FILE: Final = "mode"
_EXIT_CODE: Final = 97


def in_mode(command: str, request: InvocationRequest) -> str:
    """Return the command line that runs ``command`` in the case's mode, or ends with a line that
    says why not.
    """
    return call("top_app", MODE_FILE, _EXIT_CODE) + command if mode_files(request) else command


def mode_files(request: InvocationRequest) -> tuple[str, ...]:
    """Return the file that in_mode's command writes, if the program is moved at all."""
    is_moved = (
        request.case.process_mode is ProcessMode.TOP_APP
        and request.facts.kind is DeviceKind.ANDROID
    )
    return (MODE_FILE,) if is_moved else ()


#: The attachment that holds the text or file as it was imported.
SOURCE: Final = "imported"
#: The attachment that says which run of it is meant: ``{"run": 0}``.
_SELECTION: Final = "selection.json"


class ImportedTool:
    """Reads what an app left behind; benchfarm doesn't start it."""

    def __init__(self, name: ToolName, read: Callable[[str], list[ToolReport]]) -> None:
        """``read`` returns the runs of a text in their order."""
        self.name = name
        self._read = read

    def run(
        self,
        device: Device,
        request: InvocationRequest,
        *,
        cancelled: threading.Event | None = None,
    ) -> RawOutput:
        """Raise UsageError: the app isn't started by benchfarm."""
        key = request.case.case_key
        raise UsageError(
            f"{self.name} isn't started by benchfarm; its results are imported (case {key})"
        )

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Read the run that was selected at import; a text without it is a report that says so."""
        reports = self._read(raw.data(SOURCE).decode("utf-8", "replace"))
        chosen = int(json.loads(raw.data(_SELECTION) or b"{}").get("run", 0))
        if chosen < len(reports):
            return reports[chosen]
        reason = (
            f"the text holds {len(reports)} results, of {case.model_name} not number {chosen + 1}"
        )
        return ToolReport(outcome="failed", failure_code="no-result", failure_reason=reason)


def source_of(data: bytes, run: int) -> tuple[Attachment, ...]:
    """Return the attachments of run number ``run``, counted from 0, of an imported file."""
    return (
        Attachment(name=SOURCE, data=data),
        Attachment(name=_SELECTION, data=json.dumps({"run": run}).encode()),
    )


def foreign_build(program: Program, named: str) -> Build:
    """Return the build of an app that was built and started elsewhere.

    ``named`` with a slash is the path of the app's own file (an ``.ipa``, an APK, a framework's
    archive), by whose content it is known. Anything else is a description such as ``TensorFlow
    2.17``; the build is known by this text then, for its content was never seen. Raises UsageError
    for a file that can't be read.
    """
    if "/" in named:
        path = Path(named).expanduser()
        try:
            sha256 = sha256_of(path)
        except OSError as error:
            raise UsageError(
                f"{path}: {error.strerror}", hint="name the app's own file, or describe it"
            ) from error
        return Build(name=path.name, tool=program.name, sha256=BuildSha(sha256), abi="", version="")
    return described_build(program, {"described as": named}, name=program.title, version=named)


def described_build(
    program: Program, told: Mapping[str, object], *, name: str, version: str
) -> Build:
    """Return a build whose content was never seen: it is known by what is told of it."""
    sha256 = BuildSha(content_key({"program": program.title, **told}))
    return Build(name=name, tool=program.name, sha256=sha256, abi="", version=version)
