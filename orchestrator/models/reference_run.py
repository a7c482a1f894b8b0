"""A process of its own that computes a model's outputs with one kind of kernels: some models end
the runtime.

Its folder holds ``job.json`` with the model's path, the kernels, the inputs' shapes and the sets of
input files; it leaves the outputs of each set as ``<kernels>-<set>`` and ``done.json``, which
describes them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from orchestrator.records.verdict import Kernels


def compute(folder: Path) -> None:
    """Do the job of a folder."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    job = json.loads((folder / "job.json").read_text("utf-8"))
    # XNNPACK is the runtime's default delegate.
    resolver = {
        Kernels.BUILTIN: OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        Kernels.XNNPACK: OpResolverType.BUILTIN,
        Kernels.PLAIN: OpResolverType.BUILTIN_REF,
    }[Kernels(job["kernels"])]
    outputs: list[dict[str, Any]] = []
    for number, files in enumerate(job["sets"]):
        # A new one for each set: nothing may be left of the set before in a model that keeps a
        # state.
        interpreter = Interpreter(
            model_path=job["model"], num_threads=1, experimental_op_resolver_type=resolver
        )
        for detail, shape in zip(interpreter.get_input_details(), job["shapes"], strict=True):
            interpreter.resize_tensor_input(detail["index"], shape)
        interpreter.allocate_tensors()
        for detail, name in zip(interpreter.get_input_details(), files, strict=True):
            data = np.frombuffer(Path(name).read_bytes(), detail["dtype"])
            interpreter.set_tensor(detail["index"], data.reshape(detail["shape"]))
        interpreter.invoke()
        outputs, parts = [], []
        for detail in interpreter.get_output_details():
            values = interpreter.get_tensor(detail["index"])
            scale, zero_point = detail["quantization"]
            outputs.append(
                {
                    "name": str(detail["name"]),
                    "dtype": str(values.dtype),
                    "shape": [int(size) for size in values.shape],
                    "scale": float(scale),
                    "zero_point": int(zero_point),
                }
            )
            parts.append(np.ascontiguousarray(values).tobytes())
        draft = folder / "draft"
        draft.write_bytes(b"".join(parts))
        draft.rename(folder / f"{job['kernels']}-{number}")
    (folder / "done.json").write_text(json.dumps(outputs), "utf-8")


if __name__ == "__main__":
    compute(Path(sys.argv[1]))
