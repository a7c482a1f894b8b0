"""The asking side of a control channel; see control.py for the requests."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any, Final

from benchfarm_lab.errors import DeviceError, DeviceTimeoutError, LabError, LinkLostError, UsageError

_LOOPBACK: Final = "127.0.0.1"


def ask_control(
    port: int, token: str, request: Mapping[str, Any], *, timeout_s: float, who: str
) -> dict[str, Any]:  # fmt: skip
    """Send a request to the control channel on a port and return its answer; ``who`` is for messages.

    Raises UsageError when the request is wrong, DeviceTimeoutError when no answer comes in time and LinkLostError when
    none comes at all, after which nobody knows whether the request was done; DeviceError for what went wrong on the
    other side.
    """
    line = json.dumps({**request, "token": token}).encode() + b"\n"
    try:
        with socket.create_connection((_LOOPBACK, port), timeout=timeout_s) as sock:
            sock.sendall(line)
            with sock.makefile("rb") as reader:
                answer = json.loads(reader.readline() or b"null")
    except TimeoutError:
        raise DeviceTimeoutError(f"{who} didn't answer within {timeout_s:g} s") from None
    except (OSError, ValueError) as fault:
        raise LinkLostError(f"{who} can't be asked: {fault}") from None
    if not isinstance(answer, dict):
        raise LinkLostError(f"{who} ended before it answered")
    if not answer.get("ok"):
        kind: type[LabError] = UsageError if answer.get("error") == "usage" else DeviceError
        raise kind(str(answer.get("message", "")), hint=str(answer.get("hint", "")))
    return answer
