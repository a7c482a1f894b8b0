"""What a program runs in: where it finds its libraries, its scheduling group.

The cgroups belong to the system: root may write them. Android 13's ``settaskprofile`` writes the
same files with its caller's rights, so that a plain shell user gets there only on systems that let
it. Each way is tried and the kernel is asked where the process is; a program that isn't there
doesn't run.
"""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import Final

from orchestrator.delegates import DELEGATES
from orchestrator.ports import InvocationRequest
from orchestrator.records.case import ProcessMode
from orchestrator.records.device import DeviceKind
from orchestrator.scripts import call

#: Where the vendors keep the DSP's own libraries; searched after ours.
_DSP_FOLDERS: Final = ("/vendor/lib/rfsa/adsp", "/vendor/dsp/cdsp", "/system/lib/rfsa/adsp", "/dsp")
_HEXAGON_SKEL: Final = "libhexagon_nn_skel"


def library_folders(request: InvocationRequest) -> list[str]:
    """Return the folders of the program and of its files, each once, the program's first."""
    paths = [request.program_path, *request.file_paths.values()]
    return list(dict.fromkeys(str(PurePosixPath(path).parent) for path in paths))


def environment(request: InvocationRequest) -> str:
    """Return the assignments to stand before a command in the device's shell, quoted.

    A DSP loads its libraries through a service of the phone, which searches ADSP_LIBRARY_PATH,
    divided by semicolons.
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


#: Where the kernel's word is kept: /proc/PID/cgroup of the shell that then runs the program.
MODE_FILE: Final = "mode"
_EXIT_CODE: Final = 97


def in_mode(command: str, request: InvocationRequest) -> str:
    """Return the command line that runs ``command`` in the case's mode, or ends with a line that
    says why not.
    """
    if (
        request.case.process_mode is not ProcessMode.TOP_APP
        or request.facts.kind is not DeviceKind.ANDROID
    ):
        return command
    return call("top_app", MODE_FILE, _EXIT_CODE) + command


def mode_files(request: InvocationRequest) -> tuple[str, ...]:
    """Return the file that in_mode's command writes, if it does."""
    is_moved = (
        request.case.process_mode is ProcessMode.TOP_APP
        and request.facts.kind is DeviceKind.ANDROID
    )
    return (MODE_FILE,) if is_moved else ()
