"""Virtual phones in processes of their own, and the private adb server that reaches them: the one
module of benchfarm that imports the distribution ``benchfarm-virtual``.

Every function raises UsageError when it isn't installed. The lab's errors are raised as benchfarm's
own: UsageError for wrong input; DeviceError, DeviceTimeoutError and LinkLostError for faults of the
lab.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import itertools
import math
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.requests import LabRequest
from orchestrator.delegates import DELEGATES, EVERYWHERE, FlagFamily
from orchestrator.errors import DeviceError, DeviceTimeoutError, LinkLostError, UsageError
from orchestrator.files import write_file, write_whole
from orchestrator.programs import program
from orchestrator.records.case import Build, BuildSha, Companion, ToolName
from orchestrator.records.plan import PlanOptions
from orchestrator.settings import Settings

if TYPE_CHECKING:
    from benchfarm_virtual.control import RunningPhone, RunningPhones
    from benchfarm_virtual.spec import PhoneSpec
    from orchestrator.devices.adb_server import PrivateAdbServer


def call(module: str, name: str, *arguments: object, **options: object) -> Any:  # noqa: ANN401 - as the lab's own
    """Return the answer of a function in a module of the lab, or the value of another name in it."""
    try:
        import benchfarm_virtual.errors as theirs

        target = getattr(importlib.import_module(f"benchfarm_virtual.{module}"), name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"virtual phones need the package benchfarm-virtual; {error.name} isn't installed",
            hint="pip install 'benchfarm[virtual]', uvx --from 'benchfarm[virtual]' ..., or 'make install' in a checkout",
        ) from None
    try:
        return target(*arguments, **options) if callable(target) else target
    except (theirs.UsageError, theirs.DeviceError) as error:
        kinds = {
            theirs.UsageError: UsageError,
            theirs.DeviceTimeoutError: DeviceTimeoutError,
            theirs.LinkLostError: LinkLostError,
            theirs.DeviceError: DeviceError,
        }
        kind = next(mapped for their, mapped in kinds.items() if isinstance(error, their))
        raise kind(str(error), hint=error.hint) from error


#: Phones per process. A process computes on one core: this many phones can start and end runs
#: together without long delays.
_PHONES_A_PROCESS = 5
_ATTACH_S = 60.0


def labs(settings: Settings) -> list[RunningPhones]:
    """Return the processes of virtual phones that run; raises UsageError where none does."""
    return running(settings) or [call("control", "read_phones", settings.virtual_folder)]


def running(settings: Settings) -> list[RunningPhones]:
    """Return the processes of virtual phones that run."""
    processes: list[RunningPhones] = []
    for folder in _folders(settings):
        with contextlib.suppress(UsageError):
            processes.append(call("control", "read_phones", folder))
    return processes


def _folders(settings: Settings) -> list[Path]:
    """Return the folders of processes of virtual phones, also of ended ones."""
    return [settings.virtual_folder, *sorted(settings.virtual_folder.glob("more-*"))]


def phones_of(settings: Settings) -> list[RunningPhone]:
    """Return the virtual phones; raises UsageError where none is up."""
    return [phone for lab in labs(settings) for phone in lab.phones]


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
            names = {
                FlagFamily.LITERT: "NPU_LIBRARIES",
                FlagFamily.LITERT_LM: "LANGUAGE_MODEL_LIBRARIES",
            }.get(program(tool).family, "HEXAGON_LIBRARIES")
            libraries = {
                file_name: call("samples", "library_elf", file_name, abi)
                for file_name in call("samples", names)
            }
    sha256, path = _kept(folder, name, content)
    return Build(
        name=f"virtual {name}",
        tool=tool,
        sha256=BuildSha(sha256),
        abi=abi,
        version="virtual",
        package=package,
        is_virtual=True,
        path=path,
        companions=tuple(
            Companion(name=library, sha256=digest, path=place)
            for library, data in libraries.items()
            for digest, place in [_kept(folder, library, data)]
        ),
    )


def _kept(folder: Path, name: str, content: bytes) -> tuple[str, Path]:
    """Return a content's sha256 and its file, which is written unless it is there."""
    sha256 = hashlib.sha256(content).hexdigest()
    path = folder / sha256[:16] / name
    if not path.is_file():
        write_whole(path, content)
    return sha256, path


def adb_server(settings: Settings) -> PrivateAdbServer:
    """Return the adb server of the virtual phones, whether it runs or not."""
    from orchestrator.devices.adb_server import PrivateAdbServer

    folder = settings.virtual_folder
    # A home of its own: the lab's phones let in this server's key and no other.
    environ = {**settings.environ, "HOME": str(folder)}
    return PrivateAdbServer(folder, setting=settings.adb, environ=environ, usb=False)


DEFAULT_PROFILES = ("pixel-3", "pixel-4")


def _specs(request: LabRequest, taken: Collection[str] = ()) -> list[PhoneSpec]:
    """Return the requested phones, with serial numbers that aren't taken: ``VIRTUAL-PIXEL-3``, and
    numbered from the second of a kind on.

    Raises UsageError.
    """
    available, used = call("profiles", "profile_names"), set(taken)
    phones: list[PhoneSpec] = []
    requested = request.profiles or DEFAULT_PROFILES
    if request.serial and len(requested) > 1:
        raise UsageError("--serial is for one phone", hint="name one profile")
    if request.serial in used:
        raise UsageError(f"a virtual phone {request.serial} exists already")
    for name, _, usb in (word.partition("@") for word in requested):
        if name not in available:
            raise UsageError(
                f"there is no virtual phone {name!r}", hint=f"there are: {', '.join(available)}"
            )
        first = f"VIRTUAL-{name.upper()}"
        names = itertools.chain([first], (f"{first}-{number}" for number in itertools.count(2)))
        serial = request.serial or next(name for name in names if name not in used)
        used.add(serial)
        phone = {"profile": name, "serial": serial, "rooted": request.rooted, "usb": usb}
        phones.append(call("spec", "PhoneSpec", **phone))
    return phones


def start(
    settings: Settings, request: LabRequest, *, exit_with_parent: bool = False
) -> Sequence[RunningPhone]:
    """Start a lab, connect its phones and return them; when anything fails, all that was started is
    stopped again.

    ``settings`` name its folder; with ``exit_with_parent`` it ends with this process.
    """
    from orchestrator.processes import child_environment

    specs = _specs(request)
    server = adb_server(settings)
    with _alone(settings):
        if here := running(settings):
            raise UsageError(
                f"{here[0].state_dir}: virtual phones are running here already",
                hint="'benchfarm virtual up PROFILE' adds phones, 'benchfarm virtual down' stops them",
            )
        server.revive()
        try:
            for folder, phones in _shares(settings, specs):
                lab = call(
                    "control",
                    "start_phones",
                    folder,
                    phones,
                    adb_keys=[settings.virtual_folder / ".android" / "adbkey.pub"],
                    time_factor=request.speed,
                    seed=request.seed,
                    exit_with_parent=exit_with_parent,
                    environ=child_environment(settings.environ),
                )
                for phone in lab.phones:
                    server.connect_tcp(phone.address)
        except BaseException:
            stop(settings)
            raise
        return phones_of(settings)


def _alone(settings: Settings) -> AbstractContextManager[None]:
    """Return a lock that stops other processes from attaching virtual phones meanwhile."""
    from orchestrator.processes import Locks

    busy = UsageError("another process starts virtual phones", hint="try again in a moment")
    return Locks(settings.virtual_folder).held("attach", wait_s=_ATTACH_S, busy=busy)


def _shares(
    settings: Settings, specs: Sequence[PhoneSpec]
) -> Iterator[tuple[Path, Sequence[PhoneSpec]]]:
    """Yield the folder of each process and its phones: as many processes as keep the cores busy."""
    count = max(1, min(os.cpu_count() or 1, math.ceil(len(specs) / _PHONES_A_PROCESS)))
    for number in range(count):
        folder = settings.virtual_folder / f"more-{number}" if number else settings.virtual_folder
        yield folder, specs[len(specs) * number // count : len(specs) * (number + 1) // count]


def listed(settings: Settings) -> list[dict[str, Any]]:
    """Return the state of each phone, with its faults; raises UsageError where none is up."""
    return [
        phone
        for lab in labs(settings)
        for phone in call("control", "ask_phones", lab.state_dir, {"request": "list"})["phones"]
    ]


def ask(settings: Settings, request: str, serial: str, **keys: object) -> dict[str, Any]:
    """Ask a phone's lab something and return its answer; raises UsageError where there is no such
    phone.
    """
    words = {"request": request, "serial": serial, **keys}
    return dict(call("control", "ask_phones", _lab_of(settings, serial).state_dir, words))


def _lab_of(settings: Settings, serial: str) -> RunningPhones:
    for lab in labs(settings):
        if any(serial in (phone.serial, phone.address) for phone in lab.phones):
            return lab
    serials = ", ".join(phone.serial for phone in phones_of(settings))
    raise UsageError(f"there is no virtual phone {serial!r}; there are: {serials or 'none'}")


def attach(settings: Settings, request: LabRequest) -> Sequence[RunningPhone]:
    """Attach more phones to a running lab, and return all of its phones; raises UsageError."""
    server = adb_server(settings)
    labs(settings)
    server.revive()
    with _alone(settings):
        taken = {phone.serial for phone in phones_of(settings)}
        for spec in _specs(request, taken):
            emptiest = min(labs(settings), key=lambda lab: len(lab.phones))
            words = {"request": "add", "phone": asdict(spec)}
            added = call("control", "ask_phones", emptiest.state_dir, words)["phone"]
            server.connect_tcp(added["address"])
    return phones_of(settings)


def detach(settings: Settings, *serials: str) -> None:
    """Detach phones of a running lab, by serial number or address; their files are lost.

    Raises UsageError for an unknown phone, and detaches none then.
    """
    for serial in serials:
        _lab_of(settings, serial)
    for phone in phones_of(settings):
        if phone.serial in serials or phone.address in serials:
            ask(settings, "remove", phone.serial)
            adb_server(settings).disconnect(phone.address)


def stop(settings: Settings) -> tuple[bool, bool]:
    """Stop the lab and its adb server; return whether there was a lab, and whether there was a
    server.
    """
    server = adb_server(settings)
    stopped = [call("control", "stop_phones", folder) for folder in _folders(settings)]
    return any(stopped), server.stop()


def quickstart_options(serials: Sequence[str]) -> PlanOptions:
    """Return the quickstart's plan: a sample model, on virtual phones and on this computer."""
    from orchestrator.models.inspect import sample_models

    # A fixed number of invocations, so that it ends soon. One model: the quantised one is too fast
    # for the 10 us of this computer's program.
    return PlanOptions(
        models=sample_models()[:1],
        delegates=tuple(
            name.value for name, delegate in DELEGATES.items() if delegate.kinds == EVERYWHERE
        ),
        threads=(1, 2),
        devices=tuple(serials),
        host=True,
        invocations=3,
        min_secs=0.5,
        max_secs=10.0,
        timeout=60.0,
        seed=1,
        name="quickstart",
    )


def write_program(path: Path, *, name: str, abi: str, version: str, time_percent: float) -> str:
    """Write a fake program that takes ``time_percent`` longer than the usual one; return its
    version.

    Raises UsageError.
    """
    marked = f"{version} time{time_percent:+.4g}%" if time_percent else version
    if abs(call("programs.process", "time_factor_of", marked) - (1 + time_percent / 100)) > 1e-6:
        raise UsageError(
            f"--time {time_percent:g} isn't possible",
            hint="a percentage from -95 to 999 with at most 4 digits",
        )
    write_file(path, call("shelf", "program_elf", name, abi, version=marked))
    path.chmod(0o755)
    return marked
