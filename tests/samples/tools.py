"""Requests and outputs as tools take them, for tests of one tool."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from orchestrator.ports import InvocationRequest
from orchestrator.records.case import (
    Build,
    Case,
    Pass,
    RunId,
)
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.run import Attachment, RawOutput


def request_of(
    case: Case, *, kind: DeviceKind = DeviceKind.ANDROID, **changes: Any
) -> InvocationRequest:
    """Return the request of a case's timing."""
    request = InvocationRequest(
        case=case, run_id=RunId("r"), run_pass=Pass.TIMING, timeout_s=60.0, model_path="/x/m", program_path="/x/p/x",
        facts=DeviceFacts(serial=case.serial, kind=kind, is_virtual=False),
        build=Build(name="b", tool=case.tool, sha256=case.build_sha256, abi="arm64-v8a"),
    )  # fmt: skip
    return replace(request, **changes)


def raw_of(
    stdout: str | bytes = b"",
    *,
    command: str = "",
    exit_code: int | None = 0,
    timed_out: bool = False,
    **more: bytes,
) -> RawOutput:
    """Return what a process left: its standard output, and further attachments by name (the last
    ``_`` for a dot)."""
    text = stdout.encode() if isinstance(stdout, str) else stdout
    named = {"stdout": text, **{".".join(name.rsplit("_", 1)): data for name, data in more.items()}}
    return RawOutput(
        command=command, exit_code=exit_code, timed_out=timed_out, started_at=datetime(2026, 1, 1, tzinfo=UTC),
        duration_s=9.0, attachments=tuple(Attachment(name=name, data=data) for name, data in named.items()),
    )  # fmt: skip
