"""What comes out of a farm's queue is checked: nothing is passed over, no name leaves its folder."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import TypeAdapter

from orchestrator.documents import adapter_of
from orchestrator.errors import NewerPlanError, PlanError
from orchestrator.extensions.farm.manifest import (
    Content,
    FlagFile,
    Manifest,
    Payload,
    Twin,
    dump,
    read_labels,
    read_manifest,
)
from orchestrator.extensions.farm.schema import PROTOCOL
from orchestrator.records.case import Build, BuildSha, Companion, ToolName
from orchestrator.records.plan import Plan, PlanModel

DATA = Path(__file__).parents[2] / "data" / "farm"
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
PAYLOAD = Payload(
    builds=(BUILD,),
    twins=(
        Twin(sha256=BUILD.sha256, build=replace(BUILD, sha256=BuildSha("d" * 64), companions=())),
    ),
    flag_files=(
        FlagFile(value="@x/libmine.so", files=(Content(name="libmine.so", sha256="e" * 64),)),
    ),
    parity_inputs=(Content(name="m.0.bin", sha256="f" * 64),),
    reference=Content(name="reference.tflite", sha256="1" * 64),
)


def manifest(plan: Plan = PLAN, payload: Payload = PAYLOAD) -> Manifest:
    return Manifest(plan=plan, payloads={"": payload})


def test_a_plan_and_what_it_names_come_back_as_they_went() -> None:
    assert read_manifest(dump(manifest())) == manifest()
    assert [sha256[0] for sha256 in manifest().files] == ["1", "a", "b", "c", "d", "e", "f"]


@pytest.mark.parametrize(
    "place",
    [("zoom",), ("plan", "zoom"), ("plan", "matrix", "zoom"), ("plan", "models", 0, "zoom")],
)
def test_a_plan_that_asks_for_something_unknown_is_not_measured_without_it(
    place: tuple[str | int, ...],
) -> None:
    document = json.loads(dump(manifest(replace(PLAN, matrix=replace(PLAN.matrix, threads=(4,))))))
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = 3
    told = re.escape(".".join(map(str, place)))
    with pytest.raises(NewerPlanError, match=f"asks for {told}, which this benchfarm doesn't know"):
        read_manifest(json.dumps(document))


def test_a_word_that_only_a_newer_benchfarm_knows_is_told_from_a_wrong_plan() -> None:
    document = json.loads(dump(manifest()))
    document["plan"]["passes"] = ["thermal"]
    with pytest.raises(
        NewerPlanError, match="asks for the pass 'thermal', which this benchfarm doesn't know"
    ):
        read_manifest(json.dumps(document))
    document["plan"]["invocations"] = "many"
    with pytest.raises(PlanError, match="a plan from the queue") as told:
        read_manifest(json.dumps(document))
    assert not isinstance(told.value, NewerPlanError)


def test_a_host_that_does_not_know_a_field_yet_reads_the_plans_that_do_not_need_it() -> None:
    """Nothing of a plan that is as it is by default travels; all the rest does."""
    assert json.loads(dump(manifest()))["plan"].keys() == {"name", "models"}
    changed = replace(
        PLAN,
        seed=7,
        reference_check=False,
        quiet=replace(PLAN.quiet, airplane=True),
        matrix=replace(PLAN.matrix, threads=(4,)),
    )
    assert read_manifest(dump(manifest(changed))).plan == changed
    assert json.loads(dump(manifest(changed)))["plan"]["quiet"] == {"airplane": True}


def test_a_default_of_what_travels_is_what_it_was_when_the_version_of_the_messages_was_made() -> (
    None
):
    """A host of another benchfarm fills in its own: it would measure something else under the same
    plan.

    Whoever changes a default raises PROTOCOL (extensions/farm/schema.py); whoever adds a field
    writes it down here.
    """
    recorded = json.loads((DATA / f"defaults_of_protocol_{PROTOCOL}.json").read_text())
    assert defaults(Manifest) == recorded


def defaults(kind: type) -> dict[str, object]:
    """Return the defaults of a record, and of all records in it."""
    found: dict[str, object] = {}
    hints = get_type_hints(kind)
    for item in fields(kind):
        value = item.default_factory() if item.default_factory is not MISSING else item.default
        if value is not MISSING:
            found[f"{kind.__name__}.{item.name}"] = TypeAdapter(Any).dump_python(value, mode="json")
        for part in parts(hints[item.name]):
            found |= defaults(part)
    return found


def parts(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for inner in get_args(hint):
        yield from parts(inner)


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"matrix": {"flags": [[["graph", "/x"]]]}}, "the flag graph can't be set here"),
        ({"matrix": {"threads": [4, 4]}}, "names '4' twice"),
        ({"settings": {"affinity": "; reboot"}}, "isn't big, all or a mask"),
        ({"timeout": 1e9}, "less than or equal to 86400"),
    ],
)
def test_a_plan_from_the_queue_is_checked_as_one_from_a_file(
    section: dict[str, object], told: str
) -> None:
    document = json.loads(dump(manifest()))
    document["plan"] |= section
    with pytest.raises(PlanError, match=re.escape(told)):
        read_manifest(json.dumps(document))


@pytest.mark.parametrize(
    "value",
    [10**400, -1, float("inf"), float("nan"), 1e300, "\ud800", "x\n$(reboot)'", [1] * 1000, {}],
    ids=lambda value: repr(value)[:12],
)
def test_a_hostile_value_anywhere_in_a_plan_is_refused_or_read_and_never_a_fault(
    value: object,
) -> None:
    whole = json.loads(adapter_of(Manifest).dump_json(manifest()))
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
    document = json.loads(dump(manifest()))
    document["plan"] |= change
    with pytest.raises(PlanError, match="names files of a computer"):
        read_manifest(json.dumps(document))


@pytest.mark.parametrize("name", ["../x", "a/b", "..", "", "a\nb", "a\\b", "x" * 201])
def test_a_name_that_is_no_bare_file_name_is_refused(name: str) -> None:
    for payload in (
        replace(PAYLOAD, reference=Content(name=name, sha256=SHA)),
        replace(PAYLOAD, parity_inputs=(Content(name=name, sha256=SHA),)),
        replace(
            PAYLOAD, flag_files=(FlagFile(value="@x", files=(Content(name=name, sha256=SHA),)),)
        ),
        replace(PAYLOAD, builds=(replace(BUILD, companions=(Companion(name=name, sha256=SHA),)),)),
    ):
        with pytest.raises(PlanError, match="can't be the name of a file"):
            read_manifest(dump(manifest(payload=payload)))


@pytest.mark.parametrize(
    "payload",
    [
        replace(PAYLOAD, builds=(replace(BUILD, path=Path("/etc/passwd")),)),
        replace(PAYLOAD, builds=(replace(BUILD, path=None),)),
        replace(PAYLOAD, builds=(replace(BUILD, sha256=BuildSha("../" + "a" * 61)),)),
        replace(PAYLOAD, flag_files=(FlagFile(value="@x", files=()),)),
        replace(PAYLOAD, flag_files=(FlagFile(value="x", files=(Content(name="x", sha256=SHA),)),)),
        replace(PAYLOAD, reference=Content(name="m.tflite", sha256="A" * 64)),
    ],
)
def test_a_payload_that_is_not_as_it_should_be_is_refused(payload: Payload) -> None:
    with pytest.raises(PlanError, match="a plan from the queue"):
        read_manifest(dump(manifest(payload=payload)))


@pytest.mark.parametrize("sha256", [None, "a" * 63, "../../etc"])
def test_a_model_without_its_content_is_refused(sha256: str | None) -> None:
    with pytest.raises(PlanError, match="has no sha256"):
        read_manifest(
            dump(manifest(replace(PLAN, models=(replace(PLAN.models[0], sha256=sha256),))))
        )


def test_labels_may_be_missing_and_must_be_text() -> None:
    assert read_labels("").pools == ()
    assert read_labels('{"pools": ["nightly"], "tags": [], "later": 1}').pools == ("nightly",)
    with pytest.raises(PlanError, match="PhoneLabels from the queue"):
        read_labels('{"pools": [1]}')
