"""A bundle with any value in any field: refused as a whole, or stored so that everything can be
read again."""

from __future__ import annotations

import copy
import dataclasses
import enum
import hashlib
import json
import logging
import sqlite3
import types
import typing
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.documents import dump_document
from orchestrator.errors import BenchfarmError, StoreError
from orchestrator.extensions.interop.bundle import Bundle, import_bundle
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import Build, Case, Model, Serial, campaign_id_of
from orchestrator.records.device import DeviceFacts
from orchestrator.records.run import RunRecord
from orchestrator.store.opening import MemoryStore, Store, open_store

VALUES = (None, "x", 7, 1.5, True, [1], {"a": [1]})
OUTPUT = b"what the program printed"


def example(hint):
    """Return a value of a type, with something in every collection."""
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    kind, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{item.name: example(hints[item.name]) for item in dataclasses.fields(kind)})
    if kind in (types.UnionType, typing.Union):
        return example(arguments[0])
    if kind is tuple:
        wanted = arguments[:1] if arguments[1:] == (...,) else arguments
        return tuple(example(item) for item in wanted)
    if kind in (Mapping, dict):
        return {example(arguments[0]): example(arguments[1])}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind))
    plain = {
        str: "word",
        int: 1,
        float: 1.25,
        bool: False,
        bytes: b"",
        datetime: datetime(2026, 3, 1, tzinfo=UTC),
    }
    return plain[kind] if kind in plain else Path("file")


def document(record, **values):
    return json.loads(dump_document(record)) | values


@pytest.fixture(scope="module")
def lines():
    case = document(example(Case), serial="phone", model_sha256="m", build_sha256="b")
    run = example(RunRecord)
    bare = dataclasses.replace(run, attachments=(), is_virtual=False)
    campaign = document(example(Campaign), campaign_id="c", invocations=[])
    campaign["invocations"] = [{"case": case, "run_pass": "timing", "number": 0}]
    return [
        {"kind": "campaign", "record": campaign},
        {
            "kind": "device",
            "record": document(example(DeviceFacts), serial="phone", is_virtual=False),
        },
        {"kind": "model", "record": document(example(Model), sha256="m")},
        {"kind": "build", "record": document(example(Build), sha256="b")},
        {
            "kind": "run",
            "record": document(
                bare, campaign_id="c", run_id="r", case=case, run_pass="timing", invocation=0
            ),
            "left": [["stdout", hashlib.sha256(OUTPUT).hexdigest()]],
        },
    ]


def places(value, path=()) -> Iterator[tuple]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for key, inner in enumerate(value):
            yield from places(inner, (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def written(path: Path, lines, **manifest) -> Path:
    return packed(path, b"".join(json.dumps(line).encode() + b"\n" for line in lines), **manifest)


def packed(path: Path, data: bytes, *, output: bytes = OUTPUT, **changed) -> Path:
    """Write a bundle of these records, with one output that a run left behind."""
    manifest = {
        "schema": "benchfarm-bundle",
        "schema_version": 1,
        "records_sha256": hashlib.sha256(data).hexdigest(),
    }
    with zipfile.ZipFile(
        path, "w", zipfile.ZIP_DEFLATED if len(data + output) > 1 << 20 else zipfile.ZIP_STORED
    ) as archive:
        archive.writestr("records.jsonl", data)
        archive.writestr("manifest.json", json.dumps(manifest | changed))
        archive.writestr(f"blobs/{hashlib.sha256(output).hexdigest()}", output)
    return path


def everything(store) -> list[object]:
    """Return all that a store gives."""
    found: list[object] = [
        store.devices(),
        store.models(),
        store.builds(),
        store.progress(),
        store.series(),
    ]
    found += [store.campaign(campaign.campaign_id) for campaign in store.campaigns()]
    return [
        *found,
        *store.runs(with_attachments=True),
        store.sightings(),
        store.points(),
        store.marks(),
    ]


def refusal(bundle: Path, store: Store) -> BenchfarmError | None:
    try:
        with Bundle(bundle) as opened:
            import_bundle(opened, store, read=lambda run, *_: run)
    except BenchfarmError as error:
        return error
    return None


def test_a_value_of_any_type_in_any_field_leaves_a_store_that_can_be_read(lines, tmp_path, caplog):
    caplog.set_level(logging.WARNING, "orchestrator.store")
    bundle, refused = tmp_path / "bundle.zip", 0
    taken, changed = copy.deepcopy(lines), copy.deepcopy(lines)
    store = MemoryStore()
    # The innermost first, so that what is taken can be put together in one bundle.
    for path in sorted(places(lines), key=len, reverse=True):
        owner, known = at(changed, path[:-1]), at(changed, path)
        for value in VALUES if len(path) > 1 else ():
            if type(value) is type(known) or (type(value), type(known)) == (int, float):
                continue
            owner[path[-1]] = value
            error = refusal(written(bundle, changed), store)
            if error is None:
                # Nothing that a field may be but its own type and, where that is said, unknown.
                assert value is None or path[-2] == "extra", (path, value)
                at(taken, path[:-1])[path[-1]] = value
                for campaign in store.campaigns():
                    store.remove_campaign(campaign.campaign_id)
            else:
                refused += 1
                assert len(str(error)) < 1_000
        owner[path[-1]] = known
        assert not store.campaigns()
    assert changed == lines
    store.close()
    assert refused > 1_500
    assert taken != lines
    store = open_store(tmp_path / "store.sqlite")
    assert refusal(written(bundle, taken), store) is None
    everything(store)
    assert len(list(store.runs())) == 1
    assert not caplog.records
    store.close()


def test_a_row_that_cannot_be_read_costs_its_campaign_and_can_be_removed(lines, tmp_path, caplog):
    path = tmp_path / "store.sqlite"
    store = open_store(path)
    assert refusal(written(tmp_path / "one.zip", lines), store) is None
    other = json.loads(
        json.dumps(lines).replace('"campaign_id": "c"', '"campaign_id": "d"').replace('"r"', '"s"')
    )
    assert refusal(written(tmp_path / "two.zip", other), store) is None
    with closing(sqlite3.connect(path)) as rows:
        rows.execute("UPDATE campaigns SET document = x'00' WHERE campaign_id = 'c'")
        rows.execute(
            'UPDATE devices SET facts = replace(facts, \'"manufacturer":"word"\', \'"manufacturer":7\')'
        )
        rows.commit()
    everything(store)
    assert [campaign.campaign_id for campaign in store.campaigns()] == ["d"]
    (facts,) = store.devices().values()
    assert (facts.serial, facts.manufacturer) == ("phone@word", "")
    assert "campaign c" in caplog.text
    assert "manufacturer" in caplog.text
    with pytest.raises(StoreError, match="campaign c"):
        store.campaign("c")
    store.remove_campaign("c")
    assert store.campaign("c") is None
    assert {run.campaign_id for run in store.runs()} == {"d"}
    assert store.attachments("s")[0].data == OUTPUT
    store.close()


@pytest.mark.parametrize(
    ("campaign", "is_taken"),
    [(campaign_id_of("night", Serial("10.0.0.1:5555")), True), ("../c", False), ("~c", False)],
)
def test_campaigns_of_a_farm_and_its_phones_on_the_network_are_taken(
    lines, tmp_path: Path, campaign: str, *, is_taken: bool
) -> None:
    text = json.dumps(lines).replace('"campaign_id": "c"', f'"campaign_id": "{campaign}"')
    error = refusal(written(tmp_path / "bundle.zip", json.loads(text)), MemoryStore())
    assert (error is None) is is_taken, error


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schema_version": float("inf")}, "schema_version"),
        ({"schema_version": "1"}, "schema_version"),
        ({"records_sha256": 7}, "records_sha256"),
    ],
    ids=str,
)
def test_a_manifest_of_another_type_is_refused(lines, tmp_path, change, told):
    bundle = written(tmp_path / "bundle.zip", lines, **change)
    assert told in str(refusal(bundle, MemoryStore()))


def test_what_would_fill_memory_is_refused(lines, tmp_path):
    deep = b'{"kind": "run", "record": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    wide = b'{"kind": "run", "record": {"newer": [' + b"0," * 5_000_000 + b"0]}}\n"
    for data in (deep, wide):
        assert "records.jsonl:1" in str(
            refusal(packed(tmp_path / "bundle.zip", data), MemoryStore())
        )
    output = bytes(70 << 20)
    changed = copy.deepcopy(lines)
    changed[-1]["left"] = [["stdout", hashlib.sha256(output).hexdigest()]]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in changed)
    store = MemoryStore()
    assert "bytes behind" in str(
        refusal(packed(tmp_path / "bundle.zip", data, output=output), store)
    )
    assert not store.campaigns()
