"""``benchfarm lab``: virtual phones in processes of their own, and the private adb server that reaches them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from orchestrator.bootstrap import Farm, Settings, virtual_lab
from orchestrator.cli.result import CommandResult, table
from orchestrator.errors import BenchfarmError, UsageError

DEFAULT_PROFILES = ("pixel-3", "pixel-4")


def up(
    settings: Settings,
    profiles: tuple[str, ...],
    *,
    speed: float = 1.0,
    seed: int = 0,
    execute: bool = False,
    rooted: bool = False,
    exit_with_parent: bool = False,
) -> CommandResult:
    """Start a lab and connect its phones; when anything fails, all that was started is stopped again."""
    from orchestrator.devices.server import AdbServer
    from orchestrator.devices.server_process import find_adb

    with Farm(settings) as farm:
        folder = farm.lab_folder
    asked = [name.partition("@") for name in profiles or DEFAULT_PROFILES]
    specs = [
        virtual_lab.phone_spec(name, serial, execute=execute, rooted=rooted, usb=usb)
        for (name, serial), (_, _, usb) in zip(serials_for(tuple(name for name, _, _ in asked)), asked, strict=True)
    ]
    server = AdbServer.start(
        binary=find_adb(settings.adb, search_path=settings.environ.get("PATH")),
        state_folder=folder,
        # A home of its own: the lab's phones let in this server's key and no other.
        environ={**settings.environ, "HOME": str(folder)},
        usb=False,
    )
    try:
        lab = virtual_lab.start_lab(
            folder,
            specs,
            adb_key=folder / ".android" / "adbkey.pub",
            time_factor=speed,
            seed=seed,
            exit_with_parent=exit_with_parent,
            environ=settings.environ,
        )
        for phone in lab.phones:
            server.connect_tcp(phone.address)
    except BaseException as error:
        already = isinstance(error, UsageError)
        if not already:
            down(settings)
        raise
    rows = [(phone.serial, phone.profile, phone.address) for phone in lab.phones]
    text = table(("serial", "profile", "address"), rows)
    return CommandResult(
        text=f"{text}\nadb server at {server.address}; 'benchfarm lab down' stops all of it",
        data={"phones": lab.phones, "adb_server": str(server.address), "pid": lab.pid, "speed": speed},
    )


def add(settings: Settings, profile: str, *, serial: str = "") -> CommandResult:
    """Plug one more phone in at a lab that is up; raises UsageError."""
    name, _, usb = profile.partition("@")
    with Farm(settings) as farm:
        folder, server = farm.lab_folder, farm.lab_server()
    present = virtual_lab.read_lab(folder).phones
    if server is None:
        raise UsageError("no lab is up", hint="start one with 'benchfarm lab up'")
    if not serial:
        taken = {phone.serial for phone in present}
        serial = next(serial for _, serial in serials_for((name,) * (len(taken) + 1)) if serial not in taken)
    spec = virtual_lab.phone_spec(name, serial, usb=usb)
    phone = virtual_lab.lab_request(folder, {"request": "add", "phone": spec.to_json()})
    server.connect_tcp(phone["phone"]["address"])
    return CommandResult(text=f"{serial} is plugged in at {phone['phone']['address']}", data=phone["phone"])


def remove(settings: Settings, serial: str) -> CommandResult:
    """Unplug a phone of a lab that is up; what lies on it stays for the next time. Raises UsageError."""
    with Farm(settings) as farm:
        folder, server = farm.lab_folder, farm.lab_server()
    address = next((phone.address for phone in virtual_lab.read_lab(folder).phones if phone.serial == serial), "")
    virtual_lab.lab_request(folder, {"request": "remove", "serial": serial})
    if server is not None and address:
        server.disconnect(address)
    return CommandResult(text=f"{serial} is unplugged", data={"serial": serial})


def serials_for(profiles: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return (profile, serial number) pairs: ``VIRTUAL-PIXEL-3``, and numbered from the second of a kind on."""
    known = virtual_lab.profile_names()
    seen: Counter[str] = Counter()
    pairs = []
    for profile in profiles or DEFAULT_PROFILES:
        if profile not in known:
            raise UsageError(f"there is no virtual phone {profile!r}", hint=f"there are: {', '.join(known)}")
        seen[profile] += 1
        number = f"-{seen[profile]}" if seen[profile] > 1 else ""
        pairs.append((profile, f"VIRTUAL-{profile.upper()}{number}"))
    return pairs


def down(settings: Settings) -> CommandResult:
    """Stop the lab and its adb server."""
    with Farm(settings) as farm:
        server = farm.lab_server()
        stopped = virtual_lab.stop_lab(farm.lab_folder)
    if server is not None:
        server.stop()
    text = "the lab is down" if stopped or server else "no lab was up"
    return CommandResult(text=text, data={"stopped": stopped, "adb_server_stopped": server is not None})


def list_phones(settings: Settings) -> CommandResult:
    """List the lab's phones with their faults; and the profiles that phones can have."""
    with Farm(settings) as farm:
        try:
            told = virtual_lab.lab_request(farm.lab_folder, {"request": "list"})
        except UsageError:
            told = {"phones": [], "lost": []}
    phones, lost = told["phones"], told["lost"]
    rows = [
        (phone["serial"], phone["profile"], phone["address"], ", ".join(_fault_text(f) for f in phone["faults"]))
        for phone in phones
    ]
    parts = [table(("serial", "profile", "address", "faults"), rows) if rows else "no lab is up"]
    parts += [f"lost: {', '.join(part['serials'])}: {part['reason']}" for part in lost]
    parts.append(f"profiles: {', '.join(virtual_lab.profile_names())}")
    data = {"phones": phones, "lost": lost, "profiles": list(virtual_lab.profile_names())}
    return CommandResult(text="\n".join(parts), data=data)


def fault(settings: Settings, serial: str, kind: str, options: tuple[str, ...]) -> CommandResult:
    """Give a phone a fault, take its faults back (``clear``), or explain the kinds when no phone is named."""
    if not serial or not kind:
        return CommandResult(text=virtual_lab.fault_kinds(), data={"kinds": virtual_lab.fault_kinds()})
    with Farm(settings) as farm:
        folder = farm.lab_folder
    if kind == "clear":
        cleared = virtual_lab.lab_request(folder, {"request": "clear", "serial": serial})["cleared"]
        return CommandResult(text=f"{serial}: {len(cleared)} faults removed", data=cleared)
    values: dict[str, object] = {"kind": kind}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise UsageError(f"{option!r} isn't name=value", hint="benchfarm lab fault lists the kinds of fault")
        values[name] = value
    added = virtual_lab.lab_request(folder, {"request": "fault", "serial": serial, "fault": values})["fault"]
    return CommandResult(text=f"{serial}: {_fault_text(added)}", data=added)


def program(path: Path, *, name: str, abi: str, version: str, time_percent: float) -> CommandResult:
    """Write a stand-in program that takes so much longer than the usual one; raises UsageError."""
    from orchestrator.files import write_file

    marked = f"{version} time{time_percent:+.4g}%" if time_percent else version
    if abs(virtual_lab.time_factor_of(marked) - (1 + time_percent / 100)) > 1e-6:
        raise UsageError(f"--time {time_percent:g} can't be", hint="a percentage from -95 to 999 with at most 4 digits")
    write_file(path, virtual_lab.fake_program(name, abi, version=marked))
    path.chmod(0o755)
    text = f"{path}: fake {name} for {abi}, version '{marked}'; only virtual phones run it"
    return CommandResult(text=text, data={"path": path, "program": name, "abi": abi, "version": marked})


def _fault_text(fault: dict[str, object]) -> str:
    rest = ", ".join(f"{name}={value}" for name, value in fault.items() if value and name not in {"kind", "fault_id"})
    return f"{fault['kind']}{f' ({rest})' if rest else ''}"


def stop_quietly(settings: Settings) -> None:
    """Stop the lab whatever happens; for the end of commands that started one."""
    try:
        down(settings)
    except BenchfarmError:
        # The caller has its own error to tell, and 'benchfarm lab down' can be called again.
        return
