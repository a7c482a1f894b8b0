"""The file of an operator profile, in whichever form a program wrote it."""

from __future__ import annotations

from orchestrator.programs.grammar.op_profile import OperatorProfile, parse_tables


def parse_op_profile(data: bytes, kind: str) -> OperatorProfile:
    """Read an operator profile file; ``kind`` is "proto", "csv", "stdout" or "text".

    Raises:
        OutputParseError: the proto can't be decoded.
    """
    if kind == "proto":
        from orchestrator.programs.grammar.protos import decode_op_profile

        return decode_op_profile(data)
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    return parse_tables(line.rstrip("\r\n") for line in lines if line.endswith(("\n", "\r")))
