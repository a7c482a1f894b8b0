"""benchmark_model and benchmark_model_plus_flex, started from a shell, and the benchmark app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from benchfarm_virtual.contract import ProcessContext
from benchfarm_virtual.programs.benchmark import BenchmarkRun
from benchfarm_virtual.programs.flags import (
    ANDROID_FLAGS,
    Flag,
    FlagError,
    Parameters,
    parse_flags,
    usage,
)
from benchfarm_virtual.programs.process import Bench, BenchmarkFailedError, ProcessOnce, announce
from benchfarm_virtual.programs.transcript import LogTranscript, StreamTranscript, Transcript


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
