"""Recognises benchmark programs among files, and returns their fake binaries."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.contract import AppInfo
from benchfarm_virtual.programs.flags import CPU_FLAGS
from benchfarm_virtual.programs.language_model import run_language_model
from benchfarm_virtual.programs.litert import run_litert
from benchfarm_virtual.programs.native import run_activity, run_native, run_performance_options
from benchfarm_virtual.programs.other_runtimes import NAMES, run_other
from benchfarm_virtual.samples import (
    APP_NOTE,
    DUMMY_PROGRAM,
    STABLE_PROGRAM,
    benchmark_elf,
    elf_abi,
    fake_note,
    refuse_unknown,
)

#: Acts as the real program, with its exact output; returns the exit code.
Program = Callable[[Invocation], int]
#: By their names in a note; each takes its version too. ``cpu_only`` is a build without GPU, NNAPI
#: and Hexagon.
PROGRAMS: Final[Mapping[str, Callable[[Invocation, str], int]]] = {
    "benchmark_model": run_native,
    "benchmark_model_cpu_only": partial(run_native, flags=CPU_FLAGS),
    "benchmark_model_plus_flex": partial(run_native, flex=True),
    "benchmark_model_performance_options": run_performance_options,
    "benchmark_litert_model": run_litert,
    "litert_lm_advanced_main": run_language_model,
    **{name: partial(run_other, program=name) for name in NAMES},
}
#: Pattern of a real program's file name -> its fake binary.
_NAMES: Final = {
    "litert_lm_advanced_main": "litert_lm_advanced_main",
    "benchmark_litert_model": "benchmark_litert_model",
    "performance_options": "benchmark_model_performance_options",
    "benchmark_model.*plus_flex": "benchmark_model_plus_flex",
    "benchmark_model": "benchmark_model",
}


def program_elf(program: str, abi: str, *, version: str) -> bytes:
    """Return a fake binary's bytes as benchmark_elf does; raise UsageError also for a program that
    there is none of.
    """
    refuse_unknown("of", program, (*PROGRAMS, DUMMY_PROGRAM, STABLE_PROGRAM))
    return benchmark_elf(program, abi, version=version)


class ProgramShelf:
    """The programs of a phone."""

    def native(self, name: str, head: bytes, abis: Sequence[str]) -> Program | None:
        """Return the fake binary for an executable: by the note in a fake file, else by a real
        program's name.
        """
        note = fake_note(head)
        program, version = (note.program, note.version) if note is not None else ("", "")
        if note is None:
            program = next(
                (fake_name for part, fake_name in _NAMES.items() if re.search(part, name)), ""
            )
        run = PROGRAMS.get(program)
        if run is None or elf_abi(head) not in abis:
            return None
        return lambda call: run(call, version)

    def activity(self, app: AppInfo, extras: Mapping[str, str]) -> Program:
        """Return the fake binary for an app's activity."""
        return partial(run_activity, app=app, extras=extras)


def inspect_apk(apk: bytes) -> AppInfo | None:
    """Return the app of a fake APK by its note; None for any other file."""
    try:
        with zipfile.ZipFile(io.BytesIO(apk)) as archive:
            note = json.loads(archive.read(APP_NOTE))
    except (zipfile.BadZipFile, KeyError, ValueError, RuntimeError, OSError, EOFError):
        return None
    return AppInfo(**note)
