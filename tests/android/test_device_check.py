"""``benchfarm device check`` on a phone of real parts: offered until it was made, and everything on the phone works."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import AdbServer
from tests.samples.command import Cli
from tests.samples.real_phone import RealPhone

#: What Debian's parts lack, or this computer's kernel.
LACKING = {"perfetto", "atrace", "current_now", "time_in_state", "scaling_cur_freq", "temp"}


def test_a_check_is_offered_until_it_was_made_and_finds_real_parts_sound(
    real_phone: RealPhone, adb_server: AdbServer, tmp_path: Path
) -> None:
    adb_server.connect(real_phone.address)
    cli, environ = Cli(home=tmp_path / "home"), {"BENCHFARM_ADB_SERVER": f"127.0.0.1:{adb_server.port}"}
    offer = "benchfarm device check -s "
    assert offer in cli("devices", **environ).ok().stdout
    assert offer in cli("doctor", **environ).stdout
    (phone,) = cli("device", "check", "--json", **environ).ok().json["phones"]
    found = {item["name"].rpartition("/")[2]: item["result"] for item in phone["checks"]}
    assert {name for name, result in found.items() if result == "missing"} <= LACKING, found
    assert "fails" not in found.values(), found
    assert phone["serial"] not in Path(phone["file"]).read_text("utf-8")
    assert offer not in cli("devices", **environ).ok().stdout
    assert offer not in cli("doctor", **environ).stdout
