"""Outputs against the reference's: thresholds by type, drift, wrong numbers, and outputs that show
nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.analysis.measured import judge_cases
from orchestrator.passes.parity import parity_findings, read_parity, with_parity
from orchestrator.records.case import DelegateName, Pass
from orchestrator.records.run import Attachment, RawOutput, ToolReport
from orchestrator.records.verdict import (
    BASIS_FILE,
    CONTRAST_FILE,
    OUTPUTS_FILE,
    Kernels,
    ParityVerdict,
    Quality,
    reference_file,
)
from tests.samples.places import DATA
from tests.samples.sample_lab import case, run, series

RANDOM = np.random.default_rng(3)
FLOATS = RANDOM.uniform(-1, 1, (1, 40)).astype(np.float32)
OTHER_FLOATS = RANDOM.uniform(-1, 1, (1, 40)).astype(np.float32)
STEPS = RANDOM.integers(-128, 127, (1, 40)).astype(np.int8)
OTHER_STEPS = RANDOM.integers(-128, 127, (1, 40)).astype(np.int8)
CPU = case(delegate=DelegateName.CPU)
GPU = case(delegate=DelegateName.GPU)


def raw(reference, contrast, found: bytes, *, scale: float = 0.01, **others) -> RawOutput:
    """What is kept with a run; ``others`` are the outputs of further kernels."""
    described = {"name": "y", "dtype": str(reference.dtype), "shape": reference.shape}
    described["scale"] = 0.0 if reference.dtype.kind == "f" else scale
    return kept([described], {"builtin": reference.tobytes(), **others}, contrast.tobytes(), found)


def kept(outputs, references: dict[str, bytes], contrast: bytes, found: bytes) -> RawOutput:
    described = {
        "runtime": "LiteRT 2",
        "references": [*references],
        "inputs": "seed 20",
        "outputs": outputs,
    }
    parts = {
        BASIS_FILE: json.dumps(described).encode(),
        **{reference_file(Kernels(name)): data for name, data in references.items()},
        CONTRAST_FILE: contrast,
        OUTPUTS_FILE: found,
    }
    return RawOutput(
        command="",
        exit_code=0,
        timed_out=False,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        duration_s=1.0,
        attachments=tuple(Attachment(name=name, data=data) for name, data in parts.items()),
    )


def verdict(reference, contrast, found, measured=CPU) -> ParityVerdict:
    return read_parity(raw(reference, contrast, found.tobytes()), measured).verdict


@pytest.mark.parametrize(
    ("share", "measured", "expected"),
    [
        (5e-5, CPU, ParityVerdict.SAME),
        (3e-4, CPU, ParityVerdict.DRIFT),
        (3e-3, CPU, ParityVerdict.WRONG),
        (3e-3, GPU, ParityVerdict.SAME),
        (3e-2, GPU, ParityVerdict.DRIFT),
        (3e-3, replace(GPU, flags=(("gpu_precision_loss_allowed", "false"),)), ParityVerdict.WRONG),
        (3e-3, replace(CPU, flags=(("xnnpack_force_fp16", "true"),)), ParityVerdict.SAME),
    ],
)
def test_floats_may_differ_by_their_precision(share, measured, expected):
    found = FLOATS.copy()
    found[0, 7] += share * np.abs(FLOATS).max()
    assert verdict(FLOATS, OTHER_FLOATS, found, measured) is expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [(2, ParityVerdict.SAME), (3, ParityVerdict.DRIFT), (40, ParityVerdict.WRONG)],
)
def test_quantised_integers_may_differ_by_two_steps(steps, expected):
    found = STEPS.copy()
    found[0, 3] += steps if found[0, 3] < 0 else -steps
    assert verdict(STEPS, OTHER_STEPS, found) is expected


@pytest.mark.parametrize("found", [FLOATS * -3, np.flip(FLOATS), np.full_like(FLOATS, np.nan)])
def test_other_numbers_are_wrong_at_any_precision(found):
    assert verdict(FLOATS, OTHER_FLOATS, found, GPU) is ParityVerdict.WRONG


RECORDED = json.loads((DATA / "parity" / "texturenet_int8.json").read_text("utf-8"))


def recorded(found: bytes, delegate: DelegateName, *kernels: str):
    """Compare outputs with what was recorded of the sample model; ``kernels`` are the references
    there are."""
    references = {
        name: bytes.fromhex(RECORDED[name]) for name in kernels or ("builtin", "xnnpack", "plain")
    }
    output = kept(RECORDED["outputs"], references, bytes.fromhex(RECORDED["other_inputs"]), found)
    return read_parity(output, case(delegate=delegate))


def moved(steps: int) -> bytes:
    """XNNPACK's outputs with one value so many steps away."""
    values = np.frombuffer(bytes.fromhex(RECORDED["xnnpack"]), np.int8).copy()
    values[7] -= steps
    return values.tobytes()


@pytest.mark.parametrize(
    ("found", "delegate", "expected", "nearest", "error"),
    [
        (
            bytes.fromhex(RECORDED["device_xnnpack"]),
            DelegateName.XNNPACK,
            ParityVerdict.SAME,
            "XNNPACK",
            0,
        ),
        (
            bytes.fromhex(RECORDED["device_cpu"]),
            DelegateName.CPU,
            ParityVerdict.SAME,
            "builtin kernels",
            0,
        ),
        # Without a delegate there is no XNNPACK; what it gives is still what correct kernels give.
        (
            bytes.fromhex(RECORDED["xnnpack"]),
            DelegateName.CPU,
            ParityVerdict.SAME,
            "builtin kernels",
            10,
        ),
        # An accelerator may round as any of them.
        (
            bytes.fromhex(RECORDED["plain"]),
            DelegateName.NNAPI,
            ParityVerdict.SAME,
            "plain reference kernels",
            0,
        ),
        (moved(1), DelegateName.XNNPACK, ParityVerdict.SAME, "XNNPACK", 1),
        (moved(11), DelegateName.XNNPACK, ParityVerdict.SAME, "XNNPACK", 11),
        (moved(14), DelegateName.XNNPACK, ParityVerdict.DRIFT, "XNNPACK", 14),
        (moved(60), DelegateName.XNNPACK, ParityVerdict.WRONG, "XNNPACK", 60),
        (
            bytes.fromhex(RECORDED["other_inputs"]),
            DelegateName.XNNPACK,
            ParityVerdict.WRONG,
            "",
            None,
        ),
        (bytes.fromhex(RECORDED["builtin"])[::-1], DelegateName.GPU, ParityVerdict.WRONG, "", None),
    ],
)
def test_outputs_are_held_against_the_nearest_kernels_that_the_delegate_may_run(
    found, delegate, expected, nearest, error
):
    parity = recorded(found, delegate)
    tensor = parity.worst
    assert (parity.verdict, tensor.kernel_distance, tensor.threshold) == (expected, 11.0, 11.0)
    assert nearest in parity.reference
    assert error is None or tensor.error == error
    assert "correct kernels differ by up to 11" in parity.reason
    noun = "step" if error == 1 else "steps"
    assert error is None or f"at most {error} {noun} from" in parity.reason


def test_a_single_reference_leaves_the_threshold_of_the_type():
    parity = recorded(bytes.fromhex(RECORDED["device_xnnpack"]), DelegateName.XNNPACK, "builtin")
    tensor = parity.worst
    assert (tensor.error, tensor.threshold, tensor.kernel_distance) == (10.0, 2.0, None)


@pytest.mark.parametrize(
    ("places", "expected"),
    [(0, ParityVerdict.SAME), (3, ParityVerdict.DRIFT), (40, ParityVerdict.WRONG)],
)
def test_indexes_are_judged_by_the_places_that_differ_and_not_by_how_far(places, expected):
    ours, others = (RANDOM.integers(0, 1000, (1, 400)).astype(np.int64) for _ in range(2))
    found = ours.copy()
    found[0, :places] += 700
    parity = read_parity(raw(ours, others, found.tobytes(), scale=0.0), CPU)
    assert (parity.verdict, parity.worst.error) == (expected, places / 400)


def test_kernels_that_do_not_agree_on_anything_prove_nothing():
    far = (FLOATS * np.float32(-1)).tobytes()
    parity = read_parity(raw(FLOATS, OTHER_FLOATS, FLOATS.tobytes(), xnnpack=far), CPU)
    assert parity.verdict is ParityVerdict.DEGENERATE


def test_a_reference_without_numbers_loosens_nothing():
    nothing = np.full_like(FLOATS, np.nan).tobytes()
    found = FLOATS + np.float32(0.1)
    parity = read_parity(raw(FLOATS, OTHER_FLOATS, found.tobytes(), xnnpack=nothing), CPU)
    assert (parity.verdict, parity.worst.kernel_distance) == (ParityVerdict.WRONG, None)


def test_outputs_that_do_not_depend_on_inputs_prove_nothing_even_where_they_agree():
    nearly = FLOATS * np.float32(1 + 1e-6)
    flat = np.full_like(FLOATS, 0.001)
    assert verdict(FLOATS, nearly, FLOATS) is ParityVerdict.DEGENERATE
    assert verdict(FLOATS, nearly, FLOATS * -3) is ParityVerdict.DEGENERATE
    assert verdict(flat, FLOATS, flat) is ParityVerdict.DEGENERATE
    # Other inputs gave outputs of another size.
    assert verdict(FLOATS, FLOATS[:, 1:], FLOATS * -3) is ParityVerdict.WRONG


def test_missing_and_short_outputs_are_told_apart_from_wrong_ones():
    for found in (b"", FLOATS.tobytes()[:-4]):
        output = raw(FLOATS, OTHER_FLOATS, found)
        assert read_parity(output, CPU).verdict is ParityVerdict.UNREADABLE
        report = with_parity(ToolReport(outcome="ok"), output, CPU)
        assert [item.code for item in parity_findings(report)] == ["outputs-unreadable"]
    assert read_parity(replace(raw(FLOATS, OTHER_FLOATS, b""), attachments=()), CPU) is None


@pytest.mark.parametrize(
    ("found", "status", "quality"),
    [
        (FLOATS, CaseStatus.MEASURED, Quality.TRUSTED),
        (FLOATS + np.float32(3e-4) * (np.arange(40) == 1), CaseStatus.MEASURED, Quality.SUSPECT),
        (-FLOATS, CaseStatus.REJECTED, Quality.REJECTED),
    ],
)
def test_a_case_with_wrong_outputs_is_rejected_however_fast_it_is(found, status, quality):
    output = raw(FLOATS, OTHER_FLOATS, found.astype(np.float32).tobytes())
    compared = run(CPU, 0, 1.0, run_pass=Pass.PARITY)
    compared = replace(compared, report=with_parity(ToolReport(outcome="ok"), output, CPU))
    (result,) = judge_cases([*series(CPU, 10_000.0), compared]).values()
    assert (result.status, result.quality) == (status, quality)
    assert result.is_judged == (quality is Quality.TRUSTED)
    assert result.summary is not None
