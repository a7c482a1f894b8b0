"""The probes on what phones of many makers printed; read in place beside the repository, skipped
where it isn't.
"""

import json

import pytest

from orchestrator.devices import probes
from orchestrator.devices.discovery import parse_devices
from tests.samples.beside import WILD, needs_wild


def entries() -> list[tuple[str, dict[str, object]]]:
    if not (WILD / "expected.json").exists():
        return []
    known = json.loads((WILD / "expected.json").read_text("utf-8"))
    return [(name, entry["state"]) for name, entry in known.items() if "state" in entry]


def of_kind(*kinds: str) -> list[tuple[str, dict[str, object]]]:
    return [(name, state) for name, state in entries() if state["kind"] in kinds]


def text_of(name: str) -> str:
    lines = (WILD / name).read_text("utf-8", "replace").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(("# source:", "# note:")))


def on(*kinds: str) -> pytest.MarkDecorator:
    found = of_kind(*kinds)
    skipped = [pytest.param("", {}, marks=needs_wild)]
    return pytest.mark.parametrize(("name", "expected"), found or skipped)


@on("battery")
def test_battery_is_read_from_its_own_section(name: str, expected: dict[str, object]) -> None:
    assert probes.parse_battery(text_of(name)) == {
        "battery_percent": round(
            100 * float(str(expected["level"])) / float(str(expected["scale"]))
        ),
        "battery_health": "good",
        "battery_heat_c": expected["temperature_c"],
        "plugged": "ac" if expected["ac"] else "usb",
    }


@on("thermalservice")
def test_thermalservice_is_read_from_the_hal_not_the_cache(
    name: str, expected: dict[str, object]
) -> None:
    thermal = probes.parse_thermalservice(text_of(name))
    assert thermal["battery_heat_c"] == pytest.approx(expected["hal_battery"])
    assert expected["hal_skin"].items() <= thermal["heat_c"].items()
    assert thermal["thermal_status"] == max(
        expected["thermal_status"], expected.get("max_sensor_status_hal", 0)
    )


@pytest.mark.parametrize("name", [name for name, _ in entries()] or [""])
def test_no_probe_fails_on_the_output_of_another(name: str) -> None:
    text = text_of(name) if name else ""
    for parse in (
        parse_devices,
        *(parse for name, parse in vars(probes).items() if name.startswith("parse_")),
    ):
        parse(text)
