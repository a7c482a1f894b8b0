"""LiteRT's benchmark app on an iPhone: LiteRT's ``benchmark_model`` in an app, started with its
flags over the cable.

It resolves the paths in flags against its Documents folder, copies its output to ``benchmark.log``
there and writes the exit code to ``benchmark.done`` at last. It reports neither its delegates nor
the phone's temperature; without its GPU library the CPU runs what was requested of the GPU, which
only the output shows.
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
from orchestrator.plugins import (
    LitertNativeTool,
    Program,
    foreign_build,
    format_flags,
    litert_flags,
)
from orchestrator.ports import InvocationRequest
from orchestrator.records.case import Build, BuildSha, Case, ToolName
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.run import CRASHES_FILE, DONE_FILE, RawOutput, ToolReport

#: An Info.plist that is larger than this isn't one.
_MAX_PLIST_BYTES: Final = 4 << 20
_HOW_TO_GET: Final = (
    "install the app once, or name its .ipa with --build; see docs/reference/iphone.md"
)


class LitertIosTool(LitertNativeTool):
    """Starts the app with the flags of a case and collects the files in its folder."""

    name = ToolName.LITERT_IOS

    def command(self, request: InvocationRequest, folder: str) -> str:
        """See CollectingTool.command.

        Documents has no folder per run: names of a run's files share a prefix.
        """
        words = format_flags(litert_flags(request, folder=folder))
        app_words = (word.replace(f"{folder}/", f"{folder}.", 1) for word in words)
        return shlex.join([request.build.package, *app_words])

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Read log and result files; an app that ended without ``benchmark.done`` has failed,
        whatever it printed before.
        """
        report = super().parse(raw, case)
        if raw.exit_code is not None or raw.timed_out:
            return report
        crashes = raw.data(CRASHES_FILE).decode("utf-8", "replace").split()
        memory_kills = [name for name in crashes if name.startswith("JetsamEvent")]
        if raw.data(DONE_FILE):
            code, reason = (
                "no-result",
                f"{DONE_FILE} holds {raw.data(DONE_FILE)[:40]!r} and no exit code",
            )
        elif memory_kills:
            code, reason = (
                "low-memory-kill",
                f"the app ended without {DONE_FILE}; the phone wrote {memory_kills[-1]}",
            )
        elif crashes:
            code, reason = (
                "app-crashed",
                f"the app ended without {DONE_FILE}; the phone wrote {crashes[-1]}",
            )
        else:
            code, reason = (
                "process-died",
                f"the app ended without {DONE_FILE}, and the phone reports no reason",
            )
        return dataclasses.replace(
            report,
            outcome="failed",
            failure_code=code,
            failure_reason=reason,
            inference_mean_us=None,
        )


def build_for(facts: DeviceFacts, ipa: str) -> Build:
    """Return the app for an iPhone: the named ``.ipa``, else the app on the phone.

    An app that wasn't installed from here is identified by its version and installation:
    reinstalled, it is another build. Raises ArtifactError.
    """
    if ipa:
        try:
            build = foreign_build(PROGRAM, str(Path(ipa).absolute()))
        except UsageError as error:
            raise ArtifactError(str(error), hint=_HOW_TO_GET) from error
        package, version = _ipa_identity(Path(ipa))
        return dataclasses.replace(
            build, package=package, version=version, path=Path(ipa).absolute()
        )
    properties = facts.properties
    if not properties.get("app.sha256"):
        raise ArtifactError(
            f"the app {properties.get('app', '')} isn't on the phone", hint=_HOW_TO_GET
        )
    return Build(
        name=properties["app"],
        tool=ToolName.LITERT_IOS,
        sha256=BuildSha(properties["app.sha256"]),
        abi="",
        version=properties["app.version"],
        package=properties["app"],
        is_virtual=facts.is_virtual,
    )


def _ipa_identity(path: Path) -> tuple[str, str]:
    """Return an ``.ipa``'s bundle identifier and version; raises ArtifactError for another file."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [
                name
                for name in archive.namelist()
                if name.count("/") == 2 and name.endswith(".app/Info.plist")
            ]
            with archive.open(names[0]) as file:
                plist = plistlib.loads(file.read(_MAX_PLIST_BYTES))
        package, version = plist["CFBundleIdentifier"], plist.get("CFBundleShortVersionString", "")
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
