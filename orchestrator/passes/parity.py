"""The pass ``parity``: the model's outputs for given inputs, compared with the reference's on this
computer.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from orchestrator.analysis.findings import finding
from orchestrator.delegates import DELEGATES, FlagFamily
from orchestrator.frozen import frozen
from orchestrator.passes.specification import (
    INFO_FILES,
    INFO_FLAGS,
    PassSpec,
    Prepared,
)
from orchestrator.programs import program
from orchestrator.records.case import Case, Pass
from orchestrator.records.run import RawOutput, RunRecord, ToolReport
from orchestrator.records.verdict import (
    BASIS_FILE,
    CONTRAST_FILE,
    OUTPUTS_FILE,
    Finding,
    Kernels,
    ParityVerdict,
    reference_file,
)

if TYPE_CHECKING:
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


@frozen
class OutputTensor:
    """An output as the reference has it."""

    name: str
    #: numpy's name: ``float32``, ``int8`` ...
    dtype: str
    shape: tuple[int, ...]
    #: Of a tensor quantised as a whole; 0 when it isn't.
    scale: float = 0.0
    zero_point: int = 0

    @property
    def is_float(self) -> bool:
        """Whether it has real numbers."""
        return self.dtype.startswith("float")

    @property
    def is_discrete(self) -> bool:
        """Whether values are equal or not, and not near or far: indexes, counts, truth values."""
        return not self.is_float and not self.scale


@frozen
class TensorParity:
    """One output against the reference."""

    tensor: OutputTensor
    verdict: ParityVerdict
    #: Largest difference: of floats as a share of the reference's largest magnitude, of quantised
    #: integers in steps, of other integers and truth values the share of places that differ.
    error: float
    #: Up to which error the outputs are the same.
    threshold: float
    #: The largest error between any two references, in the same unit; None with a single one.
    kernel_distance: float | None
    #: None where one side is all zero.
    cosine: float | None

    @property
    def badness(self) -> tuple[int, float]:
        """What puts outputs in order, the worst last."""
        return self.verdict.badness, self.error / (self.threshold or 1.0)


@frozen
class Parity:
    """A run's outputs against the reference."""

    verdict: ParityVerdict
    #: A sentence.
    reason: str
    #: What the nearest reference is: runtime, version, kernels.
    reference: str
    #: ``seed 20`` or ``given``.
    inputs: str
    #: The system and driver that it ran on (DeviceFacts.computes_with); empty when unknown.
    system: str
    #: The output that differs most; None where none could be compared.
    worst: TensorParity | None = None


def parity_of(raw: RawOutput, case: Case) -> Parity | None:
    """Return what a run's outputs are worth; None for a run that has no reference beside it."""
    described = raw.data(BASIS_FILE)
    if not described:
        return None
    basis: Mapping[str, Any] = json.loads(described)
    tensors = [_tensor(item) for item in basis["outputs"]]
    references = {
        kernels: values
        for kernels in map(Kernels, basis["references"])
        if (values := _split(raw.data(reference_file(kernels)), tensors)) is not None
    }
    found = _split(raw.data(OUTPUTS_FILE), tensors)
    nearest, worst = Kernels.BUILTIN, None
    if found is None:
        verdict, reason = ParityVerdict.UNREADABLE, "no outputs came"
        if size := len(raw.data(OUTPUTS_FILE)):
            wanted = len(raw.data(reference_file(Kernels.BUILTIN)))
            reason = f"the program wrote {size} bytes of outputs; the model has {wanted}"
    else:
        limits = [
            _limit(tensor, [values[place] for values in references.values()], half=is_half(case))
            for place, tensor in enumerate(tensors)
        ]
        # What a delegate doesn't take runs on the others; without a delegate there is no XNNPACK.
        # No accelerator has a runtime of its own on this computer, so any may be the nearest.
        right = {*Kernels} - ({Kernels.XNNPACK} if DELEGATES[case.delegate].is_builtin else set())
        each = {
            kernels: max(_compared(tensors, limits, values, found), key=lambda item: item.badness)
            for kernels, values in references.items()
            if kernels in right
        }
        nearest = min(each, key=lambda kernels: each[kernels].badness)
        worst = each[nearest]
        verdict, reason = worst.verdict, _sentence(worst, nearest)
        builtin = references[Kernels.BUILTIN]
        contrast = _split(raw.data(CONTRAST_FILE), tensors)
        # Outputs of another size are told apart.
        if contrast and _is_blind(builtin, _compared(tensors, limits, builtin, contrast)):
            verdict = ParityVerdict.DEGENERATE
            reason = "the reference's outputs are constant, or other inputs give the same within the threshold"
    return Parity(
        verdict=verdict,
        reason=reason,
        reference=f"{basis['runtime']}, {_KERNEL_WORDS[nearest]}",
        inputs=str(basis["inputs"]),
        system=str(basis.get("system", "")),
        worst=worst,
    )


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
    if parity.worst is not None:
        for name in ("error", "threshold", "cosine", "kernel_distance"):
            value = getattr(parity.worst, name)
            if value is not None and math.isfinite(value):
                extra[f"parity_{name}"] = value
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


def _tensor(item: Mapping[str, Any]) -> OutputTensor:
    return OutputTensor(
        name=str(item["name"]),
        dtype=str(item["dtype"]),
        shape=tuple(int(size) for size in item["shape"]),
        scale=float(item.get("scale", 0.0)),
        zero_point=int(item.get("zero_point", 0)),
    )


def _split(data: bytes, tensors: Sequence[OutputTensor]) -> list[NDArray[Any]] | None:
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


@frozen
class _Limit:
    """What an output may differ by."""

    #: Up to which error it is the same, and up to which it may be drifted.
    same: float
    drift: float
    #: A drifted one points the same way; None for values that have no direction.
    cosine_min: float | None
    #: The largest error between two references; None with a single one.
    kernel_distance: float | None


def _limit(tensor: OutputTensor, references: Sequence[NDArray[Any]], *, half: bool) -> _Limit:
    pairs = [_difference(tensor, a, b) for a, b in itertools.combinations(references, 2)]
    # Where a reference isn't a number, it says nothing of what others may differ by.
    finite = [(error, cosine) for error, cosine in pairs if math.isfinite(error)]
    distance = max((error for error, _ in finite), default=None)
    same, cosine_min = distance or 0.0, None
    drift = max(DRIFT_FACTOR * same, DRIFT_PLACES_MAX)
    if not tensor.is_discrete:
        of_type = STEPS_MAX
        if tensor.is_float:
            of_type = FP16_MAX if half or tensor.dtype == "float16" else FP32_MAX
        same = max(of_type, same)
        drift = DRIFT_FACTOR * same
        cosine = min((cosine for _, cosine in finite if cosine is not None), default=1.0)
        cosine_min = min(DRIFT_COSINE_MIN, 1.0 - DRIFT_FACTOR * (1.0 - cosine))
    return _Limit(same=same, drift=drift, cosine_min=cosine_min, kernel_distance=distance)


def _difference(
    tensor: OutputTensor, reference: NDArray[Any], found: NDArray[Any]
) -> tuple[float, float | None]:
    """Return error and cosine of an output against another, as TensorParity has them."""
    import numpy as np

    wanted, given = reference.astype(np.float64), found.astype(np.float64)
    if np.isfinite(given).all() and np.isfinite(wanted).all():
        error = float(np.abs(given - wanted).max())
    else:
        # Where the reference itself isn't a number, the same must come out at the same place.
        error = 0.0 if np.array_equal(wanted, given, equal_nan=True) else math.inf
    cosine = None
    if math.isfinite(error):
        # Directions are those of the real values: a quantised zero is no number of its own.
        ours, theirs = wanted - tensor.zero_point, given - tensor.zero_point
        length = float(np.linalg.norm(ours)) * float(np.linalg.norm(theirs))
        if math.isfinite(length) and length > 0:
            cosine = float(np.dot(ours, theirs)) / length
    if tensor.is_discrete:
        error = float(np.mean(reference != found))
    elif tensor.is_float:
        error /= float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)) or 1.0
    return error, cosine


def _compared(
    tensors: Sequence[OutputTensor],
    limits: Sequence[_Limit],
    reference: Sequence[NDArray[Any]],
    found: Sequence[NDArray[Any]],
) -> list[TensorParity]:
    compared = []
    for tensor, limit, ours, theirs in zip(tensors, limits, reference, found, strict=True):
        error, cosine = _difference(tensor, ours, theirs)
        least = limit.cosine_min
        is_aligned = least is None or (cosine is not None and cosine >= least)
        verdict = ParityVerdict.WRONG
        if error <= limit.same:
            verdict = ParityVerdict.SAME
        elif error <= limit.drift and is_aligned:
            verdict = ParityVerdict.DRIFT
        compared.append(
            TensorParity(
                tensor=tensor,
                verdict=verdict,
                error=error,
                threshold=limit.same,
                kernel_distance=limit.kernel_distance,
                cosine=cosine,
            )
        )
    return compared


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


def _sentence(worst: TensorParity, nearest: Kernels) -> str:
    unit = " of the places" if worst.tensor.is_discrete else " steps"
    if worst.tensor.is_float:
        unit = " of the largest magnitude"
    apart = f"at most {worst.error:.3g}{unit} from {_KERNEL_WORDS[nearest]}"
    parts = [f"{worst.tensor.name}: {apart} (threshold {worst.threshold:.3g})"]
    if worst.kernel_distance is not None:
        parts.append(f"correct kernels differ by up to {worst.kernel_distance:.3g}")
    if worst.cosine is not None:
        parts.append(f"cosine {worst.cosine:.6f}")
    return ", ".join(parts)


_FAMILY: Final = FlagFamily.BENCHMARK_MODEL

#: Flags of a plan that say themselves what the inputs or outputs are.
OWN_INPUTS: Final = frozenset(
    {
        "input_layer",
        "input_layer_shape",
        "input_layer_value_files",
        "input_layer_value_range",
        "output_filepath",
        "output_proto_filepath",
        "signature_to_run_for",
    }
)


def can_be_checked(case: Case) -> bool:
    """Whether a case's program writes outputs, and there is a reference beside its own kernels."""
    return (
        not PASS.unsupported_reason(program(case.tool))
        and not DELEGATES[case.delegate].is_builtin
        and not OWN_INPUTS.intersection(name for name, _ in case.flags)
    )


def _input_flags(case: Case, prepared: Prepared) -> Mapping[str, str]:
    """Return the flags that give a model its inputs, and as few inferences as can be."""
    inputs = prepared.inputs
    return {
        "num_runs": "1",
        "min_secs": "0",
        "warmup_runs": "1",
        "warmup_min_secs": "0",
        "input_layer": ",".join(item.name for item in inputs),
        "input_layer_shape": ":".join(",".join(map(str, item.shape)) for item in inputs),
        # A single colon ends the name.
        "input_layer_value_files": ",".join(
            f"{item.name.replace(':', '::')}:{item.path}" for item in inputs
        ),
    }


def _tells(run: RunRecord) -> str:
    extra = run.report.extra if run.report is not None else {}
    return (
        f"outputs {extra['parity']}: {extra.get('parity_reason', '')}" if "parity" in extra else ""
    )


PASS = PassSpec(
    name=Pass.PARITY,
    about="Whether the model's outputs are right",
    guide="choose-a-delegate",
    flags=INFO_FLAGS,
    files={_FAMILY: {**INFO_FILES[_FAMILY], "output_filepath": OUTPUTS_FILE}},
    last_flags=_input_flags,
    compares_outputs=True,
    needs=lambda program: (
        "" if program.is_benchmark_model else "writes no outputs that could be compared"
    ),
    read=lambda tool, report, raw, case: with_parity(report, raw, case),
    findings=lambda report, case, facts: parity_findings(report),
    tells=_tells,
)
