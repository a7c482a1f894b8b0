"""benchmark_model and benchmark_model_plus_flex from a shell, the benchmark app, and
benchmark_model_performance_options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.contract import AppInfo
from benchfarm_virtual.profiles import VirtualProfile
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
    BenchmarkFailedError,
    LogTranscript,
    ProcessOnce,
    StreamTranscript,
    Transcript,
    announce,
)
from benchfarm_virtual.programs.run_loop import Stat


def run_native(
    call: Invocation, version: str, *, flex: bool = False, flags: Sequence[Flag] = ANDROID_FLAGS
) -> int:
    """Run benchmark_model; with Flex it takes TensorFlow's operators too, and its exit code is
    always 0.
    """
    say = StreamTranscript(call)
    announce(call, "start")
    say.info("STARTING!")
    try:
        parameters = parse_arguments(call.launch.argv, flags, say)
        BenchmarkRun(call, say, parameters, ProcessOnce(), version, flex=flex).run()
    except BenchmarkFailedError:
        say.error("Benchmarking failed.")
        return 0 if flex else 1
    return 0


def parse_arguments(argv: Sequence[str], flags: Sequence[Flag], say: Transcript) -> Parameters:
    """Return the parameters of a command line; say what is wrong with it.

    Raises BenchmarkFailedError.

    ``argv`` begins with the program's name.
    """
    name, *arguments = argv
    if arguments[:1] == ["--help"]:
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


def run_activity(call: Invocation, app: AppInfo, extras: Mapping[str, str]) -> int:
    """Run BenchmarkModelActivity; it ends by itself, and nobody is told whether it went well."""
    announce(call, "start")
    text = extras.get("args", extras.get("--args", ""))
    if "--use_hexagon=true" in text or "--use_hexagon=1" in text:
        text += f" --hexagon_lib_path=/data/app/{app.package}/lib/arm64"
    call.system.logs.log(
        "I",
        _ACTIVITY_TAG,
        f"Running TensorFlow Lite benchmark with args: {text}",
        pid=call.process.pid,
        uid=call.uid,
    )
    say = LogTranscript(call)
    try:
        parameters = parse_arguments([_ARGV0, *text.split()], ANDROID_FLAGS, say)
        BenchmarkRun(call, say, parameters, ProcessOnce(), app.version_name, flex=app.flex).run()
    except BenchmarkFailedError:
        pass  # the activity has no exit code, and this program says no more
    return 0


_VALID: Final = ("all", "cpu", "gpu", "nnapi", "coreml", "dsp", "none")
_NAME_WIDTH: Final = 26


#: One way to run the model: flags and their values.
_Option = tuple[tuple[str, FlagValue], ...]


def run_performance_options(call: Invocation, version: str) -> int:
    """Run all options, as far as the first that fails; whatever goes wrong, the exit code is 0."""
    say = StreamTranscript(call)
    announce(call, "start")
    say.info("STARTING!")
    profile, hardware = call.system.hardware.profile, call.system.hardware
    try:
        own, single = _parse(call, say, profile)
    except BenchmarkFailedError:
        return 0
    listed = own.text("perf_options_list")
    say.info(f"The list of TFLite runtime options to be benchmarked: [{listed}]")
    names = {part.strip() for part in listed.split(",")}
    options = [None] if names == {"none"} else list(_options(names, profile))
    random = np.random.default_rng(hardware.next_process_seed())
    if own.switch("random_shuffle_benchmark_runs"):
        options = [options[i] for i in random.permutation(len(options))]
    results: list[tuple[str, Stat]] = []
    once = ProcessOnce()
    for position, option in enumerate(options):
        if position:
            call.sleep(own.number("option_benchmark_run_delay"))
        parameters = single.copy()
        if option is not None:
            _reset(parameters)
            for name, value in option:
                parameters.set(name, value)
        try:
            measured = BenchmarkRun(call, say, parameters, once, version).run()
        except BenchmarkFailedError:
            say.error("Error while running a single-option run: 1")
            return 0
        results.append((_name(parameters), measured.runs))
    say.info("\n==============Summary of All Runs w/ Different Performance Options==============")
    for name, stat in sorted(results, key=lambda item: item[1].average):
        say.info(f"{name:>{_NAME_WIDTH}}: {stat.line()}")
    return 0


def _parse(
    call: Invocation, say: StreamTranscript, profile: VirtualProfile
) -> tuple[Parameters, Parameters]:
    argv = call.launch.argv
    try:
        own = parse_arguments(argv, FLAGS["performance"], _Muted(call))
        _check_list(own.text("perf_options_list"), say, profile)
    except BenchmarkFailedError:
        say.error("Error while parsing the flags for multi-option runs: 1")
        raise
    try:
        single = parse_arguments([argv[0], *own.unconsumed], ANDROID_FLAGS, say)
    except BenchmarkFailedError:
        say.error("Error while parsing the flags for single-option runs: 1")
        raise
    for argument in single.unconsumed:
        say.warn(f"WARNING: unrecognized commandline flag: {argument}")
    return own, single


def _check_list(listed: str, say: StreamTranscript, profile: VirtualProfile) -> None:
    names = [part.strip() for part in listed.split(",")]
    valid = [name for name in _VALID if name != "dsp" or profile.hexagon is not None]
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


def _options(names: set[str], profile: VirtualProfile) -> Iterator[_Option]:
    if names & {"all", "cpu"}:
        for threads in (1, 2, 4):
            for xnnpack in (False, True):
                yield ("num_threads", threads), ("use_xnnpack", xnnpack)
    if names & {"all", "gpu"}:
        for loss in (True, False):
            yield ("use_gpu", True), ("gpu_precision_loss_allowed", loss)
    if names & {"all", "nnapi"}:
        for device in profile.nnapi:
            yield ("use_nnapi", True), ("nnapi_accelerator_name", device.name)
        yield (("use_nnapi", True),)
    if names & {"all", "dsp"} and profile.hexagon is not None:
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
