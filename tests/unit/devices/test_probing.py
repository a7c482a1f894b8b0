"""Facts and state put together from what commands printed."""

import re
from datetime import UTC, datetime

import pytest

from orchestrator.devices.discovery import STATE_NOTES, choose_transports, explain_state
from orchestrator.devices.probes import STATE_COMMANDS, facts_from, state_from
from orchestrator.ports import ListedPhone
from orchestrator.sysfs import parse_cpu_list, parse_thermal_zones

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def getprop(**values: str) -> str:
    return "".join(f"[{name.replace('__', '.')}]: [{value}]\n" for name, value in values.items())


def test_facts_of_a_phone_that_tells_nothing_are_unknown_and_not_guessed() -> None:
    facts = facts_from({}, serial="R58M12")
    assert facts.serial == "R58M12"
    assert (facts.sdk, facts.memory_bytes, facts.clusters, facts.abis) == (None, None, (), ())
    assert not facts.is_rooted
    assert state_from({}, read_at=NOW).heat_c == {}
    assert state_from({}, read_at=NOW).battery_percent is None


@pytest.mark.parametrize(
    ("properties", "is_emulator", "is_virtual"),
    [
        ({"ro__kernel__qemu": "1"}, True, False),
        ({"ro__boot__qemu": "1"}, True, False),
        ({"ro__hardware": "ranchu"}, True, False),
        ({"ro__hardware": "goldfish"}, True, False),
        ({"ro__hardware": "blueline"}, False, False),
        ({"ro__hardware": "blueline", "ro__benchfarm__virtual": "1"}, False, True),
    ],
)
def test_emulators_and_virtual_phones_are_told_from_phones(
    properties: dict[str, str], is_emulator: bool, is_virtual: bool
) -> None:
    facts = facts_from({"properties": getprop(**properties)}, serial="S")
    assert (facts.is_emulator, facts.is_virtual) == (is_emulator, is_virtual)


def test_cores_whose_clocks_are_hidden_form_a_cluster_of_unknown_clocks() -> None:
    facts = facts_from({"cpus": "0-7\n"}, serial="S")
    assert [cluster.cpus for cluster in facts.clusters] == [tuple(range(8))]
    assert facts.clusters[0].max_khz is None
    assert facts.big_cores == tuple(range(8))


def test_a_soc_without_a_property_is_named_by_cpuinfo() -> None:
    facts = facts_from(
        {"cpuinfo": "processor\t: 0\n\nHardware\t: Qualcomm Technologies, Inc MSM8998\n"},
        serial="S",
    )
    assert facts.soc == "Qualcomm Technologies, Inc MSM8998"


@pytest.mark.parametrize(
    ("said", "is_rooted"), [("2000\n0\n", True), ("0\n", True), ("2000\n", False), ("", False)]
)
def test_root_is_what_su_or_the_shell_itself_proves(said: str, is_rooted: bool) -> None:
    assert facts_from({"uid": said}, serial="S").is_rooted is is_rooted


def test_heat_comes_from_sysfs_and_from_the_thermal_service_where_sysfs_is_hidden() -> None:
    service = (
        "Thermal Status: 0\nCurrent temperatures from HAL:\n"
        "\tTemperature{mValue=31.0, mType=3, mName=skin, mStatus=0}\n"
    )
    zones = (
        "/sys/class/thermal/thermal_zone0/type:cpu\n/sys/class/thermal/thermal_zone0/temp:45000\n"
    )
    assert state_from({"thermalservice": service}, read_at=NOW).heat_c == {"skin": 31.0}
    assert state_from({"thermalservice": service, "files": zones}, read_at=NOW).heat_c == {
        "skin": 31.0,
        "cpu": 45.0,
    }


def test_a_phone_without_the_focus_names_the_app_of_the_top_group() -> None:
    told = {
        "screen": "mWakefulness=Awake\nshowing=false\n",
        "topapp": "zygote64\0com.example.game\0\0com.example.game:bg\0",
    }
    assert state_from(told, read_at=NOW).foreground == "com.example.game"


def test_the_state_costs_a_phone_few_processes() -> None:
    """Two for all files, one for each service that is asked, one to read a service's answer, one
    for the top app."""
    script = "\n".join(STATE_COMMANDS.values())
    assert len(re.findall(r"\b(?:grep|cat|dumpsys|ls) ", script)) <= 9


@pytest.mark.parametrize(
    "state",
    [*STATE_NOTES, "something new"],
)
def test_every_state_has_a_reason_and_something_to_do(state: str) -> None:
    reason, advice = explain_state(ListedPhone(address="S", state=state, usb="1-2"))
    assert reason
    assert advice


def test_a_phone_without_permissions_is_told_the_udev_rule_and_the_group() -> None:
    reason, advice = explain_state(
        ListedPhone(address="????", state="no permissions; see [http://x]", usb="1-2")
    )
    assert "USB 1-2" in reason
    assert "udev" in advice
    assert "plugdev" in advice


def seen(address: str, serial: str, boot_id: str) -> ListedPhone:
    return ListedPhone(address=address, serial=serial, state="device", usable=True, boot_id=boot_id)


def test_usb_goes_before_tcp_for_one_phone() -> None:
    judged = choose_transports(
        [seen("10.0.0.7:5555", "R58M12", "b1"), seen("R58M12", "R58M12", "b1")]
    )
    assert [one.usable for one in judged] == [False, True]
    assert "R58M12, which is used" in judged[0].reason
    assert "adb disconnect 10.0.0.7:5555" in judged[0].advice


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-2,6\n", (0, 1, 2, 6)), ("4 5", (4, 5)), ("0-99999", ()), ("12345-6", ()), ("", ())],
)
def test_a_list_of_cpus_is_read_whole_or_not_at_all(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpu_list(text) == cpus


@pytest.mark.parametrize(
    ("readings", "degrees"),
    [
        (["45000", "1500", "0"], [45.0, 1.5]),
        (["150", "305", "1100"], [15.0, 30.5, 110.0]),
        (["200"], [20.0]),
        (["38", "110"], [38.0, 110.0]),
        (["41200", "305", "38"], [41.2, 30.5, 38.0]),
    ],
    ids=["thousandths", "tenths", "tenths at room temperature", "whole", "each its own"],
)
def test_thermal_zones_are_read_in_the_unit_of_the_phone(
    readings: list[str], degrees: list[float]
) -> None:
    folder = "/sys/class/thermal/thermal_zone"
    text = "".join(
        f"{folder}{n}/type:z{n}\n{folder}{n}/temp:{value}\n" for n, value in enumerate(readings)
    )
    assert list(parse_thermal_zones(text).values()) == degrees
