"""Checksums: sha256sum, md5sum."""

from __future__ import annotations

import hashlib

from benchfarm_lab.commands.invocation import Invocation
from benchfarm_lab.commands.options import read_options
from benchfarm_lab.commands.registry import command
from benchfarm_lab.contract import ByteSource, PhoneFileError

_ALGORITHMS = {"sha256sum": "sha256", "md5sum": "md5"}


def _digest(call: Invocation, source: ByteSource) -> str:
    digest = hashlib.new(_ALGORITHMS[call.name], usedforsecurity=False)
    for piece in call.chunks(source):
        digest.update(piece)
    return digest.hexdigest()


@command(*_ALGORITHMS)
def checksum(call: Invocation) -> int:
    """Print checksums of files."""
    options = read_options(call, "b")
    for path, source in call.inputs(options.args):
        try:
            digest = _digest(call, source)
        except PhoneFileError as exc:
            call.complain(f"{path}: {exc}")
            call.failed = True
            continue
        call.out.line(digest if "b" in options else f"{digest}  {path}")
    return 1 if call.failed else 0
