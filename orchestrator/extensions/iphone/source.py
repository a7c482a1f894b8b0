"""Finds the iPhones of this computer and opens one: a source of devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from orchestrator.extensions.iphone.usbmux import Usbmux, find_command, has_usbmuxd
from orchestrator.plugins import DeviceSource, Settings, Workspace
from orchestrator.ports import ListedPhone

if TYPE_CHECKING:
    from orchestrator.ports import Device

#: The bundle identifier of the benchmark app where $BENCHFARM_IPHONE_APP names none.
_APP: Final = "com.example.LiteRTBenchmark"


def attached(settings: Settings) -> Sequence[ListedPhone]:
    """Return the attached iPhones; none without usbmuxd or pymobiledevice3."""
    environ = settings.environ
    command = find_command(environ) if has_usbmuxd(environ) else ()
    return Usbmux(command, environ).attached() if command else ()


def open_iphone(workspace: Workspace, entry: ListedPhone) -> Device:
    """Open an iPhone; raises UsageError for an invalid bundle identifier."""
    from orchestrator.extensions.iphone.device import IPhoneDevice

    settings = workspace.settings
    device = IPhoneDevice(
        Usbmux(find_command(settings.environ), settings.environ),
        entry,
        app=settings.environ.get("BENCHFARM_IPHONE_APP") or _APP,
        journal=workspace.conditioner.journal,
        folder=settings.state_folder / "iphones",
    )
    device.profile = workspace.profile_of(entry.properties)
    return device


def missing_program(settings: Settings) -> tuple[str, str]:
    """Return the missing program and the next step where iPhones may be attached, else empty texts."""
    environ = settings.environ
    if not has_usbmuxd(environ) or find_command(environ):
        return "", ""
    step = "pip install 'benchfarm[ios]', if any is to be measured"
    return "pymobiledevice3, which talks to iPhones, isn't installed", step


SOURCE: Final = DeviceSource(
    title="usbmuxd", attached=attached, open=open_iphone, lacking=missing_program
)
