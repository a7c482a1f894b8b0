"""benchmark_model and benchmark_model_plus_flex from a shell, the benchmark app, and
benchmark_model_performance_options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.contract import AppInfo
from benchfarm_virtual.programs.benchmark import BenchmarkRun
from benchfarm_virtual.programs.delegates import ANDROID_FLAGS, DELEGATES
from benchfarm_virtual.programs.flags import (
    FLAGS,
    Flag,
    FlagError,
    Parameters,
    parse_flags,
    usage,
)
from benchfarm_virtual.programs.process import (
    BenchmarkFailedError,
    Transcript,
    announce,
)


def run_native(
    call: Invocation, version: str, *, flex: bool = False, flags: Sequence[Flag] = ANDROID_FLAGS
) -> int:
    """Run benchmark_model; with Flex it takes TensorFlow's operators too, and its exit code is
    always 0.
    """
    say = Transcript(call)
    announce(call, "start")
    say.info("STARTING!")
    try:
        parameters = parse_arguments(call.launch.argv, flags, say)
        BenchmarkRun(call, say, parameters, version, flex=flex).run()
    except BenchmarkFailedError:
        say.error("Benchmarking failed.")
        return 0 if flex else 1
    return 0


def parse_arguments(argv: Sequence[str], flags: Sequence[Flag], say: Transcript) -> Parameters:
    """Return the parameters of a command line; print its errors and unconsumed flags.

    Raises BenchmarkFailedError.

    ``argv`` begins with the program's name.
    """
    parameters = _parsed(argv, flags, say)
    if parameters.unconsumed:
        say.warn("Unconsumed cmdline flags: " + " ".join(parameters.unconsumed))
    return parameters


def _parsed(argv: Sequence[str], flags: Sequence[Flag], say: Transcript) -> Parameters:
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
    return parameters


_ACTIVITY_TAG: Final = "tflite_BenchmarkModelActivity"
#: The name that the native part gives to itself, as argv[0].
_ARGV0: Final = "benchmark_model_android"


def run_activity(call: Invocation, app: AppInfo, extras: Mapping[str, str]) -> int:
    """Run BenchmarkModelActivity; it ends by itself, without reporting success or failure."""
    announce(call, "start")
    text = extras.get("args", extras.get("--args", ""))
    if "--use_hexagon=true" in text or "--use_hexagon=1" in text:
        text += f" --hexagon_lib_path=/data/app/{app.package}/lib/arm64"
    call.log(_ACTIVITY_TAG, f"Running TensorFlow Lite benchmark with args: {text}")
    say = Transcript(call, to_log=True)
    try:
        parameters = parse_arguments([_ARGV0, *text.split()], ANDROID_FLAGS, say)
        BenchmarkRun(call, say, parameters, app.version_name, flex=app.flex).run()
    except BenchmarkFailedError:
        pass  # the activity has no exit code and no further message
    return 0


def run_performance_options(call: Invocation, version: str) -> int:
    """Run benchmark_model once, as ``--perf_options_list=none`` asks for, which is all that a
    virtual phone knows; whatever goes wrong, the exit code is 0.
    """
    say = Transcript(call)
    announce(call, "start")
    say.info("STARTING!")
    name = call.launch.argv[0]
    try:
        performance = _parsed(call.launch.argv, FLAGS["performance"], say)
        say.info("The list of TFLite runtime options to be benchmarked: [none]")
        parameters = parse_arguments([name, *performance.unconsumed], ANDROID_FLAGS, say)
        runs = BenchmarkRun(call, say, parameters, version).run().runs
    except BenchmarkFailedError:
        say.error("Error while running a single-option run: 1")
        return 0
    say.info("\n==============Summary of All Runs w/ Different Performance Options==============")
    summaries = (
        delegate.summary
        for delegate in DELEGATES
        if delegate.summary and parameters.switch(delegate.flag)
    )
    say.info(f"{next(summaries, 'cpu w/ 1 threads'):>26}: {runs.line()}")
    return 0
