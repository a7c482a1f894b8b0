"""``benchfarm device check`` on a phone of real parts: offered until it was made, and everything on
the phone works."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import AdbServer
from tests.samples.command import Cli
from tests.samples.real_phone import RealPhone

#: What Debian's parts lack, or this computer's kernel.
LACKING = {"command -v perfetto", "current_now", "time_in_state", "scaling_cur_freq", "temp"}


def test_a_check_is_offered_until_it_was_made_and_finds_real_parts_sound(
    real_phone: RealPhone, adb_server: AdbServer, tmp_path: Path
) -> None:
    adb_server.connect(real_phone.address)
    cli, environ = (
        Cli(home=tmp_path / "home"),
        {"BENCHFARM_ADB_SERVER": f"127.0.0.1:{adb_server.port}"},
    )
    offer = "benchfarm device check -s "
    assert offer in cli("devices", **environ).ok().stdout
    (phone,) = cli.json("device check", **environ)["phones"]
    found = {item["name"].rpartition("/")[2]: item["result"] for item in phone["checks"]}
    assert {name for name, result in found.items() if result == "missing"} <= LACKING, found
    assert "fails" not in found.values(), found
    assert phone["serial"] not in Path(phone["file"]).read_text("utf-8")
    assert offer not in cli("devices", **environ).ok().stdout


@pytest.fixture
def own_phone(adb_server: AdbServer, tmp_path: Path) -> Iterator[RealPhone]:
    """A phone for one test, which may break it."""
    adb_server.run("disconnect")
    with RealPhone(tmp_path / "phone") as phone:
        yield phone
        adb_server.run("disconnect", phone.address)


@pytest.fixture
def checked(own_phone: RealPhone, adb_server: AdbServer, tmp_path: Path) -> Any:
    """Return what a check finds: name -> result, what was seen, what it costs."""

    def check(exit_code: int = 0) -> dict[str, tuple[str, str, str]]:
        adb_server.connect(own_phone.address)
        cli, environ = (
            Cli(home=tmp_path / "home"),
            {"BENCHFARM_ADB_SERVER": f"127.0.0.1:{adb_server.port}"},
        )
        (phone,) = cli("device check --json", **environ).ended_with(exit_code).json["phones"]
        return {
            item["name"].rpartition("/")[2]: (item["result"], item["seen"], item["cost"])
            for item in phone["checks"]
        }

    return check


def test_a_phone_without_setsid_is_left_without_a_process_of_the_check(
    own_phone: RealPhone, adb_server: AdbServer, checked: Any
) -> None:
    own_phone.take_away("setsid")
    found = checked(3)
    assert found["setsid true"][0] == "works another way"
    assert found["programs left behind"][0] == "fails"
    left = adb_server.run("-s", own_phone.address, "shell", "ps -A -o ARGS").stdout
    assert b"sleep 86" not in left


def test_a_folder_in_which_nothing_can_be_run_fails(own_phone: RealPhone, checked: Any) -> None:
    (own_phone.folder / "noexec").touch()
    own_phone.order("reboot")
    result, seen, cost = checked(3)["push and pull"]
    assert (result, cost) == ("fails", "nothing can be measured on this phone")
    assert "ermission denied" in seen


def test_a_tool_that_hangs_is_named_and_no_process_of_it_is_left(
    own_phone: RealPhone, adb_server: AdbServer, checked: Any
) -> None:
    stand_in = (own_phone.folder / "bin/dumpsys").read_text().partition("\n")[2]
    own_phone.put("dumpsys", f'[ "$1" != window ] || exec sleep 86499\n{stand_in}')
    found = checked(3)
    result, seen, _ = found["dumpsys window policy"]
    assert (result, "took longer than 5 s" in seen) == ("fails", True)
    assert found["detached run"][0] == "works"
    # They would wait for it for minutes.
    for name in ("facts", "state", "quiet mode"):
        assert found[name][:2] == ("fails", "not tried, as 'dumpsys window policy' hangs")
    assert (
        b"sleep 86499"
        not in adb_server.run("-s", own_phone.address, "shell", "ps -A -o ARGS").stdout
    )


def test_a_phone_that_hangs_as_a_whole_is_asked_nothing_more(
    own_phone: RealPhone, checked: Any
) -> None:
    own_phone.put("df", "kill -STOP $(pidof adbd); exec sleep 86498")
    found = checked(3)
    assert list(found)[-2:] == ["df -k .", "answers"]
    assert found["answers"][0] == "fails"
    assert "not even an empty command" in found["answers"][1]
    assert "reboot it" in found["answers"][2]


def test_a_phone_that_computes_no_checksum_is_said_to_compute_none(
    own_phone: RealPhone, checked: Any
) -> None:
    for tool in ("sha256sum", "md5sum"):
        own_phone.take_away(tool)
    found = checked(3)
    assert "neither sha256sum nor md5sum" in found["push and pull"][1]
    assert "neither sha256sum nor md5sum" in found["detached run"][1]


def test_a_linker_s_warning_of_each_tool_breaks_nothing(own_phone: RealPhone, checked: Any) -> None:
    own_phone.warn("WARNING: linker: /vendor/lib64 has text relocations")
    found = checked()
    assert {name for name, (result, *_) in found.items() if result == "missing"} <= LACKING, found
    assert "fails" not in {result for result, *_ in found.values()}, found


def test_advice_about_a_phone_is_quoted_for_the_shell(
    own_phone: RealPhone, adb_server: AdbServer, tmp_path: Path
) -> None:
    serial = "$(touch${IFS}gone)"
    own_phone.name(serial)
    adb_server.connect(own_phone.address)
    cli, environ = (
        Cli(home=tmp_path / "home"),
        {"BENCHFARM_ADB_SERVER": f"127.0.0.1:{adb_server.port}"},
    )
    said = cli("devices", **environ).stdout
    assert f"benchfarm device check -s {shlex.quote(serial)}" in said
    assert f"-s {serial}" not in said
