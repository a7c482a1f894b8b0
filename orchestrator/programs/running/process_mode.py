"""A shell's program in the scheduling groups of the app on the screen, and the proof that it was there.

The cgroups belong to the system: root may write them. Android 13's ``settaskprofile`` writes the same files with its
caller's rights, so that a plain shell user gets there only on systems that let it. Each way is tried and the kernel is
asked where the process is; a program that isn't there doesn't run.
"""

from __future__ import annotations

from typing import Final

from orchestrator.ports import InvocationRequest
from orchestrator.records.device import DeviceKind
from orchestrator.records.workload import ProcessMode
from orchestrator.scripts import call

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
