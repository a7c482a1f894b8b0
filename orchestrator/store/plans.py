"""A campaign's planned invocations in one value: thousands of small rows for each night would outweigh its runs."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Final

from orchestrator.errors import StoreCorruptError

_LEVEL: Final = 6


def pack_plan(planned: Sequence[tuple[int, str, int]]) -> bytes:
    """Return invocations, each (number of its case, pass, number within the pass), in their order."""
    passes = sorted({run_pass for _, run_pass, _ in planned})
    columns = {
        "passes": passes,
        "case_no": [case_no for case_no, _, _ in planned],
        "pass": [passes.index(run_pass) for _, run_pass, _ in planned],
        "number": [number for _, _, number in planned],
    }
    return zlib.compress(json.dumps(columns, separators=(",", ":")).encode(), _LEVEL)


def unpack_plan(body: bytes, *, where: str) -> list[tuple[int, str, int]]:
    """Return what :func:`pack_plan` was given; raises StoreCorruptError."""
    try:
        columns = json.loads(zlib.decompress(body))
        passes = columns["passes"]
        return [
            (case_no, passes[run_pass], number)
            for case_no, run_pass, number in zip(columns["case_no"], columns["pass"], columns["number"], strict=True)
        ]
    except (zlib.error, ValueError, KeyError, IndexError, TypeError) as error:
        raise StoreCorruptError(f"{where}: its stored plan can't be unpacked ({error})") from error
