"""``benchfarm virtual``: virtual phones in their own processes, and their private adb server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

from typer import Argument, Context, Option

from orchestrator.app.requests import LabRequest
from orchestrator.cli.commands import Texts, command, refuse
from orchestrator.cli.output import CommandResult, tables_result
from orchestrator.errors import UsageError
from orchestrator.settings import Settings
from orchestrator.tables.table import Column, Kind, Table
from orchestrator.units import counted


@command("virtual up", has_table=True)
def up(settings: Settings, context: Context, request: LabRequest) -> CommandResult:
    """Start virtual phones (default: two), or attach more.

    Example: benchfarm virtual up pixel-3 pixel-8
    """
    from orchestrator.app import virtual_phones

    if request.profiles and virtual_phones.running(settings):
        refuse(context, {"speed", "seed"}, "for phones that are added to running ones")
        phones = virtual_phones.attach(settings, request)
    else:
        phones = virtual_phones.start(settings, request)
    address = str(virtual_phones.adb_server(settings).address)
    return tables_result(
        _phones([asdict(phone) for phone in phones]),
        f"adb server at {address}; 'benchfarm virtual down' stops phones and server",
        facts={"adb_server": address},
    )


def _phones(rows: Sequence[Mapping[str, Any]]) -> Table[Mapping[str, Any]]:
    return Table(
        name="phones",
        caption="Virtual phones",
        columns=_PHONES,
        rows=rows,
        nothing="no virtual phone is up",
    )


_PHONES: Final[Sequence[Column[Mapping[str, Any]]]] = (
    Column("serial", value=lambda phone: phone["serial"]),
    Column("profile", value=lambda phone: phone["profile"]),
    Column("address", value=lambda phone: phone["address"]),
    Column(
        "faults",
        value=lambda phone: phone.get("faults", ()),
        kind=Kind.RECORD,
        shown=lambda phone: ", ".join(map(_fault_text, phone.get("faults", ()))),
        is_optional=True,
    ),
)


@command("virtual down")
def down(
    settings: Settings,
    serials: Annotated[
        Texts, Argument(help="Phones to detach (default: all, and their adb server).")
    ] = None,
) -> CommandResult:
    """Stop all virtual phones, or detach some.

    Example: benchfarm virtual down
    """
    from orchestrator.app import virtual_phones

    if serials:
        virtual_phones.detach(settings, *serials)
        return CommandResult(
            text="\n".join(f"{serial} is detached" for serial in serials),
            data={"serials": serials},
        )
    stopped, server_stopped = virtual_phones.stop(settings)
    is_stopped = stopped or server_stopped
    text = "all virtual phones are stopped" if is_stopped else "no virtual phone was up"
    return CommandResult(text=text, data={"stopped": stopped, "adb_server_stopped": server_stopped})


@command("virtual list", has_table=True)
def list_phones(settings: Settings) -> CommandResult:
    """List virtual phones, their faults and the profiles.

    Example: benchfarm virtual list
    """
    from orchestrator.app import virtual_phones

    try:
        phones = virtual_phones.listed(settings)
    except UsageError:
        phones = []
    profiles = virtual_phones.call("profiles", "profile_names")
    return tables_result(
        _phones(phones), f"profiles: {', '.join(profiles)}", facts={"profiles": profiles}
    )


@command("virtual fault")
def fault(
    settings: Settings,
    serial: Annotated[
        str, Argument(help="Serial number of a virtual phone (default: list the kinds of fault).")
    ] = "",
    kind: Annotated[
        str, Argument(help="Kind of fault. 'clear' removes all faults of the phone.")
    ] = "",
    options: Annotated[Texts, Argument(help="Options of the fault, name=value.")] = None,
) -> CommandResult:
    """Give a virtual phone a fault at a set moment.

    Example: benchfarm virtual fault VIRTUAL-PIXEL-3 cut moment=run
    """
    from orchestrator.app import virtual_phones

    if not serial or not kind:
        kinds = virtual_phones.call("faults", "describe")
        return CommandResult(text=kinds, data={"kinds": kinds})
    if kind == "clear":
        cleared = virtual_phones.ask(settings, "clear", serial)["cleared"]
        return CommandResult(
            text=f"{serial}: {counted(len(cleared), 'fault')} removed", data=cleared
        )
    answer = virtual_phones.ask(settings, "fault", serial, kind=kind, options=options or [])
    return CommandResult(text=f"{serial}: {_fault_text(answer['fault'])}", data=answer["fault"])


@command("virtual program")
def program(
    file: Annotated[Path, Argument(help="File to write.")],
    name: Annotated[str, Option("--program", help="Program that it imitates.")] = "benchmark_model",
    abi: Annotated[str, Option("--abi", help="ABI of the program.")] = "arm64-v8a",
    version: Annotated[str, Option("--release", help="Version that it reports.")] = "virtual",
    time: Annotated[
        float,
        Option(
            "--time",
            help="Percent by which its inferences take longer (+3) or shorter (-3).",
            min=-95,
            max=999,
        ),
    ] = 0.0,
) -> CommandResult:
    """Write a program of known speed for virtual phones.

    Example: benchfarm virtual program slow.bin --time +3
    """
    from orchestrator.app import virtual_phones

    marked = virtual_phones.write_program(
        file, name=name, abi=abi, version=version, time_percent=time
    )
    text = f"{file}: fake {name} for {abi}, version '{marked}'; only virtual phones run it"
    return CommandResult(
        text=text, data={"path": file, "program": name, "abi": abi, "version": marked}
    )


def _fault_text(fault: dict[str, object]) -> str:
    rest = ", ".join(
        f"{name}={value}"
        for name, value in fault.items()
        if value and name not in {"kind", "fault_id"}
    )
    return f"{fault['kind']}{f' ({rest})' if rest else ''}"
