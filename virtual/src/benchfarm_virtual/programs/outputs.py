"""A fake binary's outputs of a model: the model's results for its inputs, with the delegate's
rounding.

The host of the virtual phones computes them; every delegate adds the error of its arithmetic, and a
delegate with the fault of wrong numbers is far off. Where the model can't be computed here (custom
operators, text), the outputs are a fixed function of model, inputs and signature, alike on every
phone.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from benchfarm_virtual.computing import computed_outputs
from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.delegation import BUILTIN
from benchfarm_virtual.graph import Tensor
from benchfarm_virtual.profiles import GpuSpec
from benchfarm_virtual.programs.process import read_content

if TYPE_CHECKING:
    from benchfarm_virtual.programs.interpreter import Interpreter

#: The types that are computed and written, as numpy calls them.
_WRITTEN_TYPES: Final = re.compile(r"u?int(?:8|16|32|64)|float(?:16|32|64)|bool")
#: No output is written larger than this.
_MAX_ELEMENTS = 1 << 24
#: No model with more work than this is computed: the host has other phones to run.
_MAX_MACS: Final = 5_000_000_000
#: Relative error of single and half precision, and how many integers are one step off.
_FP32_ERROR: Final = 1e-7
_FP16_ERROR: Final = 4e-4
_CPU_STEPS: Final = 0.01
_ACCELERATOR_STEPS: Final = 0.04


def raw_outputs(interpreter: Interpreter) -> bytes:
    """Return the content of --output_filepath: the outputs' bytes, one after the other."""
    seed = _seed(interpreter)
    computed = _computed(interpreter)
    content = b""
    for position, index in enumerate(interpreter.subgraph.outputs):
        tensor = interpreter.subgraph.tensors[index]
        dtype = _dtype(tensor)
        if dtype is None:
            continue
        if computed is None:
            values = _synthetic_values(interpreter, tensor, dtype, seed, index)
        else:
            values = computed[position].astype(np.float64).reshape(-1)
        content += _encoded(dtype, _as_delegate(interpreter, dtype, values, seed + index))
    return content


def _dtype(tensor: Tensor) -> np.dtype[Any] | None:
    """Return a tensor's type as numpy has it, None for one that isn't written."""
    name = tensor.type_name.lower()
    return np.dtype(name) if _WRITTEN_TYPES.fullmatch(name) else None


def _is_integer(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iu"


def _seed(interpreter: Interpreter) -> int:
    digest = hashlib.sha256(interpreter.graph.sha256.encode())
    for value in interpreter.input_values:
        digest.update(value)
    for layer in interpreter.layers:
        digest.update(str(layer.shape).encode())
    return int.from_bytes(digest.digest()[:8], "little")


def _computed(interpreter: Interpreter) -> tuple[NDArray[Any], ...] | None:
    """Return the model's results; None when they can't be computed here."""
    subgraph, layers = interpreter.subgraph, interpreter.layers
    macs = sum(subgraph.macs(operator) for operator in subgraph.operators)
    tensors = [subgraph.tensors[index] for index in (*subgraph.inputs, *subgraph.outputs)]
    if macs > _MAX_MACS or None in map(_dtype, tensors):
        return None
    shapes = [
        layers[position].shape
        if position < len(layers)
        else tuple(abs(n) for n in subgraph.tensors[index].shape)
        for position, index in enumerate(subgraph.inputs)
    ]
    if len(interpreter.input_values) != len(shapes):
        return None  # the program takes random values of its own
    try:
        model = read_content(interpreter.run.call, interpreter.run.parameters.text("graph"))
    except PhoneFileError:
        return None
    computed = computed_outputs(model, shapes, interpreter.input_values)
    return computed if computed is not None and len(computed) == len(subgraph.outputs) else None


def _synthetic_values(
    interpreter: Interpreter, tensor: Tensor, dtype: np.dtype[Any], seed: int, index: int
) -> NDArray[np.float64]:
    elements = min(_MAX_ELEMENTS, max(1, tensor.elements))
    values = np.random.default_rng([seed, index]).random(elements)
    return values * 100 if _is_integer(dtype) else values


def _as_delegate(
    interpreter: Interpreter, dtype: np.dtype[Any], values: NDArray[np.float64], seed: int
) -> NDArray[np.float64]:
    """Return the values with the error of the arithmetic that computed them."""
    random = np.random.default_rng([seed, 1])
    units, flags = interpreter.units, interpreter.run.parameters
    if _is_integer(dtype):
        share = _ACCELERATOR_STEPS if interpreter.used else _CPU_STEPS if units - {BUILTIN} else 0.0
        off = random.random(len(values)) < share
        values = values + np.where(off, random.choice([-1.0, 1.0], len(values)), 0.0)
    elif units - {BUILTIN}:
        half = flags.switch("xnnpack_force_fp16") or flags.switch("allow_fp16")
        for device in interpreter.used:
            half |= not isinstance(device, GpuSpec) or flags.switch("gpu_precision_loss_allowed")
        values = values * (
            1 + random.normal(0.0, _FP16_ERROR if half else _FP32_ERROR, len(values))
        )
    if units & interpreter.wrong:
        values = _wrong(dtype, random.permutation(values))
    return values


def _wrong(dtype: np.dtype[Any], values: NDArray[np.float64]) -> NDArray[np.float64]:
    if not _is_integer(dtype):
        return values * -3.0
    return float(values.max()) + float(values.min()) - values


def _encoded(dtype: np.dtype[Any], values: NDArray[np.float64]) -> bytes:
    if dtype == np.bool_:
        values = (values > 0.5).astype(np.float64)
    elif _is_integer(dtype):
        span = np.iinfo(dtype)
        values = np.clip(np.round(values), span.min, span.max)
    return values.astype(dtype).tobytes()
