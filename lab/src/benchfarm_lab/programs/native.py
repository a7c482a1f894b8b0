"""benchmark_model and benchmark_model_plus_flex, started from a shell."""

from __future__ import annotations

from collections.abc import Sequence

from benchfarm_lab.contract import ProcessContext
from benchfarm_lab.programs.benchmark import BenchmarkRun
from benchfarm_lab.programs.flag_table import ANDROID_FLAGS, Flag
from benchfarm_lab.programs.flags import FlagError, Parameters, parse_flags, usage
from benchfarm_lab.programs.process import Bench, BenchmarkFailedError, ProcessOnce, announce
from benchfarm_lab.programs.transcript import StreamTranscript, Transcript


class NativeProgram:
    """A benchmark_model binary. With Flex it takes TensorFlow's operators too, and its exit code is always 0."""

    def __init__(self, bench: Bench, *, flex: bool = False, flags: Sequence[Flag] = ANDROID_FLAGS) -> None:
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
            BenchmarkRun(self._bench, process, say, parameters, ProcessOnce(), flex=self._flex).run()
        except BenchmarkFailedError:
            say.error("Benchmarking failed.")
            return 0 if self._flex else 1
        return 0


def parse_arguments(argv: Sequence[str], flags: Sequence[Flag], say: Transcript) -> Parameters:
    """Return the parameters of a command line; say what is wrong with it. Raises BenchmarkFailedError.

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
