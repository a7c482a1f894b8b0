"""Several small files of one folder in one transfer, each with its size and checksum."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.devices.link import hash_of
from orchestrator.scripts import call

_SIZE: Final = re.compile(r"\s*(\d+)\s+(\S+)")
_HASH: Final = re.compile(r"([0-9a-f]{32}|[0-9a-f]{64})\s+\*?(\S+)")


class FileBundle:
    """Files by name, read by a script where it stands: see bundle.sh."""

    def __init__(self, names: Sequence[str], *, limit_bytes: int) -> None:
        """``names`` are without white space; nothing comes of files that have more than ``limit_bytes`` together."""
        self.names = tuple(names)
        self.script = call("bundle", limit_bytes, *self.names)

    def cut(self, output: bytes, notes: str) -> Mapping[str, bytes] | None:
        """Return the files that are there, by name; None when sizes or checksums don't agree, or no file was told.

        The shell may have been killed before it told: that there is none must be asked another way.
        """
        lines = notes.splitlines()
        sizes = {found[2]: int(found[1]) for line in lines if (found := _SIZE.fullmatch(line))}
        hashes = {found[2]: found[1] for line in lines if (found := _HASH.fullmatch(line))}
        files: dict[str, bytes] = {}
        start = 0
        for name in self.names:
            if name not in sizes:
                continue
            data = output[start : start + sizes[name]]
            if name not in hashes or len(data) != sizes[name] or hash_of(data, like=hashes[name]) != hashes[name]:
                return None
            files[name] = data
            start += sizes[name]
        return files if files and start == len(output) else None
