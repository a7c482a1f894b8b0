"""Which files are benchmark programs, and what stands in for them on a phone."""

from __future__ import annotations

import dataclasses
import io
import json
import posixpath
import re
import zipfile
from collections.abc import Iterable, Mapping
from typing import Final

from benchfarm_virtual.contract import AppInfo, Program
from benchfarm_virtual.faults import FaultTable
from benchfarm_virtual.hardware import VirtualHardware
from benchfarm_virtual.profiles import VirtualProfile
from benchfarm_virtual.programs.flags import CPU_FLAGS
from benchfarm_virtual.programs.language_model import LanguageModelProgram
from benchfarm_virtual.programs.litert import LitertProgram
from benchfarm_virtual.programs.native import (
    BenchmarkActivity,
    NativeProgram,
    PerformanceOptionsProgram,
)
from benchfarm_virtual.programs.other_runtimes import NAMES, OtherRuntimeProgram
from benchfarm_virtual.programs.process import Bench, time_factor_of
from benchfarm_virtual.samples import APP_NOTE, abi_of, note_of

#: Real programs by their usual file names.
_NAMES: Final = (
    (re.compile(r"litert_lm_advanced_main"), "litert_lm_advanced_main"),
    (re.compile(r"benchmark_litert_model"), "benchmark_litert_model"),
    (
        re.compile(r"benchmark_model.*performance_options|performance_options"),
        "benchmark_model_performance_options",
    ),
    (re.compile(r"benchmark_model.*plus_flex"), "benchmark_model_plus_flex"),
    (re.compile(r"benchmark_model"), "benchmark_model"),
)


class VirtualProgramShelf:
    """The programs of one phone."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        #: The apps that were installed, by their packages.
        self._apps: dict[str, AppInfo] = {}

    def native(self, name: str, head: bytes) -> Program | None:
        """Return the fake binary for an executable: by the note in a fake file, else by a real
        program's name.
        """
        abi = abi_of(head)
        if abi is None or abi not in self._bench.profile.abis:
            return None
        note = note_of(head)
        if note is not None:
            return self._program(note.program, self._of_version(note.version), version=note.version)
        base = posixpath.basename(name)
        return next(
            (
                self._program(program, self._bench)
                for pattern, program in _NAMES
                if pattern.search(base)
            ),
            None,
        )

    def _of_version(self, version: str) -> Bench:
        factor = time_factor_of(version)
        return dataclasses.replace(self._bench, time_factor=factor, version=version)

    def _program(self, program: str, bench: Bench, *, version: str = "") -> Program | None:
        match program:
            case "benchmark_model":
                return NativeProgram(bench)
            case "benchmark_model_cpu_only":
                return NativeProgram(bench, flags=CPU_FLAGS)
            case "benchmark_model_plus_flex":
                return NativeProgram(bench, flex=True)
            case "benchmark_model_performance_options":
                return PerformanceOptionsProgram(bench)
            case "benchmark_litert_model":
                return LitertProgram(bench)
            case "litert_lm_advanced_main":
                return LanguageModelProgram(bench, version)
            case _ if program in NAMES:
                return OtherRuntimeProgram(bench, program)
            case _:
                return None

    def inspect_apk(self, source: Iterable[bytes]) -> AppInfo | None:
        """Return what a fake APK says that it is; None for any other file."""
        try:
            with zipfile.ZipFile(io.BytesIO(b"".join(source))) as archive:
                found = json.loads(archive.read(APP_NOTE))
        except (zipfile.BadZipFile, KeyError, ValueError, RuntimeError, OSError, EOFError):
            return None
        info = AppInfo(**{**found, "abis": tuple(found["abis"])})
        self._apps[info.package] = info
        return info

    def activity(self, package: str, args: Mapping[str, str]) -> Program | None:
        """Return the fake binary for an app's activity, None for an app that isn't known."""
        app = self._apps.get(package)
        if app is None:
            return None
        bench = self._of_version(app.version_name)
        return BenchmarkActivity(bench, package, dict(args), flex=app.flex)


def build_shelf(
    profile: VirtualProfile, hardware: VirtualHardware, faults: FaultTable | None = None
) -> VirtualProgramShelf:
    """Return the programs that a phone knows; ``faults`` is asked about its delegates."""
    return VirtualProgramShelf(Bench(profile=profile, hardware=hardware, faults=faults))
