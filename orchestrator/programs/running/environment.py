"""The environment in which a program finds the libraries that were placed beside it."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import Final

from orchestrator.delegates import DELEGATES
from orchestrator.ports import InvocationRequest

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
