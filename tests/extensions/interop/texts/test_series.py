"""A run that is like an earlier one is read at once, and gives what reading it line by line gives."""

import random

import pytest

from orchestrator.extensions.interop.texts.output import parse_text

HEAD = """\
STARTING!
Log parameter values verbosely: [0]
Num threads: [{threads}]
Graph: [/data/local/tmp/{model}.tflite]
Use gpu: [{gpu}]
Loaded model /data/local/tmp/{model}.tflite
"""
#: What may follow, with any figures.
MIDDLES = (
    "",
    "INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n",
    "Explicitly applied GPU delegate, and the model graph will be completely executed by the delegate.\n",
    "INFO: Replacing {nodes} out of 31 node(s) with delegate (TfLiteGpuDelegateV2) node, yielding 1 partitions.\n",
    "The input model file size (MB): {size}\n",
    "GPU acceleration is unsupported on this platform.\nFailed to apply GPU delegate.\nBenchmarking failed.\n",
)
RUNNING = "Running benchmark for at least {least} iterations and at least 1 seconds but terminate if exceeding 150 seconds.\n"
STATS = "count={count} first={first} curr={first} min={low} max={high} avg={mean} std=1"
PERCENTILES = " p5={low} median={median} p95={p95}"
RESULT = "Inference timings in us: Init: {init}, First inference: {first}, Warmup (avg): {mean}, Inference (avg): {told}\n"
MEMORY = "Memory footprint delta from the start of the tool (MB): init={memory} overall={overall}\n"
#: What may stand between two runs.
BETWEEN = (
    "",
    "",
    "",
    "",
    "\n",
    "## Pixel 6\n",
    "$ ./benchmark_model --graph=b.tflite --use_gpu=true\n",
    "Killed\n",
    "=====\n",
)


def a_run(rng: random.Random) -> str:
    """One of the forms that runs have, most often a plain one; some of its figures can't be right."""
    low = rng.choice([4, 400.5, 71_000])
    mean = float(f"{low * rng.uniform(1, 2):.6g}")
    high = rng.choice([mean * 3, mean * 3, mean * 3, low])
    values = {
        "threads": rng.choice([1, 4]),
        "model": rng.choice(
            ["a", "mobilenet_v1", f"m{rng.randrange(10)}", "benchmark_model", "with blank"]
        ),
        "gpu": rng.choice([0, 0, 0, 1]),
        "nodes": rng.choice([31, 30]),
        "size": round(rng.uniform(0.1, 30), 3),
        "least": rng.choice([50, 50, 1]),
        "count": rng.choice([50, 51, 1000, 1000, 0]),
        "first": rng.choice([5, 800, 0]),
        "low": low,
        "high": f"{high:.6g}",
        "mean": f"{mean:.6g}",
        "median": f"{mean:.6g}",
        "p95": rng.choice([f"{mean * 2:.6g}"] * 4 + [f"{mean:.2g}"[0]]),
        "init": rng.choice([1200, 19_505, 1_451_507]),
        "told": rng.choice([f"{mean:.6g}"] * 8 + [f"{mean:.6g}"[:-1], "0", "nan"]),
        "memory": rng.choice([7.5, 12.0625, 7.1]),
        "overall": rng.choice([9.25, 14.0039, 3.5]),
    }
    has_percentiles = rng.random() < 0.3
    stats = STATS + (PERCENTILES if has_percentiles else "") + "\n"
    text = HEAD + rng.choice(MIDDLES) + "Initialized session in {init}ms.\n"
    text += (RUNNING if rng.random() < 0.5 else "") + stats
    text += rng.choice(["", RUNNING + stats, RUNNING + stats])
    text += RESULT if rng.random() < 0.95 else ""
    text += rng.choice(["", MEMORY])
    text = text.format(**values)
    severity = rng.choice(["", "INFO: "])
    lines = [
        line if line.startswith("INFO: ") else severity + line
        for line in text.splitlines(keepends=True)
    ]
    if rng.random() < 0.05:
        lines.pop(rng.randrange(1, len(lines)))
    return "".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_runs_in_a_row_are_read_as_line_by_line(seed: int) -> None:
    rng = random.Random(seed)
    kinds = [a_run(rng) for _ in range(12)]
    text = "".join(
        rng.choice([kinds[0], rng.choice(kinds), a_run(rng)]) + rng.choice(BETWEEN)
        for _ in range(600)
    )
    # A first line that ends in a blank says the same, and no form has it.
    line_by_line = text.replace("STARTING!\n", "STARTING! \n")
    assert parse_text(text) == parse_text(line_by_line)
