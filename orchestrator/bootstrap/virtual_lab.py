"""The virtual phones of the distribution ``benchfarm-lab``: the one module of benchfarm that imports it.

Every function raises UsageError when it isn't installed, and benchfarm's own errors instead of the lab's: UsageError
for what can't be done as written, DeviceError, DeviceTimeoutError and LinkLostError for what went wrong in the lab.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.child_environment import child_environment
from orchestrator.errors import DeviceError, DeviceTimeoutError, LinkLostError, UsageError

if TYPE_CHECKING:
    from benchfarm_lab.lab import LabInfo
    from benchfarm_lab.spec import PhoneSpec


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Turn the lab's errors, and its absence, into benchfarm's."""
    try:
        import benchfarm_lab.errors as theirs
    except ModuleNotFoundError as error:
        raise UsageError(
            f"virtual phones need the package benchfarm-lab; {error.name} isn't installed",
            hint="pip install 'benchfarm[lab]', uvx --from 'benchfarm[lab]' ..., or 'make install' in a checkout",
        ) from None
    try:
        yield
    except theirs.UsageError as error:
        raise UsageError(str(error), hint=error.hint) from error
    except theirs.DeviceTimeoutError as error:
        raise DeviceTimeoutError(str(error), hint=error.hint) from error
    except theirs.LinkLostError as error:
        raise LinkLostError(str(error), hint=error.hint) from error
    except theirs.DeviceError as error:
        raise DeviceError(str(error), hint=error.hint) from error


def profile_names() -> list[str]:
    """Return the names of the kinds of virtual phone, sorted."""
    with _errors():
        from benchfarm_lab.profiles import profile_names as names

        return names()


def fault_kinds() -> str:
    """Return a text that explains the kinds of fault that a virtual phone can have."""
    with _errors():
        from benchfarm_lab.fault_kinds import describe

        return describe()


def phone_spec(profile: str, serial: str, *, usb: str = "", rooted: bool = False) -> PhoneSpec:
    """Return a virtual phone to start."""
    with _errors():
        from benchfarm_lab.spec import PhoneSpec

        return PhoneSpec(profile=profile, serial=serial, usb=usb, rooted=rooted)


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
    with _errors():
        from benchfarm_lab.lab import start_lab as start

        return start(
            folder,
            phones,
            adb_keys=[adb_key],
            time_factor=time_factor,
            seed=seed,
            exit_with_parent=exit_with_parent,
            environ=child_environment(environ),
        )


def read_lab(folder: Path) -> LabInfo:
    """Return the lab that runs in a folder."""
    with _errors():
        from benchfarm_lab.lab import read_lab as read

        return read(folder)


def lab_request(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Send a request to the lab of a folder and return its answer."""
    with _errors():
        from benchfarm_lab.lab import lab_request as ask

        return ask(folder, request)


def stop_lab(folder: Path) -> bool:
    """Stop the lab of a folder and return when its processes have ended; False when none was running."""
    with _errors():
        from benchfarm_lab.lab import stop_lab as stop

        return stop(folder)


def time_factor_of(version: str) -> float:
    """Return by how much a fake program of this version takes longer; 1.0 without a mark in it."""
    with _errors():
        from benchfarm_lab.programs.process import time_factor_of as factor_of

        return factor_of(version)


def fake_program(name: str, abi: str, *, version: str = "virtual") -> bytes:
    """Return the bytes of a fake benchmark program that virtual phones run."""
    with _errors():
        from benchfarm_lab.samples import benchmark_elf

        return benchmark_elf(name, abi, version=version)


def fake_app(abi: str, *, has_flex: bool) -> tuple[bytes, str]:
    """Return the bytes of a fake benchmark APK that virtual phones run, and its package name."""
    with _errors():
        from benchfarm_lab.samples import BENCHMARK_PACKAGE, benchmark_apk

        return benchmark_apk(abis=(abi,), flex=has_flex), BENCHMARK_PACKAGE


def fake_libraries(abi: str, *, needed: str) -> dict[str, bytes]:
    """Return the libraries that a fake program needs (``dsp``, ``vendor`` or ``tokens``): name -> bytes."""
    with _errors():
        from benchfarm_lab.samples import HEXAGON_LIBRARIES, LANGUAGE_MODEL_LIBRARIES, NPU_LIBRARIES, library_elf

        sets = {"dsp": HEXAGON_LIBRARIES, "vendor": NPU_LIBRARIES, "tokens": LANGUAGE_MODEL_LIBRARIES}
        return {name: library_elf(name, abi) for name in sets[needed]}
