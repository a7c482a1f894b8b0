"""What is known of phones that were asked who they are."""

from __future__ import annotations

from orchestrator.devices.adb_server import AdbServer
from orchestrator.devices.discovery import PhoneCache
from orchestrator.ports import ListedPhone


def test_a_phone_that_cannot_be_asked_keeps_its_name() -> None:
    server, known = AdbServer(), PhoneCache()
    told = ListedPhone(
        address="at-S1", serial="S1", state="device", transport_id=1, usable=True, boot_id="b"
    )
    known.keep(server, [told])
    nameless = ListedPhone(address="at-S1", serial="", state="device", usable=False)
    assert known.name(server, nameless).serial == "S1"
    for state in ("offline", "unauthorized", "recovery"):
        assert (
            known.name(
                server, ListedPhone(address="at-S1", serial="", state=state, usable=False)
            ).serial
            == "S1"
        )
    assert (
        known.name(
            server, ListedPhone(address="at-S2", serial="", state="offline", usable=False)
        ).serial
        == ""
    )
    # Another phone has the address by now, and says so.
    assert (
        known.name(
            server, ListedPhone(address="at-S1", serial="S3", state="device", usable=False)
        ).serial
        == "S3"
    )
