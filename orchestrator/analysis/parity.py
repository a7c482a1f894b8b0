"""A run's outputs against the references'.

Pure: from what is kept with a run, so that it can be judged again.

A reference is right for a delegate when that delegate may run these kernels; the nearest of them
counts. Thresholds by type: single precision 1e-4 and half precision 1e-2 of the reference's largest
magnitude, quantised integers 2 steps; other integers and truth values must be equal. Where two
references differ by more than that on this model and these inputs, correct implementations differ
by so much, and their distance is the threshold. The reference's own outputs for other inputs are
the check on the check: where they would pass as well, the outputs don't depend on the inputs, and
show nothing.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from orchestrator.analysis.findings import finding
from orchestrator.delegates import DELEGATES
from orchestrator.records.case import Case
from orchestrator.records.parity import (
    BASIS_FILE,
    CONTRAST_FILE,
    OUTPUTS_FILE,
    Kernels,
    Parity,
    ParityTensor,
    ParityVerdict,
    TensorParity,
    reference_file,
)
from orchestrator.records.run import RawOutput, ToolReport
from orchestrator.records.verdict import Finding

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FP32_MAX: Final = 1e-4
FP16_MAX: Final = 1e-2
STEPS_MAX: Final = 2.0
#: Beyond the threshold by less than this factor, and pointing the same way, outputs are drifted and
#: not wrong.
DRIFT_FACTOR: Final = 5.0
DRIFT_COSINE_MIN: Final = 0.999
#: ... of outputs that are equal or not, up to this share of the places.
DRIFT_PLACES_MAX: Final = 0.01
_KERNEL_WORDS: Final = {
    Kernels.BUILTIN: "builtin kernels",
    Kernels.XNNPACK: "XNNPACK",
    Kernels.PLAIN: "plain reference kernels",
}
#: Of these each makes any delegate compute in half precision.
_HALF_FLAGS: Final = frozenset({"xnnpack_force_fp16", "allow_fp16", "nnapi_allow_fp16"})
_TOP: Final = 5
#: What a report keeps of the worst output.
_KEPT: Final = (
    "error",
    "threshold",
    "max_error",
    "mean_error",
    "relative_l2",
    "cosine",
    "top1",
    "top5",
    "kernel_distance",
)


def parity_of(raw: RawOutput, case: Case) -> Parity | None:
    """Return what a run's outputs are worth; None for a run that has no reference beside it."""
    described = raw.data(BASIS_FILE)
    if not described:
        return None
    basis: Mapping[str, Any] = json.loads(described)
    tensors = [_tensor(item) for item in basis["outputs"]]
    half = is_half(case)

    def result(
        verdict: ParityVerdict,
        reason: str,
        compared: tuple[TensorParity, ...] = (),
        kernels: Kernels = Kernels.BUILTIN,
    ) -> Parity:
        about = f"{basis['runtime']}, {_KERNEL_WORDS[kernels]}"
        return Parity(
            verdict=verdict,
            reason=reason,
            tensors=compared,
            reference=about,
            inputs=str(basis["inputs"]),
            system=str(basis.get("system", "")),
        )

    references = {
        kernels: values
        for kernels in map(Kernels, basis["references"])
        if (values := _split(raw.data(reference_file(kernels)), tensors)) is not None
    }
    contrast = _split(raw.data(CONTRAST_FILE), tensors)
    found = _split(raw.data(OUTPUTS_FILE), tensors)
    if found is None:
        size, wanted = len(raw.data(OUTPUTS_FILE)), len(raw.data(reference_file(Kernels.BUILTIN)))
        reason = (
            f"the program wrote {size} bytes of outputs; the model has {wanted}"
            if size
            else "no outputs came"
        )
        return result(ParityVerdict.UNREADABLE, reason)
    limits = [
        _limit(tensor, [values[place] for values in references.values()], half=half)
        for place, tensor in enumerate(tensors)
    ]

    def against(
        wanted: Sequence[NDArray[Any]], given: Sequence[NDArray[Any]]
    ) -> tuple[TensorParity, ...]:
        return tuple(_compare(*each) for each in zip(tensors, limits, wanted, given, strict=True))

    # What a delegate doesn't take runs on the others; without a delegate there is no XNNPACK. No
    # accelerator has a runtime of its own on this computer, so any of them may be the nearest.
    right = {*Kernels} - ({Kernels.XNNPACK} if DELEGATES[case.delegate].is_builtin else set())
    each = {
        kernels: against(values, found)
        for kernels, values in references.items()
        if kernels in right
    }
    nearest = min(each, key=lambda kernels: _badness(_worst_of(each[kernels])))
    compared = each[nearest]
    builtin = references[Kernels.BUILTIN]
    if contrast is None or _is_blind(builtin, against(builtin, contrast)):
        reason = "the reference's outputs are constant, or other inputs give the same within the threshold"
        return result(ParityVerdict.DEGENERATE, reason, compared, nearest)
    worst = _worst_of(compared)
    return result(worst.verdict, _sentence(worst, nearest), compared, nearest)


def is_half(case: Case) -> bool:
    """Whether a configuration is meant to compute floats in half precision."""
    flags = dict(case.flags)
    return any(flags.get(name) in {"true", "1"} for name in _HALF_FLAGS) or DELEGATES[
        case.delegate
    ].is_half(flags)


def with_parity(report: ToolReport, raw: RawOutput, case: Case) -> ToolReport:
    """Return a report with what the comparison gave, under names that begin with ``parity``; as it
    is without one.
    """
    parity = parity_of(raw, case)
    if parity is None or report.outcome != "ok":
        return report
    extra: dict[str, float | str] = {
        **report.extra,
        "parity": parity.verdict.value,
        "parity_reason": parity.reason,
        "parity_reference": parity.reference,
        "parity_inputs": parity.inputs,
        "parity_system": parity.system,
    }
    if parity.tensors:
        worst = _worst_of(parity.tensors)
        figures = {f"parity_{name}": getattr(worst, name) for name in _KEPT}
        extra |= {
            name: value
            for name, value in figures.items()
            if value is not None and math.isfinite(value)
        }
    return replace(report, extra=extra)


def parity_findings(report: ToolReport) -> Iterator[Finding]:
    """Yield what a run of the pass ``parity`` shows: ``wrong-outputs``, ``outputs-drift``,
    ``parity-degenerate`` ...
    """
    verdict, reason = report.extra.get("parity"), str(report.extra.get("parity_reason", ""))
    codes = {
        ParityVerdict.WRONG: "wrong-outputs",
        ParityVerdict.DRIFT: "outputs-drift",
        ParityVerdict.DEGENERATE: "parity-degenerate",
        ParityVerdict.UNREADABLE: "outputs-unreadable",
    }
    if isinstance(verdict, str) and (code := codes.get(ParityVerdict(verdict))):
        yield finding(code, evidence=reason)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """What an output may differ by."""

    #: Up to which error it is the same, and up to which it may be drifted.
    same: float
    drift: float
    #: A drifted one points the same way; None for values that have no direction.
    cosine_min: float | None
    #: The largest error between two references; None with a single one.
    kernel_distance: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Difference:
    """How far one output is from another."""

    max_error: float
    mean_error: float
    #: In the unit of the tensor's type; see TensorParity.
    error: float
    relative_l2: float
    cosine: float | None


def _is_discrete(tensor: ParityTensor) -> bool:
    """Whether values are equal or not, and not near or far: indexes, counts, truth values."""
    import numpy as np

    return np.dtype(tensor.dtype).kind != "f" and not tensor.scale


def _limit(tensor: ParityTensor, references: Sequence[NDArray[Any]], *, half: bool) -> _Limit:
    import numpy as np

    pairs = [_difference(tensor, a, b) for a, b in itertools.combinations(references, 2)]
    # Where a reference isn't a number, it says nothing of what others may differ by.
    finite = [pair for pair in pairs if math.isfinite(pair.error)]
    distance = max((pair.error for pair in finite), default=None)
    kind = np.dtype(tensor.dtype)
    if _is_discrete(tensor):
        same = distance or 0.0
        drift = max(DRIFT_FACTOR * same, DRIFT_PLACES_MAX)
        return _Limit(same=same, drift=drift, cosine_min=None, kernel_distance=distance)
    of_type = (
        STEPS_MAX if kind.kind != "f" else FP16_MAX if half or kind.itemsize == 2 else FP32_MAX
    )
    same = max(of_type, distance or 0.0)
    cosine = min((pair.cosine for pair in finite if pair.cosine is not None), default=1.0)
    cosine_min = min(DRIFT_COSINE_MIN, 1.0 - DRIFT_FACTOR * (1.0 - cosine))
    return _Limit(
        same=same, drift=DRIFT_FACTOR * same, cosine_min=cosine_min, kernel_distance=distance
    )


def _difference(tensor: ParityTensor, reference: NDArray[Any], found: NDArray[Any]) -> _Difference:
    import numpy as np

    wanted, given = reference.astype(np.float64), found.astype(np.float64)
    if not np.isfinite(given).all() or not np.isfinite(wanted).all():
        # Where the reference itself isn't a number, the same must come out at the same place.
        alike = bool(np.array_equal(wanted, given, equal_nan=True))
        apart = np.zeros_like(wanted) if alike else np.full_like(wanted, np.inf)
    else:
        apart = np.abs(given - wanted)
    max_error = error = float(apart.max())
    if _is_discrete(tensor):
        error = float(np.mean(reference != found))
    elif np.dtype(tensor.dtype).kind == "f":
        numbers = wanted[np.isfinite(wanted)]
        error = max_error / ((float(np.abs(numbers).max()) if numbers.size else 0.0) or 1.0)
    # Directions and lengths are those of the real values: a quantised zero is no number of its own.
    ours, theirs = wanted - tensor.zero_point, given - tensor.zero_point
    lengths = float(np.linalg.norm(ours)), float(np.linalg.norm(theirs))
    finite = math.isfinite(max_error)
    cosine = None
    if finite and all(math.isfinite(length) and length > 0 for length in lengths):
        cosine = float(np.dot(ours, theirs) / lengths[0] / lengths[1])
    relative = float(np.linalg.norm(apart)) / lengths[0] if finite and lengths[0] > 0 else error
    return _Difference(
        max_error=max_error,
        mean_error=float(apart.mean()),
        error=error,
        relative_l2=relative,
        cosine=cosine,
    )


def _compare(
    tensor: ParityTensor, limit: _Limit, reference: NDArray[Any], found: NDArray[Any]
) -> TensorParity:
    import numpy as np

    apart = _difference(tensor, reference, found)
    least = limit.cosine_min
    if apart.error <= limit.same:
        verdict = ParityVerdict.SAME
    elif apart.error <= limit.drift and (
        least is None or (apart.cosine is not None and apart.cosine >= least)
    ):
        verdict = ParityVerdict.DRIFT
    else:
        verdict = ParityVerdict.WRONG
    top1, top5 = _agreement(tensor, reference.astype(np.float64), found.astype(np.float64))
    return TensorParity(
        name=tensor.name,
        dtype=tensor.dtype,
        max_error=apart.max_error,
        mean_error=apart.mean_error,
        error=apart.error,
        threshold=limit.same,
        kernel_distance=limit.kernel_distance,
        relative_l2=apart.relative_l2,
        cosine=apart.cosine,
        top1=top1,
        top5=top5,
        verdict=verdict,
        is_discrete=_is_discrete(tensor),
    )


def _agreement(
    tensor: ParityTensor, wanted: NDArray[np.float64], given: NDArray[np.float64]
) -> tuple[float | None, float | None]:
    """Return how often the largest value of a row is at the same place, and how many of the five
    largest.
    """
    import numpy as np

    row = tensor.shape[-1] if tensor.shape else 1
    if row < 2 or not np.isfinite(given).all() or not np.isfinite(wanted).all():
        return None, None
    ours, theirs = wanted.reshape(-1, row), given.reshape(-1, row)
    # Of equal values any may be called the largest: it counts where the reference's value is the
    # largest, not where.
    best = np.take_along_axis(ours, theirs.argmax(axis=1)[:, None], axis=1)[:, 0]
    top1 = float(np.mean(best >= ours.max(axis=1)))
    if row < 2 * _TOP:
        return top1, None
    least = np.sort(ours, axis=1)[:, -_TOP]
    chosen = np.take_along_axis(ours, np.argsort(theirs, axis=1)[:, -_TOP:], axis=1)
    return top1, float(np.mean(chosen >= least[:, None]))


def _is_blind(reference: Sequence[NDArray[Any]], contrast: Sequence[TensorParity]) -> bool:
    """Whether the comparison could not show anything, as other inputs give outputs that aren't told
    apart.
    """
    import numpy as np

    for ours, apart in zip(reference, contrast, strict=True):
        if not np.isfinite(ours.astype(np.float64)).all():
            continue
        is_flat = ours.size > 1 and bool(np.all(ours == ours.flat[0]))
        if apart.verdict is ParityVerdict.WRONG and not is_flat:
            return False
    return True


def _badness(item: TensorParity) -> tuple[int, float]:
    """Return what puts outputs in order, the worst last."""
    return item.verdict.badness, item.error / (item.threshold or 1.0)


def _worst_of(tensors: Sequence[TensorParity]) -> TensorParity:
    return max(tensors, key=_badness)


def _sentence(worst: TensorParity, nearest: Kernels) -> str:
    is_float = worst.dtype.startswith("float")
    unit = (
        " of the largest magnitude"
        if is_float
        else " of the places"
        if worst.is_discrete
        else " steps"
    )
    parts = [
        f"{worst.name}: at most {worst.error:.3g}{unit} from {_KERNEL_WORDS[nearest]} (threshold {worst.threshold:.3g})"
    ]
    if worst.kernel_distance is not None:
        parts.append(f"correct kernels differ by up to {worst.kernel_distance:.3g}")
    parts.append(f"mean error {worst.mean_error:.3g}")
    if worst.cosine is not None:
        parts.append(f"cosine {worst.cosine:.6f}")
    if worst.top1 is not None:
        parts.append(f"top-1 agreement {worst.top1:.0%}")
    if worst.top5 is not None:
        parts.append(f"top-5 {worst.top5:.0%}")
    return ", ".join(parts)
