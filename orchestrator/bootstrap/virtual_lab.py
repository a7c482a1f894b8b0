"""The virtual phones of the distribution ``benchfarm-virtual``: the one module of benchfarm that
imports it.

Every function raises UsageError when it isn't installed, and benchfarm's own errors instead of the
lab's: UsageError for what can't be done as written, DeviceError, DeviceTimeoutError and
LinkLostError for what went wrong in the lab.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import DeviceError, DeviceTimeoutError, LinkLostError, UsageError
from orchestrator.processes import child_environment

if TYPE_CHECKING:
    from benchfarm_virtual.lab import LabInfo
    from benchfarm_virtual.spec import PhoneSpec
    from orchestrator.bootstrap.settings import Settings
    from orchestrator.devices.adb_server import OwnServer


def _lab(module: str, name: str, *arguments: object, **options: object) -> Any:  # noqa: ANN401 - as the lab's own
    """Call a function of a module of the lab, its errors and its absence as benchfarm's."""
    try:
        import benchfarm_virtual.errors as theirs

        function = getattr(importlib.import_module(f"benchfarm_virtual.{module}"), name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"virtual phones need the package benchfarm-virtual; {error.name} isn't installed",
            hint="pip install 'benchfarm[virtual]', uvx --from 'benchfarm[virtual]' ..., or 'make install' in a checkout",
        ) from None
    try:
        return function(*arguments, **options)
    except (theirs.UsageError, theirs.DeviceError) as error:
        kinds = {
            theirs.UsageError: UsageError,
            theirs.DeviceTimeoutError: DeviceTimeoutError,
            theirs.LinkLostError: LinkLostError,
            theirs.DeviceError: DeviceError,
        }
        kind = next(own for their, own in kinds.items() if isinstance(error, their))
        raise kind(str(error), hint=error.hint) from error


def profile_names() -> list[str]:
    """Return the names of the kinds of virtual phone, sorted."""
    return list(_lab("profiles", "profile_names"))


def fault_kinds() -> str:
    """Return a text that explains the kinds of fault that a virtual phone can have."""
    return str(_lab("fault_kinds", "describe"))


def phone_spec(profile: str, serial: str, *, usb: str = "", rooted: bool = False) -> PhoneSpec:
    """Return a virtual phone to start."""
    spec: PhoneSpec = _lab(
        "spec", "PhoneSpec", profile=profile, serial=serial, usb=usb, rooted=rooted
    )
    return spec


def start_lab(
    folder: Path,
    phones: Sequence[PhoneSpec],
    *,
    adb_key: Path,
    time_factor: float,
    seed: int,
    exit_with_parent: bool,
    environ: Mapping[str, str],
) -> LabInfo:
    """Start a lab whose phones let in the adb server with this public key; return when they listen.

    ``time_factor``: phone seconds in one real second. ``seed``: where the phones' noise comes from.
    """
    started: LabInfo = _lab(
        "lab",
        "start_lab",
        folder,
        phones,
        adb_keys=[adb_key],
        time_factor=time_factor,
        seed=seed,
        exit_with_parent=exit_with_parent,
        environ=child_environment(environ),
    )
    return started


def read_lab(folder: Path) -> LabInfo:
    """Return the lab that runs in a folder."""
    lab: LabInfo = _lab("lab", "read_lab", folder)
    return lab


def lab_request(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Send a request to the lab of a folder and return its answer."""
    return dict(_lab("lab", "lab_request", folder, request))


def stop_lab(folder: Path) -> bool:
    """Stop the lab of a folder and return when its processes have ended.

    False when none was running.
    """
    return bool(_lab("lab", "stop_lab", folder))


def time_factor_of(version: str) -> float:
    """Return by how much a fake program of this version takes longer; 1.0 without a mark in it."""
    return float(_lab("programs.process", "time_factor_of", version))


def fake_program(name: str, abi: str, *, version: str = "virtual") -> bytes:
    """Return the bytes of a fake benchmark program that virtual phones run."""
    return bytes(_lab("samples", "benchmark_elf", name, abi, version=version))


def fake_app(abi: str, *, has_flex: bool) -> tuple[bytes, str]:
    """Return the bytes of a fake benchmark APK that virtual phones run, and its package name."""
    content = bytes(_lab("samples", "benchmark_apk", abis=(abi,), flex=has_flex))
    from benchfarm_virtual.samples import BENCHMARK_PACKAGE

    return content, BENCHMARK_PACKAGE


def fake_libraries(abi: str, *, needed: str) -> dict[str, bytes]:
    """Return the libraries that a fake program needs (``dsp``, ``vendor`` or ``tokens``): name ->
    bytes.
    """
    from benchfarm_virtual.samples import HEXAGON_LIBRARIES, LANGUAGE_MODEL_LIBRARIES, NPU_LIBRARIES

    sets = {"dsp": HEXAGON_LIBRARIES, "vendor": NPU_LIBRARIES, "tokens": LANGUAGE_MODEL_LIBRARIES}
    return {name: _lab("samples", "library_elf", name, abi) for name in sets[needed]}


def adb_server(settings: Settings) -> OwnServer:
    """Return the adb server of the virtual lab, whether it runs or not."""
    from orchestrator.devices.adb_server import OwnServer

    folder = settings.lab_folder
    # A home of its own: the lab's phones let in this server's key and no other.
    environ = {**settings.environ, "HOME": str(folder)}
    return OwnServer(folder, setting=settings.adb, environ=environ, usb=False)
