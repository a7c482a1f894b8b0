"""Benchmark apps that somebody else starts: how a build of one is known, and where in a file a run's output is.

What such an app printed is kept whole with every run that was read from it (a store keeps equal content once), and
beside it which of the runs in it is meant, so that everything can be read again.
"""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import Final, Never

from orchestrator.errors import UsageError
from orchestrator.ports import Device, InvocationRequest
from orchestrator.programs.specification import Program
from orchestrator.records.identity import BuildSha, content_key
from orchestrator.records.run import Attachment, DelegateEvidence, DelegateTruth, RawOutput
from orchestrator.records.workload import Build, DelegateName, ToolName

#: The attachment that holds the text or file as it was imported.
SOURCE: Final = "imported"
#: The attachment that says which run of it is meant: ``{"run": 0}``.
SELECTION: Final = "selection.json"


def foreign_build(program: Program, named: str) -> Build:
    """Return the build of an app that was built and started elsewhere.

    ``named`` with a slash is the path of the app's own file (an ``.ipa``, an APK, a framework's archive), by whose
    content it is known. Anything else is a description such as ``TensorFlow 2.17``; the build is known by this text
    then, for its content was never seen. Raises UsageError for a file that can't be read.
    """
    if "/" in named:
        path = Path(named).expanduser()
        try:
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}", hint="name the app's own file, or describe it") from error
        return Build(name=path.name, tool=program.name, sha256=BuildSha(sha256), abi="", version="")
    described = {"program": program.title, "described as": named}
    return Build(name=program.title, tool=program.name, sha256=BuildSha(content_key(described)), abi="", version=named)


def not_startable(
    tool: ToolName, device: Device, request: InvocationRequest, cancelled: threading.Event | None
) -> Never:
    """Raise UsageError: benchfarm doesn't start this program."""
    del device, cancelled
    raise UsageError(f"{tool} isn't started by benchfarm; its results are imported (case {request.case.case_key})")


def plain_text(value: object) -> str:
    """Return a value that a file's JSON holds as text that any store and terminal takes."""
    return str(value).encode("utf-8", "replace").decode().replace("\0", "")


def selection(run: int) -> Attachment:
    """Return the attachment that says which run of the imported text is meant, counted from 0."""
    return Attachment(name=SELECTION, data=json.dumps({"run": run}).encode())


def selected_run(raw: RawOutput) -> int:
    """Return which run of the imported text is meant; the first where nothing says so."""
    try:
        chosen = json.loads(raw.data(SELECTION) or b"{}").get("run", 0)
    except (ValueError, AttributeError):
        return 0
    return chosen if isinstance(chosen, int) and chosen >= 0 else 0


def implicit_xnnpack() -> DelegateEvidence:
    """Return the evidence for a program that is called without a delegate flag: the runtime applies XNNPACK itself."""
    return DelegateEvidence(
        requested=DelegateName.CPU.value,
        actual=DelegateName.XNNPACK.value,
        truth=DelegateTruth.WRONG_BACKEND,
        lines=("no use_xnnpack is passed, so that the runtime applies XNNPACK by itself",),
    )
