"""A run's outputs against the reference's. Pure: from what is kept with a run, so that it can be judged again.

Thresholds by type: single precision 1e-4 and half precision 1e-2 of the reference's largest magnitude, quantised
integers 2 steps; other integers and truth values must be equal. The reference's own outputs for other inputs are the
check on the check: where they would pass as well, the model's outputs don't depend on its inputs, and show nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from orchestrator.records.parity import (
    BASIS_FILE,
    CONTRAST_FILE,
    OUTPUTS_FILE,
    REFERENCE_FILE,
    Parity,
    ParityTensor,
    ParityVerdict,
    TensorParity,
)
from orchestrator.records.run import RawOutput, ToolReport
from orchestrator.records.verdict import Finding, Severity
from orchestrator.records.workload import Case, DelegateName

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FP32_MAX: Final = 1e-4
FP16_MAX: Final = 1e-2
STEPS_MAX: Final = 2.0
#: Beyond the threshold by less than this factor, and pointing the same way, outputs are drifted and not wrong.
DRIFT_FACTOR: Final = 5.0
DRIFT_COSINE_MIN: Final = 0.999
#: Delegates that compute in half precision unless they are told not to.
_HALF: Final = frozenset({DelegateName.NNAPI, DelegateName.HEXAGON, DelegateName.NPU, DelegateName.COREML})
_HALF_FLAGS: Final = frozenset({"xnnpack_force_fp16", "allow_fp16", "nnapi_allow_fp16"})
_TOP: Final = 5


def parity_of(raw: RawOutput, case: Case) -> Parity | None:
    """Return what a run's outputs are worth; None for a run that has no reference beside it."""
    described = raw.data(BASIS_FILE)
    if not described:
        return None
    basis: Mapping[str, Any] = json.loads(described)
    tensors = [_tensor(item) for item in basis["outputs"]]

    def result(verdict: ParityVerdict, reason: str, compared: tuple[TensorParity, ...] = ()) -> Parity:
        about, inputs = str(basis["reference"]), str(basis["inputs"])
        return Parity(verdict=verdict, reason=reason, tensors=compared, reference=about, inputs=inputs)

    reference = _split(raw.data(REFERENCE_FILE), tensors)
    contrast = _split(raw.data(CONTRAST_FILE), tensors)
    assert reference is not None
    found = _split(raw.data(OUTPUTS_FILE), tensors)
    if found is None:
        size, wanted = len(raw.data(OUTPUTS_FILE)), len(raw.data(REFERENCE_FILE))
        reason = f"the program wrote {size} bytes of outputs; the model has {wanted}" if size else "no outputs came"
        return result(ParityVerdict.UNREADABLE, reason)
    half = is_half(case)
    compared = tuple(_compare(t, a, b, half=half) for t, a, b in zip(tensors, reference, found, strict=True))
    blind = _blindness(tensors, reference, contrast, half=half)
    if blind:
        return result(ParityVerdict.DEGENERATE, blind, compared)
    worst = _worst_of(compared)
    return result(worst.verdict, _sentence(worst), compared)


def is_half(case: Case) -> bool:
    """Whether a configuration is meant to compute floats in half precision; the GPU does unless it is told not to."""
    flags = dict(case.flags)
    if any(flags.get(name) in {"true", "1"} for name in _HALF_FLAGS):
        return True
    if case.delegate is DelegateName.GPU:
        return flags.get("gpu_precision_loss_allowed", "true") in {"true", "1"}
    return case.delegate in _HALF or case.delegate is DelegateName.EXTERNAL


def with_parity(report: ToolReport, raw: RawOutput, case: Case) -> ToolReport:
    """Return a report with what the comparison gave, under names that begin with ``parity``; as it is without one."""
    parity = parity_of(raw, case)
    if parity is None or report.outcome != "ok":
        return report
    extra: dict[str, float | str] = {
        **report.extra,
        "parity": parity.verdict.value,
        "parity_reason": parity.reason,
        "parity_reference": parity.reference,
        "parity_inputs": parity.inputs,
    }
    if parity.tensors:
        worst = _worst_of(parity.tensors)
        figures = {
            "parity_error": worst.error,
            "parity_threshold": worst.threshold,
            "parity_max_error": worst.max_error,
            "parity_mean_error": worst.mean_error,
            "parity_relative_l2": worst.relative_l2,
            "parity_cosine": worst.cosine,
            "parity_top1": worst.top1,
            "parity_top5": worst.top5,
        }
        extra |= {name: value for name, value in figures.items() if value is not None and math.isfinite(value)}
    return replace(report, extra=extra)


def parity_findings(report: ToolReport) -> Iterator[Finding]:
    """Yield what a run of the pass ``parity`` shows: ``wrong-outputs``, ``outputs-drift``, ``parity-degenerate`` ..."""
    verdict, reason = report.extra.get("parity"), str(report.extra.get("parity_reason", ""))
    kinds = {
        ParityVerdict.WRONG.value: ("wrong-outputs", Severity.ERROR, "the outputs aren't the model's"),
        ParityVerdict.DRIFT.value: ("outputs-drift", Severity.WARNING, "the outputs differ more than they should"),
        ParityVerdict.DEGENERATE.value: (
            "parity-degenerate",
            Severity.WARNING,
            "the model's outputs hardly depend on its inputs; they show nothing",
        ),
        ParityVerdict.UNREADABLE.value: ("outputs-unreadable", Severity.ERROR, "there are no outputs to compare"),
    }
    if isinstance(verdict, str) and verdict in kinds:
        code, severity, message = kinds[verdict]
        yield Finding(code=code, severity=severity, message=message, evidence=reason)


def _tensor(item: Mapping[str, Any]) -> ParityTensor:
    return ParityTensor(
        name=str(item["name"]),
        dtype=str(item["dtype"]),
        shape=tuple(int(size) for size in item["shape"]),
        scale=float(item.get("scale", 0.0)),
        zero_point=int(item.get("zero_point", 0)),
    )


def _split(data: bytes, tensors: Sequence[ParityTensor]) -> list[NDArray[Any]] | None:
    """Return each output's values; None when the bytes aren't those of these tensors."""
    import numpy as np

    sizes = [math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize for tensor in tensors]
    if len(data) != sum(sizes) or not data:
        return None
    found, at = [], 0
    for tensor, size in zip(tensors, sizes, strict=True):
        found.append(np.frombuffer(data[at : at + size], np.dtype(tensor.dtype).newbyteorder("<")))
        at += size
    return found


def _compare(tensor: ParityTensor, reference: NDArray[Any], found: NDArray[Any], *, half: bool) -> TensorParity:
    import numpy as np

    wanted, given = reference.astype(np.float64), found.astype(np.float64)
    threshold, unit = _threshold(tensor, wanted, half=half)
    if not np.isfinite(given).all() or not np.isfinite(wanted).all():
        # Where the reference itself isn't a number, the same must come out at the same place.
        alike = bool(np.array_equal(wanted, given, equal_nan=True))
        difference = np.zeros_like(wanted) if alike else np.full_like(wanted, np.inf)
    else:
        difference = np.abs(given - wanted)
    max_error, mean_error = float(difference.max()), float(difference.mean())
    error = max_error / unit
    # Directions and lengths are those of the real values: a quantised zero is no number of its own.
    ours, theirs = wanted - tensor.zero_point, given - tensor.zero_point
    lengths = float(np.linalg.norm(ours)), float(np.linalg.norm(theirs))
    finite = math.isfinite(max_error)
    cosine = None
    if finite and all(math.isfinite(length) and length > 0 for length in lengths):
        cosine = float(np.dot(ours, theirs) / lengths[0] / lengths[1])
    relative = float(np.linalg.norm(difference)) / lengths[0] if finite and lengths[0] > 0 else error
    if error <= threshold:
        verdict = ParityVerdict.SAME
    elif cosine is not None and cosine >= DRIFT_COSINE_MIN and error <= DRIFT_FACTOR * threshold:
        verdict = ParityVerdict.DRIFT
    else:
        verdict = ParityVerdict.WRONG
    top1, top5 = _agreement(tensor, wanted, given)
    return TensorParity(
        name=tensor.name, dtype=tensor.dtype, max_error=max_error, mean_error=mean_error, error=error,
        threshold=threshold, relative_l2=relative, cosine=cosine, top1=top1, top5=top5, verdict=verdict,
    )  # fmt: skip


def _threshold(tensor: ParityTensor, wanted: NDArray[np.float64], *, half: bool) -> tuple[float, float]:
    """Return the threshold, and what a difference is divided by before it is held against it."""
    import numpy as np

    kind = np.dtype(tensor.dtype)
    if kind.kind == "f":
        finite = wanted[np.isfinite(wanted)]
        largest = float(np.abs(finite).max()) if finite.size else 0.0
        return (FP16_MAX if half or kind.itemsize == 2 else FP32_MAX), largest or 1.0
    return (STEPS_MAX if tensor.scale else 0.0), 1.0


def _agreement(
    tensor: ParityTensor, wanted: NDArray[np.float64], given: NDArray[np.float64]
) -> tuple[float | None, float | None]:
    """Return how often the largest value of a row is at the same place, and how many of the five largest."""
    import numpy as np

    row = tensor.shape[-1] if tensor.shape else 1
    if row < 2 or not np.isfinite(given).all() or not np.isfinite(wanted).all():
        return None, None
    ours, theirs = wanted.reshape(-1, row), given.reshape(-1, row)
    # Of equal values any may be called the largest: it counts where the reference's value is the largest, not where.
    best = np.take_along_axis(ours, theirs.argmax(axis=1)[:, None], axis=1)[:, 0]
    top1 = float(np.mean(best >= ours.max(axis=1)))
    if row < 2 * _TOP:
        return top1, None
    least = np.sort(ours, axis=1)[:, -_TOP]
    chosen = np.take_along_axis(ours, np.argsort(theirs, axis=1)[:, -_TOP:], axis=1)
    return top1, float(np.mean(chosen >= least[:, None]))


def _blindness(
    tensors: Sequence[ParityTensor],
    reference: Sequence[NDArray[Any]],
    contrast: Sequence[NDArray[Any]] | None,
    *,
    half: bool,
) -> str:
    """Return why the comparison could not show anything; empty when it could."""
    import numpy as np

    if contrast is None:
        return "nothing is known of the outputs for other inputs"
    for tensor, ours, others in zip(tensors, reference, contrast, strict=True):
        if not np.isfinite(ours.astype(np.float64)).all():
            continue
        apart = _compare(tensor, ours, others, half=half)
        is_flat = ours.size > 1 and bool(np.all(ours == ours.flat[0]))
        if apart.verdict is ParityVerdict.WRONG and not is_flat:
            return ""
    return "the reference's outputs are constant, or other inputs give the same within the threshold"


def _worst_of(tensors: Sequence[TensorParity]) -> TensorParity:
    return max(tensors, key=lambda item: (item.verdict.badness, item.error / (item.threshold or 1.0)))


def _sentence(worst: TensorParity) -> str:
    unit = " of the largest magnitude" if worst.dtype.startswith("float") else " steps"
    parts = [f"{worst.name}: off by {worst.error:.3g}{unit} at the most (threshold {worst.threshold:g})"]
    parts.append(f"mean error {worst.mean_error:.3g}")
    if worst.cosine is not None:
        parts.append(f"cosine {worst.cosine:.6f}")
    if worst.top1 is not None:
        parts.append(f"top-1 agreement {worst.top1:.0%}")
    if worst.top5 is not None:
        parts.append(f"top-5 {worst.top5:.0%}")
    return ", ".join(parts)
