"""Fake binaries for the programs of other runtimes: their words, streams and exit codes around
times of one model.

A model costs its bytes' multiply-adds; what it computes isn't computed. A GPU that the phone lacks
is replaced or refused as each program does it.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Mapping
from typing import Final

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.programs.process import Pace, announce, read_whole

#: Two bytes a weight, one multiply-add each; and so much at the least.
_MACS_A_BYTE: Final = 0.5
_LEAST_US: Final = 80.0


def run_other(call: Invocation, version: str, *, program: str) -> int:
    """Run one of the programs, by its name; return its exit code."""
    announce(call, "start")
    code = _PROGRAMS[program](_Runtime(call, version), list(call.args))
    announce(call, "results")
    return code


class _Runtime:
    """A process's streams, and the time that a model takes."""

    def __init__(self, call: Invocation, version: str) -> None:
        self.call = call
        self.has_gpu = call.system.hardware.profile.gpu is not None
        self._version = version

    def out(self, text: str) -> None:
        self.call.stdout.write(f"{text}\n".encode())

    def err(self, text: str) -> None:
        self.call.stderr.write(f"{text}\n".encode())

    def log(self, text: str) -> None:
        self.call.system.logs.log(
            "I", "ExecuTorch", text, pid=self.call.process.pid, uid=self.call.uid
        )

    def model(self, path: str) -> bytes:
        """Return a file of the phone; empty where there is none."""
        try:
            return read_whole(self.call, path)
        except PhoneFileError:
            return b""

    def times_us(
        self, model_bytes: int, *, count: int, work: float, threads: int, on_gpu: bool = False
    ) -> list[float]:
        """Work ``count`` times, ``work`` models' multiply-adds each, as fast as the phone is;
        return each time.
        """
        announce(self.call, "run")
        pace = Pace(self.call, self._version, threads=threads, on_gpu=on_gpu and self.has_gpu)
        macs = model_bytes * _MACS_A_BYTE * work
        return pace.times_us(
            count, lambda speed: _LEAST_US + macs / speed.f32_gmacs / 1e3 + speed.op_overhead_us
        )


def _options(words: list[str], bare: frozenset[str] = frozenset()) -> dict[str, str]:
    found: dict[str, str] = {}
    while words:
        word = words.pop(0)
        if word.startswith("--") and "=" in word:
            name, _, value = word.partition("=")
            found[name] = value
        elif word in bare or not word.startswith("-"):
            found[word if word in bare else "model"] = word
        else:
            found[word] = words.pop(0) if words else ""
    return found


def _mean(times: list[float]) -> float:
    return sum(times) / len(times)


def _llama_bench(runtime: _Runtime, words: list[str]) -> int:
    given = _options(words, frozenset({"-v"}))
    path, layers = given["-m"], int(given.get("-ngl", "99"))
    model = runtime.model(path)
    runtime.err("load_backend: loaded CPU backend from libggml-cpu.so")
    if not model.startswith(b"GGUF"):
        runtime.err(
            f"llama_model_load: error loading model: llama_model_loader: failed to load model from {path}"
        )
        runtime.err(f"main: error: failed to load model '{path}'")
        return 1
    on_gpu = runtime.has_gpu and layers > 0
    if on_gpu and "-v" in given:
        runtime.err("load_tensors: offloaded 3/3 layers to GPU")
    prompt, answer, threads = int(given["-p"]), int(given["-n"]), int(given["-t"])
    # A prompt's tokens are worked on together.
    work = prompt * 0.2 + answer
    times = runtime.times_us(
        len(model), count=int(given["-r"]), work=work, threads=threads, on_gpu=on_gpu
    )
    samples = [round(each * 1000) for each in times]
    tokens = prompt + answer
    row = {
        "build_commit": "virtual",
        "build_number": 1,
        "cpu_info": "virtual",
        "gpu_info": "GPU" if on_gpu else "",
        "backends": "OpenCL,CPU" if runtime.has_gpu else "CPU",
        "model_filename": path,
        "model_type": "virtual",
        "model_size": len(model),
        "n_threads": threads,
        "n_gpu_layers": layers,
        "n_prompt": prompt,
        "n_gen": answer,
        "n_depth": int(given.get("-d", "0")),
        "avg_ns": round(_mean(times) * 1000),
        "stddev_ns": 0,
        "avg_ts": tokens / _mean(times) * 1e6,
        "stddev_ts": 0.0,
        "samples_ns": samples,
        "samples_ts": [tokens / each * 1e6 for each in times],
    }
    runtime.out(json.dumps(row))
    return 0


def _executor_runner(runtime: _Runtime, words: list[str]) -> int:
    given = _options(words)
    path = given["--model_path"]
    model = runtime.model(path)
    if model[4:6] != b"ET":
        runtime.log(f"Failed to parse model file {path}: 0x23")
        return 1
    runtime.log(f"Model file {path} is loaded.")
    runtime.log("Using method forward")
    count = int(given.get("--num_executions", "1"))
    times = runtime.times_us(
        len(model), count=count, work=1.0, threads=max(1, int(given.get("--cpu_threads", "1")))
    )
    for number, each in enumerate(times, start=1):
        runtime.log(f"Iteration {number} of {count}: {each / 1e3:.6f} ms")
    runtime.log(f"Model executed successfully {count} time(s) in {sum(times) / 1e3:.6f} ms.")
    runtime.log("1 outputs: ")
    return 0


def _benchncnn(runtime: _Runtime, words: list[str]) -> int:
    named = dict(word.split("=", 1) for word in words if "=" in word)
    loops, threads, powersave, gpu = (int(word) for word in words[:4])
    if gpu >= 0 and runtime.has_gpu:
        runtime.err("[0 Adreno (TM) 000]  queueC=0[3]  queueG=0[3]  queueT=0[3]")
    for name, value in (
        ("loop_count", loops),
        ("num_threads", threads),
        ("powersave", powersave),
        ("gpu_device", gpu),
    ):
        runtime.err(f"{name} = {value}")
    runtime.err("cooling_down = 0")
    model = runtime.model(named["param"])
    if not model.startswith(b"7767517"):
        runtime.err(f"fopen {named['param']} failed")
        return 0
    on_gpu = gpu >= 0 and runtime.has_gpu
    times = runtime.times_us(len(model), count=loops, work=1.0, threads=threads, on_gpu=on_gpu)
    low, high, mean = (each / 1e3 for each in (min(times), max(times), _mean(times)))
    runtime.err(f"{named['param']:>20}  min = {low:7.2f}  max = {high:7.2f}  avg = {mean:7.2f}")
    return 0


def _mnn(runtime: _Runtime, words: list[str]) -> int:
    folder, loops, warmup, forward, threads, precision = words[0], *map(int, words[1:6])
    on_gpu = forward != 0 and runtime.has_gpu
    runtime.out("MNN benchmark")
    kind = {0: "CPU", 3: "OpenCL", 7: "Vulkan"}.get(forward, "N/A")
    runtime.out(
        f"Forward type: {kind} thread={threads} precision={precision} sparsity=0 sparseBlockOC=1"
    )
    runtime.out(f"--------> Benchmarking... loop = {loops}, warmup = {warmup}")
    if forward and not on_gpu:
        runtime.out(f"Can't Find type={forward} backend, use 0 instead")
    names = [name for name in runtime.call.files.list(folder) if name.endswith(".mnn")]
    for name in names:
        model = runtime.model(posixpath.join(folder, name))
        if not _is_flatbuffer(model):
            runtime.err("Buffer is not a valid model")
            continue
        times = runtime.times_us(len(model), count=loops, work=1.0, threads=threads, on_gpu=on_gpu)
        high, low, mean = (each / 1e3 for each in (max(times), min(times), _mean(times)))
        runtime.out(
            f"[ - ] {name:<24}    max = {high:8.3f} ms  min = {low:8.3f} ms  avg = {mean:8.3f} ms"
        )
    return 0


def _is_flatbuffer(model: bytes) -> bool:
    """Whether the first word leads to a table whose list of fields lies within the file."""
    root = int.from_bytes(model[:4], "little")
    table = root - int.from_bytes(model[root : root + 4], "little", signed=True)
    return 4 <= root <= len(model) - 4 and 0 < table <= len(model) - 4 and model[table] >= 4


def _is_onnx(model: bytes) -> bool:
    """Whether the bytes are whole protobuf fields, the seventh (the graph) among them."""
    at, numbers = 0, set()
    try:
        while at < len(model):
            number, kind = model[at] >> 3, model[at] & 7
            at += 1 + (model[at] >= 0x80)
            length = shift = 0
            while kind in {0, 2}:
                length |= (model[at] & 0x7F) << shift
                at, shift = at + 1, shift + 7
                if model[at - 1] < 0x80:
                    break
            at += {0: 0, 1: 8, 2: length, 5: 4}[kind]
            numbers.add(number)
    except (IndexError, KeyError):
        return False
    return at == len(model) and 7 in numbers


def _onnxruntime(runtime: _Runtime, words: list[str]) -> int:
    given = _options(words, frozenset({"-I", "-s"}))
    model = runtime.model(given["model"])
    threads, count, provider = int(given["-x"]), int(given["-r"]), given["-e"]
    if not model:
        runtime.err(
            f"Load model from {given['model']} failed:Load model {given['model']} failed. File doesn't exist"
        )
        return 255
    if not _is_onnx(model):
        runtime.err(f"Load model from {given['model']} failed:Protobuf parsing failed.")
        return 255
    if provider != "cpu" and "-C" in given and provider != "xnnpack":
        runtime.err(
            "This session contains graph nodes that are assigned to the default CPU EP, but fallback to CPU EP "
            "has been explicitly disabled by the user (session.disable_cpu_ep_fallback)."
        )
        return 255
    runtime.out(f"Setting intra_op_num_threads to {threads}")
    first, *times = runtime.times_us(len(model), count=count + 1, work=1.0, threads=threads)
    ordered = sorted(times)
    runtime.out("Session creation time cost: 0.0102016 s")
    runtime.out(f"First inference time cost: {round(first / 1e3)} ms")
    runtime.out(f"Total inference time cost: {sum(times) / 1e6:.6g} s")
    runtime.out(f"Total inference requests: {count}")
    runtime.out(f"Average inference time cost total: {_mean(times) / 1e3:.6f} ms")
    runtime.out(f"Number of inferences per second: {1e6 / _mean(times):.6g} ")
    runtime.out("Avg CPU usage: 11 %\nPeak working set size: 36696064 bytes\nAvg CPU usage:11")
    runtime.out(f"Peak working set size:36696064\nRuns:{count}")
    runtime.out(f"Min Latency: {ordered[0] / 1e6:.6g} s\nMax Latency: {ordered[-1] / 1e6:.6g} s")
    for name, share in (("50", 0.5), ("90", 0.9), ("95", 0.95), ("99", 0.99), ("999", 0.999)):
        runtime.out(f"P{name} Latency: {ordered[min(count - 1, int(share * count))] / 1e6:.6g} s")
    return 0


_PROGRAMS: Final[Mapping[str, Callable[[_Runtime, list[str]], int]]] = {
    "llama-bench": _llama_bench,
    "executor_runner": _executor_runner,
    "benchncnn": _benchncnn,
    "benchmark.out": _mnn,
    "onnxruntime_perf_test": _onnxruntime,
}
NAMES: Final = frozenset(_PROGRAMS)
