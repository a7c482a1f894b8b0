"""How long a look inside a model of 100 MB takes, against TensorFlow Lite's own Analyzer in the
same run.

Both look at the same file, in turns, each in a process of its own. Importing is timed apart from
looking: the Analyzer needs all of TensorFlow for its look. What they tell differs: the Analyzer
prints every tensor and operator and a GPU check, benchfarm counts and walks the quantisation.

    python benchmarks/model_inspect.py [MEGABYTES [ROUNDS]]
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

OURS = """
import json, sys, time
begun = time.perf_counter()
from pathlib import Path
from orchestrator.models.inspect import inspect_model
import ai_edge_litert.schema_py_generated
imported = time.perf_counter()
path = Path(sys.argv[1])
facts = inspect_model(path)
ended = time.perf_counter()
assert facts.operators == {"FULLY_CONNECTED": 25}
"""
ANALYZER = """
import contextlib, io, json, sys, time
begun = time.perf_counter()
import tensorflow as tf
imported = time.perf_counter()
shown = io.StringIO()
with contextlib.redirect_stdout(shown):
    tf.lite.experimental.Analyzer.analyze(model_path=sys.argv[1], gpu_compatibility=True)
ended = time.perf_counter()
assert shown.getvalue().count("FULLY_CONNECTED") >= 25, shown.getvalue()
"""
#: VmHWM restarts with a program; the operating system's maxrss would be that of whoever started it.
TOLD = """
high = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print("RESULT" + json.dumps({
    "import_s": imported - begun, "look_s": ended - imported,
    "memory_mb": int(high.split()[1]) / 1e3,
}))
"""


def large_model(path: Path, megabytes: int) -> None:
    """Write a chain of fully connected layers whose float32 weights are that large together."""
    import flatbuffers
    import numpy as np
    from ai_edge_litert import schema_py_generated as schema

    layers, width = 25, int((megabytes * 1e6 / 4 / 25) ** 0.5)
    model, graph, code = schema.ModelT(), schema.SubGraphT(), schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.FULLY_CONNECTED
    model.version, model.operatorCodes, model.subgraphs = 3, [code], [graph]
    model.buffers, graph.tensors, graph.operators = [schema.BufferT()], [], []

    def tensor(shape: list[int], buffer: int) -> int:
        made = schema.TensorT()
        made.shape, made.buffer, made.name = shape, buffer, f"t{len(graph.tensors)}"
        graph.tensors.append(made)
        return len(graph.tensors) - 1

    at = tensor([1, width], 0)
    graph.inputs = [at]
    for number in range(layers):
        buffer, operator, options = (
            schema.BufferT(),
            schema.OperatorT(),
            schema.FullyConnectedOptionsT(),
        )
        buffer.data = np.full(width * width * 4, number, np.uint8)
        model.buffers.append(buffer)
        operator.builtinOptionsType, operator.builtinOptions = (
            schema.BuiltinOptions.FullyConnectedOptions,
            options,
        )
        operator.inputs = [at, tensor([width, width], len(model.buffers) - 1), -1]
        at = tensor([1, width], 0)
        operator.outputs = [at]
        graph.operators.append(operator)
    graph.outputs = [at]
    builder = flatbuffers.Builder(megabytes * 1_100_000)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    path.write_bytes(bytes(builder.Output()))


def measured(code: str, path: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", code + TOLD, str(path)], capture_output=True, text=True, check=True
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    return dict(json.loads(line.removeprefix("RESULT")))


def main(megabytes: int = 100, rounds: int = 3) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.tflite"
        large_model(path, megabytes)
        results: dict[str, list[dict[str, float]]] = {"benchfarm": [], "Analyzer": []}
        for _ in range(rounds):
            for name, code in (("benchfarm", OURS), ("Analyzer", ANALYZER)):
                results[name].append(measured(code, path))
        print(f"{path.stat().st_size / 1e6:.0f} MB, median of {rounds} in turns")
        for name, figures in results.items():
            import_s, look_s, memory_mb = (
                statistics.median(figure[what] for figure in figures)
                for what in ("import_s", "look_s", "memory_mb")
            )
            print(
                f"{name:10} look {look_s * 1e3:8.1f} ms   import {import_s:5.2f} s   memory {memory_mb:6.0f} MB"
            )
        ours, theirs = (
            statistics.median(f["look_s"] for f in results[name])
            for name in ("benchfarm", "Analyzer")
        )
        whole = [
            statistics.median(f["import_s"] + f["look_s"] for f in results[name])
            for name in ("benchfarm", "Analyzer")
        ]
        print(
            f"the Analyzer's time over benchfarm's: look {theirs / ours:.2f}, with import {whole[1] / whole[0]:.1f}"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
