"""Which phones a worker has asked whether they still answer."""

from __future__ import annotations

from orchestrator.cli.farm_idle import IdlePhones
from orchestrator.devices.discovery import KnownPhones, Seen, Transport
from orchestrator.devices.server import AdbServer

SERVER = AdbServer()
#: Less than two calls can be apart.
AT_ONCE_S = 1e-12


def seen(serial: str, **changes: object) -> Seen:
    values: dict[str, object] = {"state": "device", "transport_id": 1, "usable": True, "boot_id": "b", **changes}
    return Seen(address=f"at-{serial}", serial=serial, **values)  # type: ignore[arg-type]


def known_of(*serials: str) -> KnownPhones:
    known = KnownPhones()
    known.keep(SERVER, [seen(serial) for serial in serials])
    return known


def is_known(known: KnownPhones, serial: str) -> bool:
    return known.get(SERVER, Transport(address=f"at-{serial}", state="device", transport_id=1)) is not None


def test_only_phones_without_work_are_asked() -> None:
    known = known_of("busy", "idle")
    idle = IdlePhones(known, every_s=AT_ONCE_S, say=lambda text: None)
    for _ in range(3):
        idle.have_asked(["busy", "idle"], in_use=lambda serial: serial == "busy")
    assert is_known(known, "busy")
    assert not is_known(known, "idle")


def test_none_is_asked_before_its_time_or_when_that_is_off() -> None:
    for every_s in (3600.0, 0.0):
        known = known_of("idle")
        idle = IdlePhones(known, every_s=every_s, say=lambda text: None)
        for _ in range(3):
            idle.have_asked(["idle"], in_use=lambda serial: False)
        assert is_known(known, "idle")


def test_a_phone_that_hangs_keeps_its_name() -> None:
    known = known_of("S1")
    hung = seen("S1", usable=False, boot_id="")
    assert hung.hangs
    nameless = Seen(address="at-S1", serial="", state="device", usable=False)
    assert known.name(SERVER, nameless).serial == "S1"
    # Another phone may have the address by then.
    assert known.name(SERVER, Seen(address="at-S1", serial="", state="offline", usable=False)).serial == ""
    assert not seen("S1", usable=False).hangs
