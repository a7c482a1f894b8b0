"""Records as JSON documents: exact, and readable across versions."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import pkgutil

import pytest

import orchestrator.records
from orchestrator.documents import dump_document, load_document
from orchestrator.errors import StoreError
from orchestrator.fields import Short
from orchestrator.records import Key
from orchestrator.records.build_spec import BuildSource
from orchestrator.records.case import Build, Case
from orchestrator.records.device import DeviceState
from orchestrator.records.history import Points
from orchestrator.records.plan import PlanKey
from orchestrator.records.run import DelegateEvidence, DelegateTruth, LatencySummary, ToolReport


def test_a_document_is_plain_ascii_whatever_was_printed() -> None:
    report = ToolReport(outcome="ok", label="é\x00\ud83d \U0001f600", extra={"\x7f\n": "\udcff"})

    document = dump_document(report)

    assert document.isascii()
    assert document.isprintable()
    assert load_document(ToolReport, document, where="here") == report


def test_keys_of_a_newer_version_are_left_out_at_every_depth() -> None:
    values = json.loads(dump_document(ToolReport(outcome="ok", inference=LatencySummary(count=3))))
    values["power_mw"] = 12
    values["delegate"]["driver"] = "new"
    values["inference"]["p99_us"] = 1.5

    read = load_document(ToolReport, json.dumps(values), where="here")

    assert read == ToolReport(outcome="ok", inference=LatencySummary(count=3))


def test_a_word_of_a_newer_version_is_told_and_never_guessed() -> None:
    document = dump_document(
        ToolReport(outcome="ok", delegate=DelegateEvidence(truth=DelegateTruth.FULL))
    )

    with pytest.raises(StoreError, match="half-full") as refused:
        load_document(ToolReport, document.replace('"full"', '"half-full"'), where="run r-17")

    assert "upgrade" in refused.value.hint


@pytest.mark.parametrize("document", ["", "{", "\x00", "[1]", "3", "null", '"text"'])
def test_text_that_is_no_document_is_a_store_error(document: str) -> None:
    with pytest.raises(StoreError, match="run r-17"):
        load_document(ToolReport, document, where="run r-17")


@pytest.mark.parametrize("figure", [-0.0, 5e-324, 0.1 + 0.2, 3])
def test_a_figure_comes_back_with_every_bit(figure: float) -> None:
    read = load_document(
        ToolReport, dump_document(ToolReport(outcome="ok", init_us=figure)), where="here"
    )

    assert repr(read.init_us) == repr(float(figure))


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        ("9" * 400, "inference.count"),
        (str(2**63), "inference.count"),
        ("true", "inference.count"),
        (str(2**63 - 1), ""),
    ],
)
@pytest.mark.parametrize("label", ["plain", "\\ud83d\\ude00", "\\udcff"])
def test_an_integer_has_64_bits_whatever_else_a_document_holds(
    value: str, refused: str, label: str
) -> None:
    document = f'{{"outcome": "ok", "label": "{label}", "inference": {{"count": {value}}}}}'
    if not refused:
        read = load_document(ToolReport, document, where="here")
        assert read.inference == LatencySummary(count=int(value))
        return
    with pytest.raises(StoreError, match=refused):
        load_document(ToolReport, document, where="here")


@pytest.mark.parametrize("label", ["plain", "\\ud83d\\ude00", "\\udcff"])
def test_a_figure_is_bounded_and_text_is_none_beside_any_letters(label: str) -> None:
    for value, message in (
        ("1e300", "less"),
        ("-1e19", "greater"),
        ("NaN", "less"),
        ("Infinity", "less"),
        ('"1234"', "number"),
        ("true", "number"),
        ("9" * 400, "less"),
    ):
        document = f'{{"outcome": "ok", "label": "{label}", "init_us": {value}}}'
        with pytest.raises(StoreError, match=f"init_us.*{message}"):
            load_document(ToolReport, document, where="here")


@pytest.mark.parametrize(
    "at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "1969-12-31T23:59:59Z"]
)
def test_a_moment_that_no_calendar_can_count_with_is_refused(at: str) -> None:
    with pytest.raises(StoreError, match="at"):
        load_document(DeviceState, f'{{"at": "{at}"}}', where="here")


def test_what_a_program_printed_beyond_all_bounds_is_kept_at_the_bound() -> None:
    summary = LatencySummary(count=-(10**30), mean_us=1e300, std_us=math.inf, p5_us=math.nan)
    extra = {"speed": math.inf, "unit": "x"}
    report = ToolReport(outcome="ok", init_us=10**400, inference=summary, extra=extra)

    read = load_document(ToolReport, dump_document(report), where="here")

    assert (read.init_us, read.extra) == (2.0**63, {"speed": 2.0**63, "unit": "x"})
    assert read.inference == LatencySummary(count=-(2**63 - 1), mean_us=2.0**63, std_us=2.0**63)


def test_every_record_can_be_written_and_what_has_no_required_field_read_again() -> None:
    kinds = {
        value
        for module in pkgutil.iter_modules(orchestrator.records.__path__)
        for value in vars(importlib.import_module(f"orchestrator.records.{module.name}")).values()
        if dataclasses.is_dataclass(value)
        and isinstance(value, type)
        and value.__module__.startswith("orchestrator")
    }
    assert {Case, Build, ToolReport, DeviceState} <= kinds
    # Arrays of figures that the store makes of rows, and what a plan's keys say of themselves;
    # never a document. One has no field that must be there, and needs one of two.
    kinds -= {Points, Key, PlanKey, Short, BuildSource}

    for kind in kinds:
        fields = dataclasses.fields(kind)
        required = [f for f in fields if f.default is f.default_factory is dataclasses.MISSING]
        if not required:
            assert load_document(kind, dump_document(kind()), where="here") == kind()
        else:
            with pytest.raises(StoreError, match=kind.__name__):
                load_document(kind, "{}", where="here")


@pytest.mark.parametrize(
    "text",
    [
        '{"outcome": 3}',
        '{"outcome": "ok", "init_us": "3"}',
        '{"outcome": "ok", "init_us": true}',
        '{"outcome": "ok", "inference": {"count": 1.0}}',
        '{"outcome": "ok", "echoed": {"a": 1}}',
        '{"outcome": "ok", "unconsumed_flags": "abc"}',
        '{"outcome": "ok", "delegate": {"cpu_operators": [["a"]]}}',
        '{"outcome": "ok", "profile_blocks": [{"has_start_column": "yes"}]}',
        '{"outcome": "ok", "newer": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"label": "\\ud800", "newer": ' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
    ids=range(10),
)
def test_a_value_of_another_type_is_an_error_with_its_place(text: str) -> None:
    with pytest.raises(StoreError, match="run r-17: the stored document") as refused:
        load_document(ToolReport, text, where="run r-17")

    assert len(str(refused.value)) < 400
