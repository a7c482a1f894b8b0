"""The numbers that a stand-in writes as a model's outputs: a fixed function of model, inputs and signature.

They aren't what the model would compute. They are the same on every phone and in every run with the CPU; a delegate
adds the rounding that its arithmetic would, and a delegate that was made to compute wrong numbers is far off.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.virtual.delegation import GPU, HEXAGON, NNAPI
from orchestrator.virtual.graph import Tensor
from orchestrator.virtual.programs.protos import Message

if TYPE_CHECKING:
    from orchestrator.virtual.programs.interpreter import Interpreter

_INTEGER_TYPES: dict[str, type[np.integer[Any]]] = {
    "INT8": np.int8, "UINT8": np.uint8, "INT16": np.int16, "UINT16": np.uint16, "INT32": np.int32, "UINT32": np.uint32,
    "INT64": np.int64, "UINT64": np.uint64,
}  # fmt: skip
_FLOAT_TYPES = {"FLOAT32": np.float32, "FLOAT16": np.float16, "FLOAT64": np.float64}
#: No output is written larger than this.
_MOST_ELEMENTS = 1 << 24


def output_values(interpreter: Interpreter) -> list[tuple[Tensor, bytes, NDArray[np.float64]]]:
    """Return each output's tensor, its raw bytes and its values."""
    digest = hashlib.sha256(interpreter.graph.sha256.encode())
    digest.update(str(interpreter.primary).encode())
    for value in interpreter.input_values:
        digest.update(value)
    for layer in interpreter.layers:
        digest.update(str(layer.shape).encode())
    seed = int.from_bytes(digest.digest()[:8], "little")
    found = []
    for index in interpreter.subgraph.outputs:
        tensor = interpreter.subgraph.tensors[index]
        elements = min(_MOST_ELEMENTS, max(1, int(tensor.elements * interpreter.scale)))
        values = np.random.default_rng([seed, index]).standard_gamma(0.5, elements)
        values = _rounded(interpreter, values / max(1e-9, float(values.sum())) * 4, seed + index)
        found.append((tensor, *_encoded(tensor, values)))
    return found


def _rounded(interpreter: Interpreter, values: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    random = np.random.default_rng([seed, 1])
    units = interpreter.units
    fp16 = GPU in units and interpreter.run.parameters.switch("gpu_precision_loss_allowed")
    if fp16 or units & {NNAPI, HEXAGON}:
        values = values * (1 + random.normal(0.0, 4e-4, len(values)))
    elif units - {""}:
        values = values * (1 + random.normal(0.0, 1e-7, len(values)))
    if units & interpreter.wrong:
        values = random.permutation(values) * -3.0
    return values


def _encoded(tensor: Tensor, values: NDArray[np.float64]) -> tuple[bytes, NDArray[np.float64]]:
    if tensor.type_name in _FLOAT_TYPES:
        return values.astype(_FLOAT_TYPES[tensor.type_name]).tobytes(), values
    if tensor.type_name == "BOOL":
        flags = values > np.median(values)
        return flags.astype(np.uint8).tobytes(), flags.astype(np.float64)
    if tensor.type_name in _INTEGER_TYPES:
        kind = _INTEGER_TYPES[tensor.type_name]
        span = np.iinfo(kind)
        scaled = np.clip(np.round(values * 255) + (-128 if tensor.type_name == "INT8" else 0), span.min, span.max)
        return scaled.astype(kind).tobytes(), scaled
    return b"", np.zeros(0)


def raw_outputs(interpreter: Interpreter) -> bytes:
    """Return what --output_filepath holds: the outputs' bytes, one after the other."""
    return b"".join(raw for _, raw, _ in output_values(interpreter))


def example_proto(interpreter: Interpreter) -> bytes:
    """Return what --output_proto_filepath holds: a tf.Example with a float list for each output."""
    features = Message()
    for tensor, _, values in output_values(interpreter):
        listed = Message().packed_floats(1, "value", tuple(float(v) for v in values))
        entry = Message().text(1, "key", tensor.name).child(2, "value", Message().child(2, "float_list", listed))
        features.child(1, "feature", entry)
    return Message().child(1, "features", features).to_bytes()
