"""The virtual phones of the distribution ``benchfarm-virtual``: the one module of benchfarm that
imports it.

Every function raises UsageError when it isn't installed, and benchfarm's own errors instead of the
lab's: UsageError for what can't be done as written, DeviceError, DeviceTimeoutError and
LinkLostError for what went wrong in the lab.
"""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orchestrator.delegates.specification import FlagFamily
from orchestrator.errors import DeviceError, DeviceTimeoutError, LinkLostError, UsageError
from orchestrator.files import write_whole
from orchestrator.programs import program
from orchestrator.records.case import Build, BuildSha, Companion, ToolName

if TYPE_CHECKING:
    from benchfarm_virtual.lab import LabInfo
    from orchestrator.bootstrap.settings import Settings
    from orchestrator.devices.adb_server import OwnServer


def call(module: str, name: str, *arguments: object, **options: object) -> Any:  # noqa: ANN401 - as the lab's own
    """Return the answer of a function in a module of the lab, or the value of another name in it."""
    try:
        import benchfarm_virtual.errors as theirs

        found = getattr(importlib.import_module(f"benchfarm_virtual.{module}"), name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"virtual phones need the package benchfarm-virtual; {error.name} isn't installed",
            hint="pip install 'benchfarm[virtual]', uvx --from 'benchfarm[virtual]' ..., or 'make install' in a checkout",
        ) from None
    try:
        return found(*arguments, **options) if callable(found) else found
    except (theirs.UsageError, theirs.DeviceError) as error:
        kinds = {
            theirs.UsageError: UsageError,
            theirs.DeviceTimeoutError: DeviceTimeoutError,
            theirs.LinkLostError: LinkLostError,
            theirs.DeviceError: DeviceError,
        }
        kind = next(own for their, own in kinds.items() if isinstance(error, their))
        raise kind(str(error), hint=error.hint) from error


def read_lab(folder: Path) -> LabInfo:
    """Return the lab that runs in a folder."""
    lab: LabInfo = call("lab", "read_lab", folder)
    return lab


#: Which libraries the fake binaries of a family of programs have beside them, where they aren't the
#: DSP's.
_LIBRARIES: Final = {
    FlagFamily.LITERT: "NPU_LIBRARIES",
    FlagFamily.LITERT_LM: "LANGUAGE_MODEL_LIBRARIES",
}


def fake_build(folder: Path, tool: ToolName, abi: str, *, has_flex: bool = False) -> Build:
    """Return the fake binary for a program that virtual phones can run, written to ``folder`` when
    it isn't there.

    The libraries that the real program needs beside it for a DSP or an NPU come with it.
    """
    package, libraries = "", dict[str, bytes]()
    if tool.is_app:
        name = "benchmark_model_plus_flex.apk" if has_flex else "benchmark_model.apk"
        content = call("samples", "benchmark_apk", abis=(abi,), flex=has_flex)
        package = call("samples", "BENCHMARK_PACKAGE")
    else:
        name = "benchmark_model_plus_flex" if has_flex else program(tool).file_name
        content = call("samples", "benchmark_elf", name, abi)
        if not tool.is_declared:
            names = _LIBRARIES.get(program(tool).family, "HEXAGON_LIBRARIES")
            libraries = {
                own: call("samples", "library_elf", own, abi) for own in call("samples", names)
            }
    sha256 = hashlib.sha256(content).hexdigest()
    return Build(
        name=f"virtual {name}",
        tool=tool,
        sha256=BuildSha(sha256),
        abi=abi,
        version="virtual",
        package=package,
        is_virtual=True,
        path=_kept(folder / sha256[:16] / name, content),
        companions=tuple(
            Companion(
                name=library,
                sha256=hashlib.sha256(data).hexdigest(),
                path=_kept(folder / hashlib.sha256(data).hexdigest()[:16] / library, data),
            )
            for library, data in libraries.items()
        ),
    )


def _kept(path: Path, content: bytes) -> Path:
    """Write a file unless it is there, and return its path."""
    if not path.is_file():
        write_whole(path, content)
    return path


def adb_server(settings: Settings) -> OwnServer:
    """Return the adb server of the virtual lab, whether it runs or not."""
    from orchestrator.devices.adb_server import OwnServer

    folder = settings.lab_folder
    # A home of its own: the lab's phones let in this server's key and no other.
    environ = {**settings.environ, "HOME": str(folder)}
    return OwnServer(folder, setting=settings.adb, environ=environ, usb=False)
