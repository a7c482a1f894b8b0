"""benchmark_model and benchmark_model_plus_flex from a shell, the benchmark app, and
benchmark_model_performance_options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from benchfarm_virtual.contract import ProcessContext
from benchfarm_virtual.programs.benchmark import BenchmarkRun
from benchfarm_virtual.programs.flags import (
    ANDROID_FLAGS,
    FLAGS,
    Flag,
    FlagError,
    FlagValue,
    Parameters,
    parse_flags,
    usage,
)
from benchfarm_virtual.programs.process import (
    Bench,
    BenchmarkFailedError,
    LogTranscript,
    ProcessOnce,
    StreamTranscript,
    Transcript,
    announce,
    pause,
)
from benchfarm_virtual.programs.run_loop import Stat


class NativeProgram:
    """A benchmark_model binary.

    With Flex it takes TensorFlow's operators too, and its exit code is always 0.
    """

    def __init__(
        self, bench: Bench, *, flex: bool = False, flags: Sequence[Flag] = ANDROID_FLAGS
    ) -> None:
        self._bench = bench
        self._flex = flex
        self._flags = flags

    def run(self, process: ProcessContext) -> int:
        """Run it with the process's arguments; return its exit code."""
        say = StreamTranscript(process)
        announce(process, "start")
        say.info("STARTING!")
        try:
            parameters = parse_arguments(process.argv, self._flags, say)
            BenchmarkRun(
                self._bench, process, say, parameters, ProcessOnce(), flex=self._flex
            ).run()
        except BenchmarkFailedError:
            say.error("Benchmarking failed.")
            return 0 if self._flex else 1
        return 0


def parse_arguments(argv: Sequence[str], flags: Sequence[Flag], say: Transcript) -> Parameters:
    """Return the parameters of a command line; say what is wrong with it.

    Raises BenchmarkFailedError.

    ``argv`` begins with the program's name.
    """
    name, arguments = (argv[0] if argv else "benchmark_model"), list(argv[1:])
    if arguments and arguments[0] == "--help":
        say.error(usage(name, flags))
        raise BenchmarkFailedError
    try:
        parameters = parse_flags(flags, arguments)
    except FlagError as error:
        say.error(str(error))
        say.error(usage(name, flags))
        raise BenchmarkFailedError from None
    if parameters.switch("help"):
        say.error(usage(name, flags))
        raise BenchmarkFailedError
    if parameters.unconsumed:
        say.warn("Unconsumed cmdline flags: " + " ".join(parameters.unconsumed))
    return parameters


_ACTIVITY_TAG: Final = "tflite_BenchmarkModelActivity"
#: The name that the native part gives to itself, as argv[0].
_ARGV0: Final = "benchmark_model_android"


class BenchmarkActivity:
    """BenchmarkModelActivity; it ends by itself, and nobody is told whether it went well."""

    def __init__(
        self, bench: Bench, package: str, extras: Mapping[str, str], *, flex: bool = False
    ) -> None:
        self._bench = bench
        self._package = package
        self._extras = extras
        self._flex = flex

    def run(self, process: ProcessContext) -> int:
        """Run it; return 0."""
        announce(process, "start")
        text = self._extras.get("args", self._extras.get("--args", ""))
        if "--use_hexagon=true" in text or "--use_hexagon=1" in text:
            text += f" --hexagon_lib_path=/data/app/{self._package}/lib/arm64"
        process.logs.log(
            "I",
            _ACTIVITY_TAG,
            f"Running TensorFlow Lite benchmark with args: {text}",
            pid=process.pid,
            uid=process.uid,
        )
        say = LogTranscript(process)
        try:
            parameters = parse_arguments([_ARGV0, *text.split()], ANDROID_FLAGS, say)
            BenchmarkRun(
                self._bench, process, say, parameters, ProcessOnce(), flex=self._flex
            ).run()
        except BenchmarkFailedError:
            pass  # the activity has no exit code, and this program says no more
        return 0


_VALID: Final = ("all", "cpu", "gpu", "nnapi", "coreml", "dsp", "none")
_NAME_WIDTH: Final = 26


#: One way to run the model: flags and their values.
_Option = tuple[tuple[str, FlagValue], ...]


class PerformanceOptionsProgram:
    """The program; whatever goes wrong, its exit code is 0."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def run(self, process: ProcessContext) -> int:
        """Run all options, as far as the first that fails."""
        say = StreamTranscript(process)
        announce(process, "start")
        say.info("STARTING!")
        try:
            own, single = self._parse(process, say)
        except BenchmarkFailedError:
            return 0
        listed = own.text("perf_options_list")
        say.info(f"The list of TFLite runtime options to be benchmarked: [{listed}]")
        names = {part.strip() for part in listed.split(",")}
        options = [None] if names == {"none"} else list(self._options(names))
        random = np.random.default_rng(self._bench.hardware.next_process_seed())
        if own.switch("random_shuffle_benchmark_runs"):
            options = [options[i] for i in random.permutation(len(options))]
        results: list[tuple[str, Stat]] = []
        once = ProcessOnce()
        for position, option in enumerate(options):
            if position:
                pause(process, own.number("option_benchmark_run_delay"))
            parameters = single.copy()
            if option is not None:
                _reset(parameters)
                for name, value in option:
                    parameters.set(name, value)
            try:
                measured = BenchmarkRun(self._bench, process, say, parameters, once).run()
            except BenchmarkFailedError:
                say.error("Error while running a single-option run: 1")
                return 0
            results.append((_name(parameters), measured.runs))
        say.info(
            "\n==============Summary of All Runs w/ Different Performance Options=============="
        )
        for name, stat in sorted(results, key=lambda item: item[1].average):
            say.info(f"{name:>{_NAME_WIDTH}}: {stat.line()}")
        return 0

    def _parse(
        self, process: ProcessContext, say: StreamTranscript
    ) -> tuple[Parameters, Parameters]:
        name = process.argv[0] if process.argv else "benchmark_model_performance_options"
        muted = _Muted(process)
        try:
            own = parse_arguments(process.argv, FLAGS["performance"], muted)
            self._check_list(own.text("perf_options_list"), say)
        except BenchmarkFailedError:
            say.error("Error while parsing the flags for multi-option runs: 1")
            raise
        try:
            single = parse_arguments([name, *own.unconsumed], ANDROID_FLAGS, say)
        except BenchmarkFailedError:
            say.error("Error while parsing the flags for single-option runs: 1")
            raise
        for argument in single.unconsumed:
            say.warn(f"WARNING: unrecognized commandline flag: {argument}")
        return own, single

    def _check_list(self, listed: str, say: StreamTranscript) -> None:
        names = [part.strip() for part in listed.split(",")]
        valid = [
            name for name in _VALID if name != "dsp" or self._bench.profile.hexagon is not None
        ]
        if any(name not in valid for name in names):
            say.error(
                f"There are invalid perf options in --perf_options_list: '{listed}'. Valid perf options are: "
                f"[{', '.join(valid)}]"
            )
            raise BenchmarkFailedError
        if "none" in names and len(set(names)) > 1:
            say.error(
                "The 'none' option can not be used together with other perf options in --perf_options_list!"
            )
            raise BenchmarkFailedError

    def _options(self, names: set[str]) -> Iterator[_Option]:
        every = "all" in names
        if every or "cpu" in names:
            for threads in (1, 2, 4):
                for xnnpack in (False, True):
                    yield ("num_threads", threads), ("use_xnnpack", xnnpack)
        if every or "gpu" in names:
            for loss in (True, False):
                yield ("use_gpu", True), ("gpu_precision_loss_allowed", loss)
        if every or "nnapi" in names:
            for device in self._bench.profile.nnapi:
                yield ("use_nnapi", True), ("nnapi_accelerator_name", device.name)
            yield (("use_nnapi", True),)
        if (every or "dsp" in names) and self._bench.profile.hexagon is not None:
            yield (("use_hexagon", True),)


class _Muted(StreamTranscript):
    """A transcript for the first pass over the flags: what that pass doesn't know isn't unknown
    yet.
    """

    def warn(self, message: str) -> None:
        """Say nothing."""


def _reset(parameters: Parameters) -> None:
    """Set what the program sets before each option, whatever was on the command line."""
    for name, value in (
        ("num_threads", 1),
        ("use_gpu", False),
        ("gpu_precision_loss_allowed", True),
        ("use_nnapi", False),
        ("nnapi_accelerator_name", ""),
        ("disable_nnapi_cpu", False),
        ("max_delegated_partitions", 0),
        ("nnapi_allow_fp16", False),
        ("use_hexagon", False),
        ("use_xnnpack", False),
        ("xnnpack_force_fp16", False),
    ):
        parameters.set(name, value)


def _name(parameters: Parameters) -> str:
    """Return a run's name in the summary: what was asked for, which needn't be what ran."""
    if parameters.switch("use_gpu"):
        return "gpu-fp16" if parameters.switch("gpu_precision_loss_allowed") else "gpu-default"
    if parameters.switch("use_nnapi"):
        device = parameters.text("nnapi_accelerator_name")
        return f"nnapi({device})" if device else "nnapi(w/o accel name)"
    if parameters.switch("use_hexagon"):
        return "dsp w/ hexagon"
    name = f"cpu w/ {parameters.integer('num_threads')} threads"
    if parameters.switch("use_xnnpack"):
        name += " (xnnpack-fp16)" if parameters.switch("xnnpack_force_fp16") else " (xnnpack)"
    return name
