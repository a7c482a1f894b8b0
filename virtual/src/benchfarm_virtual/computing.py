"""Computes a model's real outputs, by the LiteRT runtime of the virtual phones' host.

It runs in a process of its own: a runtime that aborts on a model ends its process. Results are
cached for the process's lifetime, by model and inputs.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_TIMEOUT_S: Final = 120.0
_KEPT: Final = 8

_guard = threading.Lock()


def computed_outputs(
    model: bytes, shapes: Sequence[Sequence[int]], inputs: Sequence[bytes]
) -> tuple[NDArray[Any], ...] | None:
    """Return a model's outputs for the raw bytes of all of its inputs.

    None when this computer can't compute them.
    """
    with _guard:  # two phones' equal requests are computed once
        return _compute(model, tuple(map(tuple, shapes)), tuple(inputs))


@lru_cache(maxsize=_KEPT)
def _compute(
    model: bytes, shapes: tuple[tuple[int, ...], ...], inputs: tuple[bytes, ...]
) -> tuple[NDArray[Any], ...] | None:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchfarm_virtual.computing"],
            input=pickle.dumps((model, shapes, inputs)),
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    outputs: tuple[NDArray[Any], ...] = pickle.loads(done.stdout)  # noqa: S301 - our own process
    return outputs


def _work() -> None:
    """Answer the one job that comes on stdin."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    model, shapes, inputs = pickle.load(sys.stdin.buffer)  # noqa: S301 - our own process
    interpreter = Interpreter(
        model_content=model,
        num_threads=1,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    for detail, shape in zip(interpreter.get_input_details(), shapes, strict=True):
        interpreter.resize_tensor_input(detail["index"], shape)
    interpreter.allocate_tensors()
    for detail, data in zip(interpreter.get_input_details(), inputs, strict=True):
        values = np.frombuffer(data, detail["dtype"]).reshape(detail["shape"])
        interpreter.set_tensor(detail["index"], values)
    interpreter.invoke()
    outputs = [interpreter.get_tensor(row["index"]) for row in interpreter.get_output_details()]
    pickle.dump(tuple(outputs), sys.stdout.buffer)


if __name__ == "__main__":
    _work()
