"""``benchfarm lab``: virtual phones in processes of their own, and the private adb server that reaches them."""

from __future__ import annotations

from pathlib import Path

from orchestrator.app import virtual_phones
from orchestrator.app.virtual_phones import Wanted
from orchestrator.bootstrap import Farm, Settings, virtual_lab
from orchestrator.cli.result import CommandResult, table
from orchestrator.errors import UsageError


def up(settings: Settings, wanted: Wanted) -> CommandResult:
    """Start a lab and connect its phones."""
    lab = virtual_phones.start(settings, wanted)
    rows = [(phone.serial, phone.profile, phone.address) for phone in lab.phones]
    text = table(("serial", "profile", "address"), rows)
    return CommandResult(text=f"{text}\nadb server at {lab.adb_server}; 'benchfarm lab down' stops all of it", data=lab)


def add(settings: Settings, profile: str, *, serial: str = "") -> CommandResult:
    """Plug one more phone in at a lab that is up; raises UsageError."""
    phone = virtual_phones.attach(settings, profile, serial=serial)
    return CommandResult(text=f"{phone['serial']} is plugged in at {phone['address']}", data=phone)


def remove(settings: Settings, serial: str) -> CommandResult:
    """Unplug a phone of a lab that is up; raises UsageError."""
    virtual_phones.detach(settings, serial)
    return CommandResult(text=f"{serial} is unplugged", data={"serial": serial})


def down(settings: Settings) -> CommandResult:
    """Stop the lab and its adb server."""
    stopped, server_stopped = virtual_phones.stop(settings)
    text = "the lab is down" if stopped or server_stopped else "no lab was up"
    return CommandResult(text=text, data={"stopped": stopped, "adb_server_stopped": server_stopped})


def list_phones(settings: Settings) -> CommandResult:
    """List the lab's phones with their faults; and the profiles that phones can have."""
    with Farm(settings) as farm:
        try:
            told = virtual_lab.lab_request(farm.lab_folder, {"request": "list"})
        except UsageError:
            told = {"phones": []}
    phones = told["phones"]
    rows = [
        (phone["serial"], phone["profile"], phone["address"], ", ".join(_fault_text(f) for f in phone["faults"]))
        for phone in phones
    ]
    parts = [table(("serial", "profile", "address", "faults"), rows) if rows else "no lab is up"]
    parts.append(f"profiles: {', '.join(virtual_lab.profile_names())}")
    data = {"phones": phones, "profiles": list(virtual_lab.profile_names())}
    return CommandResult(text="\n".join(parts), data=data)


def fault(settings: Settings, serial: str, kind: str, options: tuple[str, ...]) -> CommandResult:
    """Give a phone a fault, take its faults back (``clear``), or explain the kinds when no phone is named."""
    if not serial or not kind:
        return CommandResult(text=virtual_lab.fault_kinds(), data={"kinds": virtual_lab.fault_kinds()})
    if kind == "clear":
        cleared = virtual_phones.clear_faults(settings, serial)
        return CommandResult(text=f"{serial}: {len(cleared)} faults removed", data=cleared)
    added = virtual_phones.add_fault(settings, serial, kind, options)
    return CommandResult(text=f"{serial}: {_fault_text(added)}", data=added)


def program(path: Path, *, name: str, abi: str, version: str, time_percent: float) -> CommandResult:
    """Write a fake program that takes so much longer than the usual one; raises UsageError."""
    marked = virtual_phones.write_program(path, name=name, abi=abi, version=version, time_percent=time_percent)
    text = f"{path}: fake {name} for {abi}, version '{marked}'; only virtual phones run it"
    return CommandResult(text=text, data={"path": path, "program": name, "abi": abi, "version": marked})


def _fault_text(fault: dict[str, object]) -> str:
    rest = ", ".join(f"{name}={value}" for name, value in fault.items() if value and name not in {"kind", "fault_id"})
    return f"{fault['kind']}{f' ({rest})' if rest else ''}"
