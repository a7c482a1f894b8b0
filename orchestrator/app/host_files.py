"""Files of this computer that a plan's flags name (``external_delegate_path: "@libs/libmine.so"``), by content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.errors import PlanError
from orchestrator.planning import HostFiles
from orchestrator.records.plan import Plan

#: The flag whose file names a library that is needed beside it.
_SETTINGS_FLAG: Final = "stable_delegate_settings_file"
_LARGEST_SETTINGS_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """A file that a flag names, with what it needs beside it."""

    placed: HostFiles
    #: sha256 -> where it lies on this computer.
    paths: Mapping[str, Path]


def host_files(plan: Plan) -> dict[str, NamedFile]:
    """Return what each flag value ``@path`` of a plan means.

    Raises:
        PlanError: a file can't be read, or a stable delegate's settings don't say which library they are for.
    """
    found: dict[str, NamedFile] = {}
    for flags in plan.matrix.flags:
        for flag, value in flags:
            if value.startswith("@") and len(value) > 1 and value not in found:
                found[value] = _named(flag, Path(value[1:]))
    return found


def _named(flag: str, path: Path) -> NamedFile:
    paths = [path, *(_library_of(path) if flag == _SETTINGS_FLAG else [])]
    try:
        contents = {item: hashlib.sha256(item.read_bytes()).hexdigest() for item in paths}
    except OSError as error:
        raise PlanError(f"flag {flag}: {error.filename} can't be read: {error.strerror}") from error
    return NamedFile(
        placed=HostFiles(name=path.name, files=tuple((item.name, sha256) for item, sha256 in contents.items())),
        paths={sha256: item for item, sha256 in contents.items()},
    )


def _library_of(settings: Path) -> list[Path]:
    """Return the library that a stable delegate's settings name, when it lies beside them on this computer.

    The phone's loader finds a bare name in the folder where both are placed; an absolute path is the phone's own.
    """
    where = f"flag {_SETTINGS_FLAG}: {settings}"
    try:
        with settings.open("rb") as file:
            values = json.loads(file.read(_LARGEST_SETTINGS_BYTES))
        library = values["stable_delegate_loader_settings"]["delegate_path"]
    except OSError as error:
        raise PlanError(f"{where} can't be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise PlanError(
            f"{where} doesn't name a delegate's library",
            hint='it needs {"stable_delegate_loader_settings": {"delegate_path": "libmine.so"}}',
        ) from error
    if str(library).startswith("/"):
        return []
    if "/" in str(library) or not settings.with_name(str(library)).is_file():
        raise PlanError(
            f"{where}: the library {str(library)!r} doesn't lie beside it",
            hint="write its bare name and put it into the same folder, or write an absolute path on the phone",
        )
    return [settings.with_name(str(library))]
