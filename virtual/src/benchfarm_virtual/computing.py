"""What a model really computes, by the LiteRT runtime of the computer that the virtual phones live
on.

It runs in a process of its own: a runtime that gives up on a model ends its process. Results are
kept for as long as the lab lives, by model and inputs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_TIMEOUT_S: Final = 120.0
_KEPT: Final = 8
_JOB: Final = "job.json"

_guard = threading.Lock()


def computed_outputs(
    model: bytes, shapes: Sequence[Sequence[int]], inputs: Sequence[bytes]
) -> tuple[NDArray[Any], ...] | None:
    """Return a model's outputs for the raw bytes of all of its inputs.

    None when this computer can't compute them.
    """
    with _guard:  # what two phones ask for is computed once
        return _compute(model, tuple(map(tuple, shapes)), tuple(inputs))


@lru_cache(maxsize=_KEPT)
def _compute(
    model: bytes, shapes: tuple[tuple[int, ...], ...], inputs: tuple[bytes, ...]
) -> tuple[NDArray[Any], ...] | None:
    with tempfile.TemporaryDirectory(prefix="benchfarm-virtual-") as name:
        folder = Path(name)
        (folder / "model.tflite").write_bytes(model)
        for index, data in enumerate(inputs):
            (folder / f"input-{index}").write_bytes(data)
        (folder / _JOB).write_text(json.dumps(shapes), "utf-8")
        command = [sys.executable, "-m", "benchfarm_virtual.computing", str(folder)]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode != 0:
            return None
        found = sorted(
            folder.glob("output-*.npy"), key=lambda path: int(path.stem.removeprefix("output-"))
        )
        return tuple(np.load(path, allow_pickle=False) for path in found)


def _work(folder: Path) -> None:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_path=str(folder / "model.tflite"),
        num_threads=1,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    for detail, shape in zip(
        interpreter.get_input_details(), json.loads((folder / _JOB).read_text("utf-8")), strict=True
    ):
        interpreter.resize_tensor_input(detail["index"], shape)
    interpreter.allocate_tensors()
    for index, detail in enumerate(interpreter.get_input_details()):
        data = np.frombuffer((folder / f"input-{index}").read_bytes(), detail["dtype"])
        interpreter.set_tensor(detail["index"], data.reshape(detail["shape"]))
    interpreter.invoke()
    for index, detail in enumerate(interpreter.get_output_details()):
        np.save(
            folder / f"output-{index}.npy",
            interpreter.get_tensor(detail["index"]),
            allow_pickle=False,
        )


if __name__ == "__main__":
    _work(Path(sys.argv[1]))
