"""Which files are benchmark programs, and what stands in for them on a phone."""

from __future__ import annotations

import dataclasses
import io
import posixpath
import re
import zipfile
from collections.abc import Iterable, Mapping
from typing import Final

from benchfarm_virtual.axml import MalformedXmlError, parse
from benchfarm_virtual.contract import AppInfo, Program
from benchfarm_virtual.elf import abi_of, note_of
from benchfarm_virtual.faults import FaultTable
from benchfarm_virtual.hardware import VirtualHardware
from benchfarm_virtual.profiles import VirtualProfile
from benchfarm_virtual.programs.flag_table import CPU_FLAGS
from benchfarm_virtual.programs.language_model import LanguageModelProgram
from benchfarm_virtual.programs.litert import LitertProgram
from benchfarm_virtual.programs.native import BenchmarkActivity, NativeProgram
from benchfarm_virtual.programs.other_runtimes import NAMES, OtherRuntimeProgram
from benchfarm_virtual.programs.performance_options import PerformanceOptionsProgram
from benchfarm_virtual.programs.process import Bench, time_factor_of

#: An APK's manifest and file list may be this large.
_LARGEST_APK_BYTES: Final = 1 << 30
_LARGEST_MANIFEST_BYTES: Final = 4 << 20
_LIBRARY: Final = re.compile(r"lib/([^/]+)/[^/]+\.so")
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
#: Packages of the real benchmark app, and the activity that measures.
_PACKAGE: Final = re.compile(r"org\.tensorflow\.lite\.benchmark(\.[\w.]+)?|.*\.benchmark")
_ACTIVITY: Final = "BenchmarkModelActivity"


class VirtualProgramShelf:
    """The programs of one phone."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        #: Packages whose APK holds the build with TensorFlow's operators.
        self._flex_packages: set[str] = set()
        #: Package -> how long its inferences take, as the version of its APK says.
        self._time_factors: dict[str, float] = {}

    def native(self, name: str, head: bytes, size_bytes: int) -> Program | None:
        """Return the fake binary for an executable: by the note in a fake file, else by a real
        program's name.
        """
        del size_bytes
        abi = abi_of(head)
        if abi is None or abi not in self._bench.profile.abis:
            return None
        note = note_of(head)
        if note is not None:
            return self._program(
                note.program, self._marked(time_factor_of(note.version)), version=note.version
            )
        base = posixpath.basename(name)
        return next(
            (
                self._program(program, self._bench)
                for pattern, program in _NAMES
                if pattern.search(base)
            ),
            None,
        )

    def _marked(self, time_factor: float) -> Bench:
        return (
            self._bench
            if time_factor == 1.0
            else dataclasses.replace(self._bench, time_factor=time_factor)
        )

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
        """Return what an APK's manifest and libraries say; None when it is no APK."""
        content = io.BytesIO()
        for part in source:
            content.write(part)
            if content.tell() > _LARGEST_APK_BYTES:
                return None
        try:
            with zipfile.ZipFile(content) as archive:
                if archive.getinfo("AndroidManifest.xml").file_size > _LARGEST_MANIFEST_BYTES:
                    return None
                manifest = parse(archive.read("AndroidManifest.xml"))
                names = archive.namelist()
        except (
            zipfile.BadZipFile,
            KeyError,
            MalformedXmlError,
            OSError,
            RuntimeError,
            NotImplementedError,
            EOFError,
        ):
            return None
        except ValueError:  # a damaged entry that zlib refuses
            return None
        package = str(manifest.attributes.get("package", ""))
        if not re.fullmatch(r"[A-Za-z]\w*(\.[A-Za-z]\w*)+", package):
            return None
        sdk = next((e.attributes.get("minSdkVersion") for e in manifest.every("uses-sdk")), 1)
        application = next(iter(manifest.every("application")), None)
        activities = [str(e.attributes.get("name", "")) for e in manifest.every("activity")]
        if any("plus_flex" in name for name in names):
            self._flex_packages.add(package)
        else:
            self._flex_packages.discard(package)
        self._time_factors[package] = time_factor_of(
            str(manifest.attributes.get("versionName", ""))
        )
        version_code = manifest.attributes.get("versionCode", 0)
        return AppInfo(
            package=package,
            activities=tuple(_absolute(package, name) for name in activities if name),
            version_code=version_code if isinstance(version_code, int) else 0,
            version_name=str(manifest.attributes.get("versionName", "")),
            abis=tuple(
                dict.fromkeys(m.group(1) for name in names if (m := _LIBRARY.fullmatch(name)))
            ),
            min_sdk=sdk if isinstance(sdk, int) else 1,
            debuggable=bool(
                application is not None and application.attributes.get("debuggable", False)
            ),
        )

    def activity(self, package: str, activity: str, args: Mapping[str, str]) -> Program | None:
        """Return the fake binary for the benchmark app's activity, None for any other."""
        if (
            not _PACKAGE.fullmatch(package)
            or _absolute(package, activity).rpartition(".")[2] != _ACTIVITY
        ):
            return None
        bench = self._marked(self._time_factors.get(package, 1.0))
        return BenchmarkActivity(bench, package, dict(args), flex=package in self._flex_packages)


def _absolute(package: str, activity: str) -> str:
    """Return an activity's full name: ``.Main`` and ``Main`` are relative to the package."""
    if activity.startswith("."):
        return package + activity
    return activity if "." in activity else f"{package}.{activity}"


def build_shelf(
    profile: VirtualProfile, hardware: VirtualHardware, faults: FaultTable | None = None
) -> VirtualProgramShelf:
    """Return the programs that a phone knows; ``faults`` is asked about its delegates."""
    return VirtualProgramShelf(Bench(profile=profile, hardware=hardware, faults=faults))
