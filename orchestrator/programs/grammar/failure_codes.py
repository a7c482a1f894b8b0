"""The names of everything that can go wrong in one run, what each means, and what to do next.

docs/reference/failures.md is this table with more words; a test keeps the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCode:
    """One way for a run to fail."""

    code: str
    meaning: str
    next_step: str


def _codes(*rows: tuple[str, str, str]) -> Mapping[str, FailureCode]:
    return {code: FailureCode(code=code, meaning=meaning, next_step=step) for code, meaning, step in rows}


FAILURE_CODES: Final = _codes(
    # The program didn't start.
    (
        "wrong-abi",
        "The program is built for another processor or word size than the phone's.",
        "Choose the build for the phone's ABI: see 'benchfarm devices' and 'benchfarm build'.",
    ),
    (
        "not-executable",
        "The phone refuses to execute the file.",
        "Check that it lies in /data/local/tmp and has mode 755; /sdcard is mounted without exec.",
    ),
    (
        "program-not-found",
        "The shell finds no program at the path, or not the linker that the program asks for.",
        "Push the build again; a 64-bit program on a 32-bit system is reported like this too.",
    ),
    (
        "missing-library",
        "A shared library that the program needs isn't on the phone.",
        "Push the library beside the program, or take the build that contains it.",
    ),
    (
        "missing-symbol",
        "A shared library lacks a function that the program needs.",
        "Use program and libraries of one release.",
    ),
    (
        "device-unreachable",
        "adb found no phone to start the program on, or wasn't allowed to use it.",
        "Check the cable, the serial and the USB debugging permission with 'benchfarm doctor'.",
    ),
    # The command line.
    (
        "load-died",
        "The load of the pass contention didn't run from begin to end: the phone was less busy than stated.",
        "The reason says which process: without dd there is no load memory, without the GPU no load gpu.",
    ),
    (
        "mode-not-reached",
        "The program was to run in the scheduling groups of the app on the screen, and the phone didn't let it.",
        "A shell user may not move processes there on most phones: root the phone, or measure in the mode shell.",
    ),
    (
        "bad-flag",
        "The program refuses a flag or its value.",
        "Compare with 'benchfarm flags'; the reason names the flag.",
    ),
    (
        "provider-missing",
        "The program was built without a part that it asks for itself.",
        "Take a build with all delegate providers; performance options need the GPU provider.",
    ),
    ("help-shown", "The program printed its flags instead of running.", "Leave out --help."),
    (
        "signatures-listed",
        "The program listed the model's signatures instead of running.",
        "Leave out --list_signatures and name one with --signature_to_run_for.",
    ),
    # The model and its inputs.
    ("model-not-found", "The model file isn't at the path.", "Check the path; push the model again."),
    (
        "model-corrupt",
        "The file is no TFLite model, or a damaged one.",
        "Compare its sha256 with the original's and push it again.",
    ),
    (
        "model-too-new",
        "The model holds an operator, or a version of one, that this build doesn't know.",
        "Take a newer build.",
    ),
    (
        "flex-ops-missing",
        "The model uses TensorFlow operators that the plain build doesn't contain.",
        "Take the build with Flex (plus_flex), or convert the model without SELECT_TF_OPS.",
    ),
    (
        "unresolved-custom-op",
        "The model uses a custom operator that the build doesn't contain.",
        "Take a build that registers it, or replace the operator in the model.",
    ),
    (
        "signature-needed",
        "The model has several signatures, or not the one that was named.",
        "Name one of those listed with --signature_to_run_for.",
    ),
    (
        "bad-input-shape",
        "The inputs or shapes that were named don't fit the model.",
        "Compare --input_layer and --input_layer_shape with 'benchfarm model inspect'.",
    ),
    (
        "bad-input-file",
        "An input file is missing or doesn't have the tensor's size.",
        "Give a file of exactly the tensor's bytes.",
    ),
    (
        "context-too-small",
        "The prompt has as many tokens as the language model's context, or more.",
        "Ask for fewer tokens (prefill_tokens), or for a larger context that the model has (max_num_tokens).",
    ),
    ("bad-threads", "The program refuses the number of threads.", "Ask for -1 or a number from 1 up."),
    # Delegates.
    (
        "full-delegation-refused",
        "--require_full_delegation was set and some operators stayed on the CPU.",
        "Leave the flag out to measure a partial delegation, or change the operators that are listed.",
    ),
    (
        "dynamic-tensors",
        "The delegate takes only models whose tensors have fixed sizes.",
        "Convert the model with a fixed batch and fixed shapes.",
    ),
    (
        "gpu-init-failed",
        "The GPU delegate was made and could not be set up.",
        "Read the reason: no OpenCL or OpenGL driver, or a tensor that the GPU can't hold.",
    ),
    (
        "nnapi-failed",
        "The phone's NNAPI driver refused or failed the model.",
        "Try another --nnapi_accelerator_name or the GPU; NNAPI is deprecated since Android 15.",
    ),
    (
        "hexagon-init-failed",
        "The Hexagon delegate could not be set up.",
        "Push libhexagon_interface.so and the skel libraries that fit the phone's DSP.",
    ),
    (
        "hexagon-version-skew",
        "libhexagon_interface.so and the skel libraries are of different versions.",
        "Take both from one release.",
    ),
    (
        "npu-init-failed",
        "LiteRT found no usable dispatch library for the NPU.",
        "Check the dispatch and runtime libraries for this SoC, LD_LIBRARY_PATH and ADSP_LIBRARY_PATH.",
    ),
    (
        "npu-version-skew",
        "The vendor's NPU library is of another version than LiteRT was built with.",
        "Take the vendor runtime that the LiteRT release names.",
    ),
    (
        "external-delegate-failed",
        "The external or stable delegate was loaded and could not be set up.",
        "Read the delegate's own log; check its options.",
    ),
    (
        "xnnpack-failed",
        "XNNPACK could not be set up for this model and these shapes.",
        "Often memory: lower the batch; or measure with the builtin kernels (delegate cpu).",
    ),
    ("delegate-failed", "The delegate could not be applied.", "Read the lines before it in the output."),
    # While running.
    (
        "op-failed",
        "An operator failed, so the times printed after it are of failing calls.",
        "Read the reason; random inputs may be out of range: set --input_layer_value_range.",
    ),
    (
        "allocation-failed",
        "The tensors could not be allocated or an operator could not be prepared.",
        "Read the line before it: memory, or a shape that an operator refuses.",
    ),
    (
        "out-of-memory",
        "The phone refused memory to the program.",
        "Lower the batch, close apps, or take a phone with more memory.",
    ),
    (
        "low-memory-kill",
        "Android killed the program to free memory.",
        "Lower the batch, close apps, or take a phone with more memory.",
    ),
    (
        "killed",
        "The program was killed (SIGKILL) and nothing says by whom.",
        "Look for lmkd in the system log; a time limit of the caller ends a program like this too.",
    ),
    ("terminated", "The program was told to end (SIGTERM, SIGHUP).", "Run it again undisturbed."),
    ("interrupted", "The program was interrupted (Ctrl-C).", "Run it again."),
    ("output-closed", "Whoever read the program's output went away.", "Run it again; check the link."),
    (
        "segfault",
        "The program crashed (SIGSEGV).",
        "Read the tombstone's first frames: a driver's or delegate's library is the usual place.",
    ),
    ("aborted", "The program aborted (SIGABRT).", "Read its last FATAL line or the tombstone's abort message."),
    ("bus-error", "The program crashed (SIGBUS).", "A file was cut off while mapped: push the model again."),
    (
        "illegal-instruction",
        "The program used an instruction that this processor lacks (SIGILL).",
        "Take a build for an older architecture.",
    ),
    ("arithmetic-fault", "The program crashed in arithmetic (SIGFPE).", "Report it with the model."),
    ("app-crashed", "The benchmark app ended with a Java exception.", "Read the exception in the crash log."),
    ("process-died", "The benchmark app's process disappeared.", "Read the crash log and lmkd's lines."),
    (
        "app-not-responding",
        "Android found the app not responding (ANR).",
        "Shorten the run (--max_secs) or measure with the native program.",
    ),
    (
        "activity-missing",
        "The app has no such activity, or isn't installed.",
        "Install the APK again; 'benchfarm build' shows the activity that it contains.",
    ),
    (
        "install-failed",
        "The phone's package manager refused the APK.",
        "See the reason's code in docs/reference/failures.md.",
    ),
    (
        "selinux-denied",
        "SELinux denied the program something that it needs.",
        "Use /data/local/tmp for the shell and the app's own folder for an app.",
    ),
    ("storage-full", "There is no room for the file that the program writes.", "Free space on the phone."),
    ("timed-out", "The run didn't end in its time.", "Raise the timeout, or lower min_secs and num_runs."),
    # The result itself.
    (
        "no-inferences",
        "The program ran and made no inference (count=0): there is no number.",
        "Leave out --dry_run; ask for num_runs of at least 1 and a max_secs above 0.",
    ),
    (
        "all-zero",
        "Every inference took 0 microseconds by the program's clock: there is no number.",
        "The model does nothing measurable; measure a larger one.",
    ),
    (
        "no-result",
        "The program ended without an error and without its result line.",
        "The output was cut off or written elsewhere; keep stdout and run again.",
    ),
    (
        "option-not-run",
        "benchmark_model_performance_options ended before it came to this option, and it couldn't be run alone either.",
        "See which option failed before it, and leave that delegate out.",
    ),
    (
        "hung-at-exit",
        "The program printed its whole result and then didn't exit.",
        "The number stands. More threads than the system allows cause this: lower num_threads.",
    ),
    (
        "crashed-after-result",
        "The program printed its whole result and then crashed.",
        "The number stands. A driver that fails while unloading causes this.",
    ),
    (
        "benchmark-failed",
        "The program said that it failed, without a reason that benchfarm knows.",
        "Read its last lines with 'benchfarm parse'.",
    ),
)


def next_step(code: str) -> str:
    """Return what to do about a failure, "" for a code that isn't known."""
    known = FAILURE_CODES.get(code)
    return known.next_step if known else ""
