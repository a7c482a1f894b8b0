"""The pass ``parity``: the model's outputs for given inputs, compared with the reference outputs of
this computer.
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
from orchestrator.passes.specification import (
    INFO_FILES,
    INFO_FLAGS,
    ONE_INFERENCE,
    PassSpec,
)
from orchestrator.ports import InvocationRequest
from orchestrator.program import Program
from orchestrator.records import frozen
from orchestrator.records.case import Case, Pass
from orchestrator.records.plan import PlanTerms
from orchestrator.records.run import RawOutput, RunRecord, ToolReport
from orchestrator.records.verdict import (
    BASIS_FILE,
    CONTRAST_FILE,
    OUTPUT_CODES,
    OUTPUTS_FILE,
    Finding,
    Kernels,
    ParityVerdict,
    reference_file,
)
from orchestrator.units import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray


FP32_MAX: Final = 1e-4
FP16_MAX: Final = 1e-2
STEPS_MAX: Final = 2.0
#: Outputs beyond the threshold by less than this factor, with a cosine of at least the minimum, are
#: drifted and not wrong.
DRIFT_FACTOR: Final = 5.0
DRIFT_COSINE_MIN: Final = 0.999
#: Discrete outputs are drifted up to this share of differing places.
DRIFT_PLACES_MAX: Final = 0.01
_KERNEL_WORDS: Final = {
    Kernels.BUILTIN: "builtin kernels",
    Kernels.XNNPACK: "XNNPACK",
    Kernels.PLAIN: "plain reference kernels",
}
#: Each of these makes any delegate compute in half precision.
_HALF_FLAGS: Final = frozenset({"xnnpack_force_fp16", "allow_fp16", "nnapi_allow_fp16"})


@frozen
class OutputTensor:
    """An output of the reference."""

    name: str
    #: As in numpy: ``float32``, ``int8`` ...
    dtype: str
    shape: tuple[int, ...]
    #: For a tensor quantised as a whole; else 0.
    scale: float = 0.0
    zero_point: int = 0

    @property
    def is_float(self) -> bool:
        """Whether it has real numbers."""
        return self.dtype.startswith("float")

    @property
    def is_discrete(self) -> bool:
        """Whether values can only be equal or not: indexes, counts, truth values."""
        return not self.is_float and not self.scale


@frozen
class TensorParity:
    """One output against the reference."""

    tensor: OutputTensor
    verdict: ParityVerdict
    #: Largest difference: of floats as a share of the reference's largest magnitude, of quantised
    #: integers in steps, of other integers and truth values the share of places that differ.
    error: float
    #: The largest error of outputs that count as the same.
    threshold: float
    #: The largest error between any two references, in the same unit; None with a single one.
    kernel_distance: float | None
    #: None where one side is all zero.
    cosine: float | None

    @property
    def badness(self) -> tuple[int, float]:
        """The sort key of outputs, the worst last."""
        return self.verdict.badness, self.error / (self.threshold or 1.0)


@frozen
class Parity:
    """A run's outputs against the reference."""

    verdict: ParityVerdict
    #: A sentence.
    reason: str
    #: The nearest reference: runtime, version, kernels.
    reference: str
    #: ``seed 20`` or ``given``.
    inputs: str
    #: The system and driver that it ran on (DeviceFacts.computes_with); empty when unknown.
    system: str
    #: The output that differs most; None if none could be compared.
    worst: TensorParity | None = None


def read_parity(raw: RawOutput, case: Case) -> Parity | None:
    """Return the comparison of a run's outputs, or None for a run without a reference."""
    basis_json = raw.data(BASIS_FILE)
    if not basis_json:
        return None
    basis: Mapping[str, Any] = json.loads(basis_json)
    tensors = [_tensor(item) for item in basis["outputs"]]
    references = {
        kernels: values
        for kernels in map(Kernels, basis["references"])
        if (values := _split_outputs(raw.data(reference_file(kernels)), tensors)) is not None
    }
    outputs = _split_outputs(raw.data(OUTPUTS_FILE), tensors)
    nearest, worst = Kernels.BUILTIN, None
    if outputs is None:
        verdict, reason = ParityVerdict.UNREADABLE, "no outputs came"
        if size := len(raw.data(OUTPUTS_FILE)):
            expected_size = len(raw.data(reference_file(Kernels.BUILTIN)))
            reason = f"the program wrote {size} bytes of outputs; the model has {expected_size}"
    else:
        limits = [
            _limit(tensor, [values[index] for values in references.values()], half=is_half(case))
            for index, tensor in enumerate(tensors)
        ]
        # A delegate leaves operators to any of these kernels; without a delegate XNNPACK has none.
        # This computer has no accelerator's runtime, so any kernels may be the nearest.
        comparable = {*Kernels} - (
            {Kernels.XNNPACK} if DELEGATES[case.delegate].is_builtin else set()
        )
        worst_by_kernels = {
            kernels: max(_compare(tensors, limits, values, outputs), key=lambda item: item.badness)
            for kernels, values in references.items()
            if kernels in comparable
        }
        nearest = min(worst_by_kernels, key=lambda kernels: worst_by_kernels[kernels].badness)
        worst = worst_by_kernels[nearest]
        verdict, reason = worst.verdict, _sentence(worst, nearest)
        builtin = references[Kernels.BUILTIN]
        contrast = _split_outputs(raw.data(CONTRAST_FILE), tensors)
        # A contrast of another size differs anyway.
        if contrast and _is_blind(builtin, _compare(tensors, limits, builtin, contrast)):
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
    """Return a report with the comparison's values, under names that begin with ``parity``; without
    a comparison, the same report.
    """
    parity = read_parity(raw, case)
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
    """Yield the findings of a run of the pass ``parity``, such as ``wrong-outputs``."""
    verdict, reason = report.extra.get("parity"), str(report.extra.get("parity_reason", ""))
    if isinstance(verdict, str) and (code := OUTPUT_CODES.get(ParityVerdict(verdict))):
        yield finding(code, evidence=reason)


def _tensor(item: Mapping[str, Any]) -> OutputTensor:
    return OutputTensor(
        name=str(item["name"]),
        dtype=str(item["dtype"]),
        shape=tuple(int(size) for size in item["shape"]),
        scale=float(item.get("scale", 0.0)),
        zero_point=int(item.get("zero_point", 0)),
    )


def _split_outputs(data: bytes, tensors: Sequence[OutputTensor]) -> list[NDArray[Any]] | None:
    """Return each output's values, or None if the size isn't that of these tensors."""
    import numpy as np

    sizes = [math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize for tensor in tensors]
    if len(data) != sum(sizes) or not data:
        return None
    arrays, offset = [], 0
    for tensor, size in zip(tensors, sizes, strict=True):
        arrays.append(
            np.frombuffer(data[offset : offset + size], np.dtype(tensor.dtype).newbyteorder("<"))
        )
        offset += size
    return arrays


@frozen
class _Limit:
    """The limits for the difference of an output."""

    #: The largest error of the same output, and of a drifted one.
    same: float
    drift: float
    #: The least cosine of a drifted output; None for values without a direction.
    cosine_min: float | None
    #: The largest error between two references; None with a single one.
    kernel_distance: float | None


def _limit(tensor: OutputTensor, references: Sequence[NDArray[Any]], *, half: bool) -> _Limit:
    pairs = [_difference(tensor, a, b) for a, b in itertools.combinations(references, 2)]
    # A reference that isn't a number gives no limit.
    finite = [(error, cosine) for error, cosine in pairs if math.isfinite(error)]
    distance = max((error for error, _ in finite), default=None)
    same, cosine_min = distance or 0.0, None
    drift = max(DRIFT_FACTOR * same, DRIFT_PLACES_MAX)
    if not tensor.is_discrete:
        type_limit = STEPS_MAX
        if tensor.is_float:
            type_limit = FP16_MAX if half or tensor.dtype == "float16" else FP32_MAX
        same = max(type_limit, same)
        drift = DRIFT_FACTOR * same
        cosine = min((cosine for _, cosine in finite if cosine is not None), default=1.0)
        cosine_min = min(DRIFT_COSINE_MIN, 1.0 - DRIFT_FACTOR * (1.0 - cosine))
    return _Limit(same=same, drift=drift, cosine_min=cosine_min, kernel_distance=distance)


def _difference(
    tensor: OutputTensor, reference: NDArray[Any], output: NDArray[Any]
) -> tuple[float, float | None]:
    """Return the error and cosine of an output against the reference, see TensorParity."""
    import numpy as np

    expected, actual = reference.astype(np.float64), output.astype(np.float64)
    if np.isfinite(actual).all() and np.isfinite(expected).all():
        error = float(np.abs(actual - expected).max())
    else:
        # Where the reference isn't a number, the output must be the same there.
        error = 0.0 if np.array_equal(expected, actual, equal_nan=True) else math.inf
    cosine = None
    if math.isfinite(error):
        # The cosine is that of the real values, without the quantised zero point.
        expected_real, actual_real = expected - tensor.zero_point, actual - tensor.zero_point
        length = float(np.linalg.norm(expected_real)) * float(np.linalg.norm(actual_real))
        if math.isfinite(length) and length > 0:
            cosine = float(np.dot(expected_real, actual_real)) / length
    if tensor.is_discrete:
        error = float(np.mean(reference != output))
    elif tensor.is_float:
        error /= float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0)) or 1.0
    return error, cosine


def _compare(
    tensors: Sequence[OutputTensor],
    limits: Sequence[_Limit],
    reference: Sequence[NDArray[Any]],
    outputs: Sequence[NDArray[Any]],
) -> list[TensorParity]:
    parities = []
    for tensor, limit, expected, actual in zip(tensors, limits, reference, outputs, strict=True):
        error, cosine = _difference(tensor, expected, actual)
        cosine_min = limit.cosine_min
        is_aligned = cosine_min is None or (cosine is not None and cosine >= cosine_min)
        verdict = ParityVerdict.WRONG
        if error <= limit.same:
            verdict = ParityVerdict.SAME
        elif error <= limit.drift and is_aligned:
            verdict = ParityVerdict.DRIFT
        parities.append(
            TensorParity(
                tensor=tensor,
                verdict=verdict,
                error=error,
                threshold=limit.same,
                kernel_distance=limit.kernel_distance,
                cosine=cosine,
            )
        )
    return parities


def _is_blind(reference: Sequence[NDArray[Any]], contrast: Sequence[TensorParity]) -> bool:
    """Whether the comparison shows nothing, because other inputs give the same outputs."""
    import numpy as np

    for expected, tensor_parity in zip(reference, contrast, strict=True):
        if not np.isfinite(expected.astype(np.float64)).all():
            continue
        is_flat = expected.size > 1 and bool(np.all(expected == expected.flat[0]))
        if tensor_parity.verdict is ParityVerdict.WRONG and not is_flat:
            return False
    return True


def _sentence(worst: TensorParity, nearest: Kernels) -> str:
    error = f"{worst.error:.3g}"
    distance = f"{error} of the places" if worst.tensor.is_discrete else counted(error, "step")
    if worst.tensor.is_float:
        distance = f"{error} of the largest magnitude"
    distance_text = f"at most {distance} from {_KERNEL_WORDS[nearest]}"
    parts = [f"{worst.tensor.name}: {distance_text} (threshold {worst.threshold:.3g})"]
    if worst.kernel_distance is not None:
        parts.append(f"correct kernels differ by up to {worst.kernel_distance:.3g}")
    if worst.cosine is not None:
        parts.append(f"cosine {worst.cosine:.6f}")
    return ", ".join(parts)


_FAMILY: Final = FlagFamily.BENCHMARK_MODEL

#: Flags of a plan that set the inputs or outputs.
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


def can_be_checked(case: Case, program: Program) -> bool:
    """Whether a case's program writes outputs, and its kernels aren't the reference's."""
    return (
        not PASS.unsupported_reason(program, PlanTerms())
        and not DELEGATES[case.delegate].is_builtin
        and not OWN_INPUTS.intersection(name for name, _ in case.flags)
    )


def _input_flags(request: InvocationRequest) -> Mapping[str, str]:
    """Return the flags that give a model its inputs, with as few inferences as possible."""
    inputs = request.inputs
    return {
        **ONE_INFERENCE,
        "input_layer": ",".join(item.name for item in inputs),
        "input_layer_shape": ":".join(",".join(map(str, item.shape)) for item in inputs),
        # A single colon ends the name.
        "input_layer_value_files": ",".join(
            f"{item.name.replace(':', '::')}:{item.path}" for item in inputs
        ),
    }


def _run_text(run: RunRecord) -> str:
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
    needs=lambda program, terms: (
        "" if program.is_benchmark_model else "writes no outputs that could be compared"
    ),
    read=lambda tool, report, raw, case: with_parity(report, raw, case),
    findings=lambda report, case, facts: parity_findings(report),
    run_text=_run_text,
)
