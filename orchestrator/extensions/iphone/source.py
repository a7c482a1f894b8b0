"""Finds the iPhones of this computer and opens one: a source of devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from orchestrator.extensions.iphone.usbmux import Usbmux, find_command, has_usbmuxd
from orchestrator.plugins import DeviceSource, Settings, Workspace
from orchestrator.ports import Seen

if TYPE_CHECKING:
    from orchestrator.ports import Device

#: The bundle identifier of the benchmark app where $BENCHFARM_IPHONE_APP names none.
_APP: Final = "com.example.LiteRTBenchmark"


def attached(settings: Settings) -> Sequence[Seen]:
    """Return the iPhones that are attached; none where there is no usbmuxd, or no pymobiledevice3."""
    environ = settings.environ
    command = find_command(environ) if has_usbmuxd(environ) else ()
    return Usbmux(command, environ).seen() if command else ()


def open_iphone(workspace: Workspace, seen: Seen) -> Device:
    """Open an iPhone; raises UsageError for a bundle identifier that is none."""
    from orchestrator.extensions.iphone.device import IPhoneDevice

    settings = workspace.settings
    return IPhoneDevice(
        Usbmux(find_command(settings.environ), settings.environ),
        seen,
        app=settings.environ.get("BENCHFARM_IPHONE_APP") or _APP,
        journal=workspace.conditioner.journal,
        folder=settings.state_folder / "iphones",
        profile=workspace.profile_of(seen.properties),
    )


def lacking(settings: Settings) -> tuple[str, str]:
    """Return what this computer lacks for the iPhones that it may have."""
    environ = settings.environ
    if not has_usbmuxd(environ) or find_command(environ):
        return "", ""
    step = "pip install 'benchfarm[ios]', if any is to be measured"
    return "pymobiledevice3, which talks to iPhones, isn't installed", step


SOURCE: Final = DeviceSource(title="usbmuxd", attached=attached, open=open_iphone, lacking=lacking)
