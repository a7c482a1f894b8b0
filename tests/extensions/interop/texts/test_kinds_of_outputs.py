"""What outputs of phones say, 2018 to 2026: a short text for each kind that people keep, and what
it holds, each run of it.

Most are made up, with the forms and figures of real ones; litert-benchmark's are real. The
collections beside the repository hold whole ones.
"""

import json

import pytest

from orchestrator.errors import OutputParseError
from orchestrator.extensions.interop.texts.output import parse_text
from tests.samples.careful_reader import found_in
from tests.samples.places import DATA

KINDS = json.loads((DATA / "kinds_expected.json").read_text("utf-8"))


def test_every_kind_has_an_expectation() -> None:
    assert {path.name for path in (DATA / "kinds").iterdir()} == KINDS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_holds_what_a_careful_reader_finds_in_it(kind: str) -> None:
    runs = [found_in(report) for report in parse_text((DATA / "kinds" / kind).read_bytes())]
    expected = KINDS[kind]
    # What is null must not be found.
    found = [{name: run.get(name) for name in own} for run, own in zip(runs, expected, strict=True)]
    assert found == expected


@pytest.mark.parametrize(
    "text",
    [
        "[ro.product.model]: [Pixel 8]\n[ro.build.version.sdk]: [36]\n",
        "Current Battery Service state:\n  AC powered: false\n  level: 75\n  temperature: 357\n",
        "List of devices attached\n041234567892009a\tunauthorized\nemulator-5554\tdevice model:x\n",
        "IsStatusOverride: false\nThermal Status: 0\nCached temperatures:\n\tTemperature{mValue=32.4, mType=3}\n",
        "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd05\n",
        "Killed\n",
        "\n\n",
    ],
    ids=["getprop", "battery", "adb devices", "thermal service", "cpuinfo", "a word", "nothing"],
)
def test_the_state_of_a_phone_is_no_output(text: str) -> None:
    with pytest.raises(OutputParseError):
        parse_text(text)
