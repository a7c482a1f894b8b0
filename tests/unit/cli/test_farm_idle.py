"""Which phones a worker has asked whether they still answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from orchestrator.app.farm_host import IdlePhones
from orchestrator.bootstrap import Attached
from orchestrator.devices.address import ServerAddress
from orchestrator.devices.discovery import KnownPhones, Seen
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


def test_a_phone_that_cannot_be_asked_keeps_its_name() -> None:
    known = known_of("S1")
    nameless = Seen(address="at-S1", serial="", state="device", usable=False)
    assert known.name(SERVER, nameless).serial == "S1"
    for state in ("offline", "unauthorized", "recovery"):
        assert known.name(SERVER, Seen(address="at-S1", serial="", state=state, usable=False)).serial == "S1"
    assert known.name(SERVER, Seen(address="at-S2", serial="", state="offline", usable=False)).serial == ""
    # Another phone has the address by now, and says so.
    assert known.name(SERVER, Seen(address="at-S1", serial="S3", state="device", usable=False)).serial == "S3"


class Host:
    """A worker's host without an adb server, whose idle phones are looked at by hand."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.server = AdbServer(ServerAddress(port=1))
        self._idle = IdlePhones(KnownPhones(), every_s=AT_ONCE_S, say=self.said.append)

    def look(
        self, *phones: Seen, used: Collection[str] = (), elsewhere: Collection[str] = ()
    ) -> Mapping[str, str]:  # fmt: skip
        return self._idle.wake(
            [Attached(server=self.server, seen=phone) for phone in phones],
            used=lambda: used,
            elsewhere=lambda: elsewhere,
            cycle_port=lambda path: False,
        )


def test_a_phone_that_works_by_one_transport_is_not_away_when_its_other_one_hangs() -> None:
    host = Host()
    works, hangs = seen("S1"), seen("S1", usable=False, boot_id="", hangs=True)
    for phones in ((works, hangs), (hangs, works), (works, hangs)):
        assert host.look(*phones) == {}
    assert host.said == []


def test_a_phone_that_hung_is_away_until_one_of_its_transports_works() -> None:
    host = Host()
    hangs = seen("S1", usable=False, boot_id="", hangs=True)
    assert list(host.look(hangs)) == ["S1"]
    assert host.look(hangs, seen("S1")) == {}
    assert [text for text in host.said if "answers again" in text] == ["S1 answers again"]


def test_a_phone_that_another_process_uses_is_not_connected_again() -> None:
    host = Host()
    hangs = seen("S1", usable=False, boot_id="", hangs=True)
    assert host.look(hangs, used=["S1"]) == {}
    assert host.said == []
    host.look(hangs)
    said = list(host.said)
    assert said[0] == "S1 has no job and doesn't answer; it is reconnected"
    assert list(host.look(hangs, used=["S1"])) == ["S1"]
    assert host.said == said


def test_a_phone_that_hung_and_was_moved_to_another_host_is_forgotten() -> None:
    host = Host()
    hangs = seen("S1", usable=False, boot_id="", hangs=True)
    host.look(hangs)
    assert list(host.look()) == ["S1"]
    # Here it still hangs, whoever else has it.
    assert list(host.look(hangs, elsewhere=["S1"])) == ["S1"]
    assert host.look(elsewhere=["S1"]) == {}
    assert host.said[-1] == "S1 is at another host now"
    assert host.look() == {}


def test_a_phone_that_hung_and_went_offline_here_is_forgotten_when_another_host_has_it() -> None:
    host = Host()
    host.look(seen("S1", usable=False, boot_id="", hangs=True))
    offline = seen("S1", usable=False, boot_id="", state="offline")
    assert list(host.look(offline)) == ["S1"]
    assert host.look(offline, elsewhere=["S1"]) == {}
