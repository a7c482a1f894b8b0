"""Which of the phones that fit a plan takes."""

from dataclasses import replace

import pytest

from orchestrator.errors import UsageError
from orchestrator.planning.selection import check_names, choose, unmeasurable_matches
from orchestrator.records.case import Serial
from orchestrator.records.device import HOST_SERIAL, DeviceFacts, DeviceKind, Labels
from orchestrator.records.plan import DeviceSelection
from tests.samples.records import facts_of


def phone(serial: str, *, profile: str = "", android: str = "14", model: str = "") -> DeviceFacts:
    return facts_of(serial, profile=profile, os_version=android, model=model)


PHONES = [
    phone("C", profile="pixel-8"),
    phone("A", profile="pixel-8"),
    phone("D", profile="pixel-9", android="15"),
    phone("B", profile="pixel-9"),
    phone("E"),
]
LABELS = {
    Serial("A"): Labels(pools=("nightly",), tags=("rooted", "new")),
    Serial("B"): Labels(pools=("nightly",)),
}


def chosen(**selection: object) -> list[str]:
    return list(choose(DeviceSelection(**selection), PHONES, LABELS).chosen)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("selection", "serials"),
    [
        ({}, ["A", "B", "C", "D", "E"]),
        ({"pools": ("nightly", "other")}, ["A", "B"]),
        ({"pools": ("nightly",), "tags": ("rooted", "new")}, ["A"]),
        ({"where": ("pool = nightly and tag != rooted",)}, ["B"]),
        ({"one_of_each": "profile"}, ["A", "B"]),
        ({"any": 2}, ["A", "B"]),
        ({"one_of_each": "profile", "any": 1}, ["A"]),
        ({"one_of_each": "android", "where": ("profile = pixel-9",)}, ["B", "D"]),
    ],
)
def test_a_selection_takes_the_first_phones_that_it_needs(
    selection: dict[str, object], serials: list[str]
) -> None:
    assert chosen(**selection) == serials


def test_every_phone_that_isnt_taken_has_its_reason() -> None:
    choice = choose(
        DeviceSelection(one_of_each="profile", any=1, where=("android < 15",)), PHONES, LABELS
    )
    assert choice.unfit == {"D": "'android < 15' doesn't hold"}
    assert choice.unneeded == {
        "B": "1 phone is enough for the plan",
        "C": "A has the same profile, pixel-8",
        "E": "its profile isn't known, and the plan asks for one phone of each",
    }


def test_too_few_phones_are_told() -> None:
    assert (
        choose(DeviceSelection(any=6), PHONES, {}).lacking
        == "the plan asks for 6 phones, and 5 fit"
    )
    assert choose(DeviceSelection(any=5), PHONES, {}).lacking == ""


def test_this_computer_is_none_of_the_phones_that_are_counted() -> None:
    computer = replace(PHONES[0], serial=HOST_SERIAL, kind=DeviceKind.HOST)
    assert choose(DeviceSelection(any=1, host=True), [*PHONES, computer], {}).chosen == (
        "A",
        "host",
    )


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        ({}, ["E", "X"]),
        # F was never here, and the inventory says nothing of what a plan names.
        ({"serials": ("A", "E", "F")}, ["E", "F"]),
        ({"pools": ("nightly",)}, ["B"]),
        ({"pools": ("nightly",), "where": ("profile = pixel-8",)}, []),
        ({"where": ("android = 14",)}, ["B", "E"]),
        ({"where": ("android = 14 and pool = nightly",)}, ["B"]),
        ({"profiles": ("pixel-8",)}, []),
        # Any two of those that fit: a plan that gets fewer says so.
        ({"any": 2}, []),
        ({"one_of_each": "profile"}, []),
    ],
)
def test_phones_that_are_meant_and_cant_be_measured_on_are_told(
    selection: dict[str, object], names: list[str]
) -> None:
    left_out = {"E": "in quarantine", "X": "unauthorized"}
    wanted = DeviceSelection(**selection)  # type: ignore[arg-type]
    left_out = {
        name: why for name, why in left_out.items() if not wanted.serials or name in wanted.serials
    }
    known = {facts.serial: facts for facts in PHONES}
    found = unmeasurable_matches(wanted, left_out, {"A", "C", "D", "E", "X"}, LABELS, known)
    assert list(found) == names
    assert {name: why for name, why in found.items() if name not in left_out} == {
        name: "is not attached" for name in names if name not in left_out
    }


def test_a_tag_that_no_device_has_and_that_is_like_none_is_refused_with_all_tags() -> None:
    with pytest.raises(UsageError) as caught:
        check_names(DeviceSelection(tags=("rooted", "zzz")), (), LABELS.values())
    told = str(caught.value), caught.value.hint
    assert told == ("there is no tag 'zzz'", "choose one of new, rooted")
