"""What a program runs in: where it finds its libraries, which caches it starts with, its scheduling group.

They lie in a folder of ours for each case: a stage that was put off comes after another case's.

The cgroups belong to the system: root may write them. Android 13's ``settaskprofile`` writes the same files with its
caller's rights, so that a plain shell user gets there only on systems that let it. Each way is tried and the kernel is
asked where the process is; a program that isn't there doesn't run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from orchestrator.delegates import DELEGATES
from orchestrator.errors import DeviceCommandError
from orchestrator.ports import Device, InvocationRequest
from orchestrator.records.device import DeviceKind
from orchestrator.records.run import Attachment, RawOutput, ToolReport
from orchestrator.records.start import StartStage, stage_of
from orchestrator.records.workload import DelegateName, ProcessMode
from orchestrator.scripts import ask, call

#: Where the vendors keep the DSP's own libraries; searched after ours.
_DSP_FOLDERS: Final = ("/vendor/lib/rfsa/adsp", "/vendor/dsp/cdsp", "/system/lib/rfsa/adsp", "/dsp")
_HEXAGON_SKEL: Final = "libhexagon_nn_skel"


def library_folders(request: InvocationRequest) -> list[str]:
    """Return the folders of the program and of its files, each once, the program's first."""
    paths = [request.program_path, *request.file_paths.values()]
    return list(dict.fromkeys(str(PurePosixPath(path).parent) for path in paths))


def environment(request: InvocationRequest) -> str:
    """Return the assignments to stand before a command in the device's shell, quoted.

    A DSP loads its libraries through a service of the phone, which searches ADSP_LIBRARY_PATH, divided by semicolons.
    """
    folders = library_folders(request)
    words = [f"LD_LIBRARY_PATH={shlex.quote(':'.join(folders))}"]
    if DELEGATES[request.case.delegate].is_on_dsp:
        words.append(f"ADSP_LIBRARY_PATH={shlex.quote(';'.join([*folders, *_DSP_FOLDERS]))}")
    return " ".join(words)


def hexagon_folder(request: InvocationRequest) -> str:
    """Return the folder of the libraries that run on the Hexagon DSP, empty when none was placed."""
    paths = (path for name, path in request.file_paths.items() if name.startswith(_HEXAGON_SKEL))
    return next((str(PurePosixPath(path).parent) for path in paths), "")


#: The attachment that says in which stage a process started, and how much was cached.
START_NOTE: Final = "start.txt"
#: A start needs one inference, the first; any further one is only what the programs insist on.
_FEWEST_RUNS: Final[Mapping[str, str]] = {
    "num_runs": "1", "min_secs": "0", "warmup_runs": "1", "warmup_min_secs": "0",
}  # fmt: skip
#: Flags of caches, also a user's own: in this pass only the stage says what is cached.
CACHE_FLAGS: Final = frozenset(
    {"delegate_serialize_dir", "delegate_serialize_token", "xnnpack_weight_cache_file_path"}
)  # fmt: skip
_NOTE: Final = re.compile(rb"stage=(?P<stage>[a-z-]+) cache_bytes=(?P<size>\d+|-)\n")
_FROM_CACHE: Final = re.compile(rb"[^\n]*from serialized data[^\n]*")


def start_flags(delegate: DelegateName, stage: StartStage, *, cache_folder: str, token: str) -> dict[str, str]:
    """Return the flags of a start; ``token`` names the model in a folder that delegates share."""
    flags = dict(_FEWEST_RUNS)
    cached = DELEGATES[delegate].cache_flags
    return flags if stage is StartStage.PROCESS_COLD or cached is None else {**flags, **cached(cache_folder, token)}


def prepare_start(device: Device, request: InvocationRequest, *, app: str = "") -> tuple[Attachment, ...]:
    """Prepare the caches for the stage; return a note of them, nothing in other passes.

    ``app`` is the package in whose name it is done. Raises DeviceError kinds, DeviceCommandError when the folder
    can't be made or emptied: a start with unknown caches would mean nothing.
    """
    stage = stage_of(request.run_pass, request.number)
    if stage is None:
        return ()
    size = "-"
    if stage is not StartStage.PROCESS_COLD:
        folder = shlex.quote(request.cache_folder)
        empty = f"rm -rf {folder} && " if stage is StartStage.FIRST_LOAD else ""
        # cat fails where there is no file; then there are 0 bytes.
        command = f"{empty}mkdir -p {folder} && cat {folder}/* 2>/dev/null | wc -c"
        said = ask(device.shell, {"bytes": _as_app(command, app)})
        size = said.value("bytes")
        if said.exit_code or not size.isdecimal():
            reason = (said.stderr or said.stdout).decode("utf-8", "replace").strip()
            raise DeviceCommandError(
                f"the cache folder {request.cache_folder} can't be prepared: {reason}", serial=device.serial
            )
    return (Attachment(name=START_NOTE, data=f"stage={stage} cache_bytes={size}\n".encode()),)


def finish_start(device: Device, request: InvocationRequest, *, app: str = "") -> None:
    """Remove the caches after the last stage that uses them; raises DeviceError kinds."""
    if stage_of(request.run_pass, request.number) is StartStage.CACHE_WARM:
        device.shell(_as_app(f"rm -rf {shlex.quote(request.cache_folder)}", app))


def with_start(report: ToolReport, raw: RawOutput) -> ToolReport:
    """Return a report with what is known of the start: ``start_stage``, ``cache_bytes_before``, ``from_cache``."""
    note = _NOTE.fullmatch(raw.data(START_NOTE))
    if note is None:
        return report
    extra: dict[str, float | str] = {**report.extra, "start_stage": note["stage"].decode()}
    if note["size"] != b"-":
        extra["cache_bytes_before"] = float(note["size"])
    for name in ("stdout", "stderr", "logcat"):
        line = _FROM_CACHE.search(raw.data(name))
        if line is not None:
            extra["from_cache"] = line.group().decode("utf-8", "replace").strip()
            break
    return replace(report, extra=extra)


def _as_app(command: str, app: str) -> str:
    return f"run-as {shlex.quote(app)} sh -c {shlex.quote(command)}" if app else command


#: Where the kernel's word is kept: /proc/PID/cgroup of the shell that then runs the program.
MODE_FILE: Final = "mode"
_EXIT_CODE: Final = 97


def in_mode(command: str, request: InvocationRequest) -> str:
    """Return the command line that runs ``command`` in the case's mode, or ends with a line that says why not."""
    if request.case.process_mode is not ProcessMode.TOP_APP or request.facts.kind is not DeviceKind.ANDROID:
        return command
    return call("top_app", MODE_FILE, _EXIT_CODE) + command


def mode_files(request: InvocationRequest) -> tuple[str, ...]:
    """Return the file that in_mode's command writes, if it does."""
    is_moved = request.case.process_mode is ProcessMode.TOP_APP and request.facts.kind is DeviceKind.ANDROID
    return (MODE_FILE,) if is_moved else ()
