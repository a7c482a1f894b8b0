"""Benchmark apps that somebody else starts: how a build of one is known, and which run of a file is
meant.

What such an app printed is kept whole with every run that was read from it (a store keeps equal
content once), and beside it which of the runs in it is meant, so that everything can be read again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.files import sha256_of
from orchestrator.ports import Device, InvocationRequest
from orchestrator.programs.specification import Program
from orchestrator.records.case import Build, BuildSha, Case, ToolName, content_key
from orchestrator.records.run import Attachment, RawOutput, ToolReport

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
