"""litert_lm_advanced_main: a prompt read and an answer written, a few times on one engine, with
output on standard error.

A token of the answer costs reading the weights once, a prompt's tokens share that and cost their
multiply-adds; both run at the phone's speed at the time, so that a phone which heats up slows down
within a process. The model's results aren't computed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.latency import Speed
from benchfarm_virtual.programs.flags import FLAGS, shown_default
from benchfarm_virtual.programs.process import (
    Pace,
    announce,
    file_size,
    find_library,
    linked_folders,
    read_content,
    write_content,
)
from benchfarm_virtual.protos import message
from benchfarm_virtual.samples import LANGUAGE_MODEL_LIBRARIES

#: Flags that it has, with their defaults; any other ends it at once.
_FLAGS: Final = {flag.name: shown_default(flag) for flag in FLAGS["litert_lm"]}
#: Flags that builds of 2025 lack; a fake binary's version has its year.
_FLAGS_OF_2026: Final = frozenset(
    {
        "metric_proto_file_path",
        "boost_performance",
        "conv_type",
        "enable_ynnpack",
        *(name for name in _FLAGS if name.endswith("_npu")),
    }
)
_TRUE: Final = frozenset({"true", "1"})
#: How much longer floats take than integers.
_FLOAT: Final = 2.0
_DEFAULT_THREADS: Final = 4
#: Weights of four bits: two parameters, and two multiply-adds a token, in each byte.
_MACS_A_BYTE: Final = 2.0
#: A token's time beside the model: sampling, and the runtime's own work.
_TOKEN_US: Final = 150.0
#: A prompt's tokens are processed together, at a better rate than single ones, in steps of at most
#: this number.
_PROMPT_STEP: Final = 128
#: An engine's init at this rate, and its least time.
_LOAD_BYTES_PER_US: Final = 900.0
_INIT_US: Final = 9000.0
#: Of it where a cache is there.
_WARM: Final = 0.5
#: A core that waits for the weights of each token takes less than one that multiplies.
DECODING_SHARE: Final = 0.7
_RULE: Final = "-" * 50
_ACCELERATOR, _SAMPLER = LANGUAGE_MODEL_LIBRARIES


def run_language_model(call: Invocation, version: str) -> int:
    """Run it; return its exit code."""
    announce(call, "start")
    flags = dict(_FLAGS)
    for argument in call.launch.argv[1:]:
        match = re.fullmatch(r"--(\w+)(?:=(.*))?", argument)
        if (
            match is None
            or match[1] not in flags
            or (version.startswith("2025") and match[1] in _FLAGS_OF_2026)
        ):
            _say(
                call,
                f"ERROR: Unknown command line flag '{argument.lstrip('-').partition('=')[0]}'",
            )
            return 1
        flags[match[1]] = "true" if match[2] is None else match[2]
    try:
        model = read_content(call, flags["model_path"])
    except PhoneFileError:
        return _failed(call, f"NOT_FOUND: Failed to open: {flags['model_path']}", 5)
    if not model.startswith(b"LITERTLM"):
        return _failed(
            call,
            "INVALID_ARGUMENT: Invalid magic number or failed to read: " + repr(model[:8]),
            3,
        )
    return _Engine(call, version, flags, len(model)).run()


@dataclass(slots=True)
class _Turn:
    tokens: int
    time_us: float


class _Engine:
    """One engine and its conversations."""

    def __init__(
        self, call: Invocation, version: str, flags: dict[str, str], model_bytes: int
    ) -> None:
        self._call = call
        self._flags = flags
        self._model_bytes = model_bytes
        self._is_gpu = flags["backend"] == "gpu"
        threads = int(flags["num_cpu_threads"]) or _DEFAULT_THREADS
        self._pace = Pace(call, version, threads=threads, on_gpu=self._is_gpu)

    def run(self) -> int:
        """Run it; return the exit code."""
        call, flags = self._call, self._flags
        announce(call, "init")
        has_gpu = call.system.hardware.profile.gpu is not None and self._has(_ACCELERATOR)
        if flags["backend"] == "npu" or (self._is_gpu and not has_gpu):
            return _failed(call, "UNKNOWN: Failed to create engine: No adapters found", 2)
        self._say_delegates()
        init_us = (
            _INIT_US + self._model_bytes / _LOAD_BYTES_PER_US
        ) * self._pace.noise.process_factor
        if flags["disable_cache"] != "true":
            # Compiled kernels are stored under the model's name, for the next engine.
            name = flags["model_path"].rpartition("/")[2]
            folder = flags["cache_dir"] or flags["model_path"].rpartition("/")[0]
            cache = f"{folder}/{name}_{self._model_bytes}.xnnpack_cache"
            if folder != ":memory" and file_size(call, cache) is None:
                write_content(call, cache, b"\1" * min(self._model_bytes, 1 << 16))
            else:
                init_us *= _WARM
        call.sleep(init_us / 1e6)
        prefill, decode = (
            int(flags["benchmark_prefill_tokens"]),
            int(flags["benchmark_decode_tokens"]),
        )
        context = int(flags["max_num_tokens"]) or prefill + decode
        if prefill >= context:
            reason = "INVALID_ARGUMENT: Input token ids are too long. Exceeding the maximum number of tokens allowed"
            return _failed(call, f"{reason}: {prefill} >= {context}", 3)
        metrics = b""
        for _ in range(int(flags["num_iterations"])):
            announce(call, "run")
            turns = (
                self._turn(prefill, is_prompt=True),
                self._turn(min(decode, context - prefill), is_prompt=False),
            )
            self._say_info(init_us, *turns)
            metrics += message({1: _metrics(init_us, *turns)})
        announce(call, "results")
        if flags["report_peak_memory_footprint"] == "true":
            _say(call, f"Peak system ram usage: {1.4 * self._model_bytes / 2**20 + 90:.2f}MB.")
            _say(call, f"Peak private footprint: {0.4 * self._model_bytes / 2**20 + 60:.2f}MB.")
        if flags["metric_proto_file_path"]:
            write_content(call, flags["metric_proto_file_path"], metrics)
        return 0

    def _has(self, library: str) -> bool:
        """Return whether a library is found."""
        return find_library(self._call, library, linked_folders(self._call)) is not None

    def _say_delegates(self) -> None:
        name = "LITERT_CL" if self._is_gpu else "TfLiteXNNPackDelegate"
        delegated, total = (87, 87) if self._is_gpu else (80, 87)
        if self._is_gpu:
            _say(
                self._call,
                "INFO: Created OpenCL device from provided device id and platform id.",
            )
        else:
            _say(self._call, "INFO: Created TensorFlow Lite XNNPACK delegate for CPU.")
        for number, signature in enumerate(("decode", f"prefill_{_PROMPT_STEP}")):
            _say(
                self._call,
                f"VERBOSE: Replacing {delegated} out of {total} node(s) with delegate ({name}) node, yielding "
                f"{1 + total - delegated} partitions for subgraph {number} ({signature}).",
            )
        if self._is_gpu and not self._has(_SAMPLER):
            _say(self._call, "WARNING: GPU sampler unavailable. Falling back to CPU sampling.")

    def _turn(self, tokens: int, *, is_prompt: bool) -> _Turn:
        """Process ``tokens`` tokens at the phone's speed."""
        share = 1.0 if is_prompt else DECODING_SHARE
        step = self._prompt_us if is_prompt else self._answer_us
        return _Turn(tokens, sum(self._pace.times_us(tokens, step, cpu_share=share)))

    def _prompt_us(self, speed: Speed) -> float:
        """Return the time of a token of the prompt."""
        moved_us, computed_us = self._costs_us(speed)
        return computed_us + moved_us / _PROMPT_STEP + speed.op_overhead_us

    def _answer_us(self, speed: Speed) -> float:
        """Return the time of a token of the answer."""
        sampled_us = _TOKEN_US * (3.0 if self._is_gpu and not self._has(_SAMPLER) else 1.0)
        return max(self._costs_us(speed)) + sampled_us + speed.op_overhead_us

    def _costs_us(self, speed: Speed) -> tuple[float, float]:
        moved_us = self._model_bytes / speed.memory_gbps / 1e3
        is_float = self._flags["force_f32"] in _TRUE or self._flags["conv_type"] == "float"
        macs = self._model_bytes * _MACS_A_BYTE * (_FLOAT if is_float else 1.0)
        return moved_us, macs / speed.int8_gmacs / 1e3

    def _say_info(self, init_us: float, prefill: _Turn, decode: _Turn) -> None:
        lines = [
            "BenchmarkInfo:",
            "  Init Phases (2):",
            f"    - Init Executor: {0.98 * init_us / 1e3:.2f} ms",
            f"    - Init Total: {init_us / 1e3:.2f} ms",
            _RULE,
            f"  Time to first token: {(prefill.time_us + decode.time_us / max(1, decode.tokens)) / 1e6:.2f} s",
            _RULE,
        ]
        for name, turn in (("Prefill", prefill), ("Decode", decode)):
            lines += [
                f"  {name} Turns (Total 1 turns):",
                f"    {name} Turn 1: Processed {turn.tokens} tokens in {turn.time_us / 1e6:.9f}s duration.",
                f"      {name} Speed: {turn.tokens / turn.time_us * 1e6:.2f} tokens/sec.",
                _RULE,
            ]
        _say(self._call, "\n".join([*lines, _RULE]), source="litert_lm_lib.cc:424")


def _metrics(init_us: float, prefill: _Turn, decode: _Turn) -> bytes:
    """Return a repetition as a LitertLmMetrics; its durations are whole microseconds."""

    def phase(name: str, time_us: float) -> bytes:
        return message({1: name, 2: int(time_us)})

    def encoded(turn: _Turn) -> bytes:
        return message({1: int(turn.time_us), 2: turn.tokens})

    return message(
        {
            1: message({1: prefill.tokens, 2: decode.tokens}),
            2: [phase("Init Executor", 0.98 * init_us), phase("Init Total", init_us)],
            4: encoded(prefill),
            5: encoded(decode),
        }
    )


def _say(call: Invocation, text: str, *, source: str = "") -> None:
    header = (
        f"I0000 00:00:{call.system.time.uptime_s():.6f} {call.process.pid:7} {source}] "
        if source
        else ""
    )
    call.stderr.write(f"{header}{text}\n".encode())


def _failed(call: Invocation, status: str, code: int) -> int:
    _say(call, f"Failed to run litert_lm: {status}")
    return code
