"""What comes out of a farm's queue is checked: nothing is passed over, no name leaves its folder."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.documents import adapter_of
from orchestrator.errors import ArtifactError, PlanError
from orchestrator.extensions.farm.manifest import Manifest, dump, read_labels, read_manifest
from orchestrator.records.case import Build, BuildSha, Companion, ToolName
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import Plan, PlanModel
from tests.samples.records import facts_of

SHA = "a" * 64
PLAN = Plan(name="p", models=(PlanModel(name="m", path=Path(f"{SHA}.tflite"), sha256=SHA),))
BUILD = Build(
    name="benchmark_model",
    tool=ToolName.NATIVE,
    sha256=BuildSha("b" * 64),
    abi="arm64-v8a",
    path=Path("benchmark_model"),
    companions=(Companion(name="libx.so", sha256="c" * 64, path=Path("libx.so")),),
)
MANIFEST = Manifest(
    plan=PLAN,
    builds={"arm64-v8a real": (BUILD,)},
    flex_builds={BUILD.sha256: replace(BUILD, sha256=BuildSha("d" * 64), companions=())},
    flag_files={"@x/libmine.so": (("libmine.so", "e" * 64),)},
    parity_inputs=(("m.0.bin", "f" * 64),),
    reference=("reference.tflite", "1" * 64),
)


def test_a_plan_and_what_it_names_come_back_as_they_went() -> None:
    changed = replace(
        PLAN,
        seed=7,
        reference_check=False,
        quiet=replace(PLAN.quiet, airplane=True),
        matrix=replace(PLAN.matrix, threads=(4,)),
    )
    for manifest in (MANIFEST, replace(MANIFEST, plan=changed)):
        assert read_manifest(dump(manifest)) == manifest
    files = {sha256[0] for _, sha256 in MANIFEST.contents()}
    assert files == {"1", "a", "b", "c", "d", "e", "f"}


def test_a_phone_gets_the_builds_that_fit_it_and_none_but_those_that_the_plan_names() -> None:
    def phone(*abis: str, is_virtual: bool = False) -> DeviceFacts:
        return facts_of("A", is_virtual=is_virtual, abis=abis)

    named = replace(MANIFEST, named=(ToolName.NATIVE,))
    # One that came later, with other ABIs than those that were there.
    for facts in (phone("arm64-v8a"), phone("arm64-v8a", "armeabi-v7a")):
        assert named.builds_for(facts) == (BUILD,)
    for facts in (phone("x86_64"), phone("arm64-v8a", is_virtual=True)):
        assert MANIFEST.builds_for(facts) == ()
        with pytest.raises(ArtifactError, match="the plan names builds of native, of which none"):
            named.builds_for(facts)


@pytest.mark.parametrize("place", [("zoom",), ("plan", "models", 0, "zoom")])
def test_a_plan_that_asks_for_something_unknown_is_not_measured_without_it(
    place: tuple[str | int, ...],
) -> None:
    document = json.loads(dump(MANIFEST))
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = 3
    told = re.escape(".".join(map(str, place)))
    with pytest.raises(PlanError, match=f"{told}: Unexpected keyword argument"):
        read_manifest(json.dumps(document))


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"matrix": {"flags": [[["graph", "/x"]]]}}, "the flag graph can't be set here"),
        ({"settings": {"affinity": "; reboot"}}, "isn't big, all or a mask"),
        ({"timeout": 1e9}, "less than or equal to 86400"),
        ({"passes": ["thermal"]}, "thermal"),
    ],
)
def test_a_plan_from_the_queue_is_checked_as_one_from_a_file(
    section: dict[str, object], told: str
) -> None:
    document = json.loads(dump(MANIFEST))
    document["plan"] |= section
    with pytest.raises(PlanError, match=re.escape(told)):
        read_manifest(json.dumps(document))


@pytest.mark.parametrize(
    "value",
    [10**400, -1, float("nan"), "\ud800", "x\n$(reboot)'", [1] * 1000, {}],
    ids=lambda value: repr(value)[:12],
)
def test_a_hostile_value_anywhere_in_a_plan_is_refused_or_read_and_never_a_fault(
    value: object,
) -> None:
    whole = json.loads(adapter_of(Manifest).dump_json(MANIFEST))
    for path in places(whole):
        document = copy.deepcopy(whole)
        inner = document
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        try:
            found = read_manifest(json.dumps(document))
        except PlanError:
            continue
        # Texts that are only shown are taken, numbers never are.
        assert not isinstance(value, int | float), path
        assert read_manifest(dump(found)) == found


def places(value: Any) -> Iterator[tuple[str | int, ...]]:
    """Yield where the values of a document are, those that hold others too."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield (key,)
        if isinstance(inner, dict | list):
            yield from ((key, *rest) for rest in places(inner))


@pytest.mark.parametrize(
    "change",
    [
        {"builds": {"native": "/etc/passwd"}},
        {"folder": "/etc"},
        {"parity_inputs": "/etc"},
    ],
    ids=str,
)
def test_a_plan_from_the_queue_names_no_file_of_its_host(change: dict[str, object]) -> None:
    document = json.loads(dump(MANIFEST))
    document["plan"] |= change
    with pytest.raises(PlanError, match="names files of a computer"):
        read_manifest(json.dumps(document))


@pytest.mark.parametrize("name", ["../x", "..", "", "a\nb", "a\\b", "x" * 201])
def test_a_name_that_is_no_bare_file_name_is_refused(name: str) -> None:
    companion = replace(BUILD, companions=(Companion(name=name, sha256=SHA),))
    for manifest in (
        replace(MANIFEST, reference=(name, SHA)),
        replace(MANIFEST, parity_inputs=((name, SHA),)),
        replace(MANIFEST, programs=((name, SHA),)),
        replace(MANIFEST, flag_files={"@x": ((name, SHA),)}),
        replace(MANIFEST, builds={"": (companion,)}),
    ):
        with pytest.raises(PlanError, match="can't be the name of a file"):
            read_manifest(dump(manifest))


@pytest.mark.parametrize(
    "changes",
    [
        {"builds": {"": (replace(BUILD, path=Path("/etc/passwd")),)}},
        {"builds": {"": (replace(BUILD, path=None),)}},
        {"builds": {"": (replace(BUILD, sha256=BuildSha("../" + "a" * 61)),)}},
        {"flag_files": {"@x": ()}},
        {"reference": ("m.tflite", "A" * 64)},
        *(
            {"plan": replace(PLAN, models=(replace(PLAN.models[0], sha256=sha256),))}
            for sha256 in (None, "a" * 63, "../../etc")
        ),
    ],
)
def test_files_that_are_not_as_they_should_be_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="a plan from the queue"):
        read_manifest(dump(replace(MANIFEST, **changes)))


def test_labels_may_be_missing_and_must_be_text() -> None:
    assert read_labels([""]).pools == ()
    assert read_labels(['{"pools": ["nightly"], "tags": [], "later": 1}']).pools == ("nightly",)
    with pytest.raises(PlanError, match="Labels from the queue"):
        read_labels(['{"pools": [1]}'])
