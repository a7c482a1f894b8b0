"""LiteRT's benchmark app on an iPhone: LiteRT's ``benchmark_model`` in an app, started with its
flags over the cable.

It resolves the paths that flags name against its Documents folder, copies its output to
``benchmark.log`` there and writes the exit code to ``benchmark.done`` at last. It answers neither
what delegates it was built with nor how hot the phone is; without its GPU library the CPU runs what
the GPU was asked for, which only the output tells.
"""

from __future__ import annotations

import dataclasses
import plistlib
import shlex
import zipfile
from pathlib import Path
from typing import Final

from orchestrator.delegates import FlagFamily
from orchestrator.errors import ArtifactError, UsageError
from orchestrator.ports import InvocationRequest
from orchestrator.programs import Program
from orchestrator.programs.litert_native import LitertNativeTool, litert_flags
from orchestrator.programs.running import foreign_build, format_flags
from orchestrator.records.case import Build, BuildSha, Case, ToolName
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.run import CRASHES_FILE, DONE_FILE, RawOutput, ToolReport

#: An Info.plist that is larger than this isn't one.
_MOST_PLIST_BYTES: Final = 4 << 20
_HOW_TO_GET: Final = (
    "install the app once, or name its .ipa with --build; see docs/reference/iphone.md"
)


class LitertIosTool(LitertNativeTool):
    """Starts the app with the flags of a case and collects what it left in its folder."""

    name = ToolName.LITERT_IOS

    def command(self, request: InvocationRequest, folder: str) -> str:
        """See CollectingTool.command.

        Documents has no folder for each run: their files' names begin alike.
        """
        words = format_flags(litert_flags(request, folder=folder))
        own = (word.replace(f"{folder}/", f"{folder}.", 1) for word in words)
        return shlex.join([request.build.package, *own])

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Read log and result files; an app that ended without its mark has failed, whatever it
        printed before.
        """
        report = super().parse(raw, case)
        if raw.exit_code is not None or raw.timed_out:
            return report
        crashes = raw.data(CRASHES_FILE).decode("utf-8", "replace").split()
        memory = [name for name in crashes if name.startswith("JetsamEvent")]
        if raw.data(DONE_FILE):
            code, reason = (
                "no-result",
                f"{DONE_FILE} holds {raw.data(DONE_FILE)[:40]!r} and no exit code",
            )
        elif memory:
            code, reason = (
                "low-memory-kill",
                f"the app ended without {DONE_FILE}; the phone wrote {memory[-1]}",
            )
        elif crashes:
            code, reason = (
                "app-crashed",
                f"the app ended without {DONE_FILE}; the phone wrote {crashes[-1]}",
            )
        else:
            code, reason = (
                "process-died",
                f"the app ended without {DONE_FILE}, and the phone tells no reason",
            )
        return dataclasses.replace(
            report,
            outcome="failed",
            failure_code=code,
            failure_reason=reason,
            inference_mean_us=None,
        )


def build_for(facts: DeviceFacts, named: str) -> Build:
    """Return the app that an iPhone is measured with: the ``.ipa`` that is named, else the one that
    is on the phone.

    One that is there and wasn't installed from here is known by its version and installation:
    reinstalled, it is another build. Raises ArtifactError.
    """
    if named:
        try:
            build = foreign_build(PROGRAM, str(Path(named).absolute()))
        except UsageError as error:
            raise ArtifactError(str(error), hint=_HOW_TO_GET) from error
        package, version = _told(Path(named))
        return dataclasses.replace(
            build, package=package, version=version, path=Path(named).absolute()
        )
    told = facts.properties
    if not told.get("app.sha256"):
        raise ArtifactError(f"the app {told.get('app', '')} isn't on the phone", hint=_HOW_TO_GET)
    return Build(
        name=told["app"],
        tool=ToolName.LITERT_IOS,
        sha256=BuildSha(told["app.sha256"]),
        abi="",
        version=told["app.version"],
        package=told["app"],
        is_virtual=facts.is_virtual,
    )


def _told(path: Path) -> tuple[str, str]:
    """Return an ``.ipa``'s bundle identifier and version; raises ArtifactError for another file."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [
                name
                for name in archive.namelist()
                if name.count("/") == 2 and name.endswith(".app/Info.plist")
            ]
            with archive.open(names[0]) as file:
                told = plistlib.loads(file.read(_MOST_PLIST_BYTES))
        package, version = told["CFBundleIdentifier"], told.get("CFBundleShortVersionString", "")
        if not isinstance(package, str) or not package:
            raise ValueError("CFBundleIdentifier is no text")
    except (
        OSError,
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        zipfile.BadZipFile,
        NotImplementedError,
    ) as error:
        raise ArtifactError(f"{path} is no .ipa of an app ({error!r})", hint=_HOW_TO_GET) from error
    return package, str(version)


PROGRAM = Program(
    name=ToolName.LITERT_IOS,
    tool=LitertIosTool,
    kinds=frozenset({DeviceKind.IOS}),
    usual_on=DeviceKind.IOS,
    family=FlagFamily.LITERT,
    on_device=build_for,
    title="LiteRT benchmark app",
)
