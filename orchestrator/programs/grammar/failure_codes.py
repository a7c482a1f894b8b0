"""What can go wrong in one run: by which lines it is known, and what to do next.

docs/reference/failures.md says what each code means; a test keeps the two together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

#: A code and what to do about it; below it the lines that show it, as rank and pattern: the lowest rank explains a
#: failure, and among equals the first line that was printed. Group 1 of a pattern is the reason.
_TABLE: Final = r"""
# The program didn't start.
wrong-abi: Choose the build for the phone's ABI: see 'benchfarm devices' and 'benchfarm build'.
    0 .*?(not executable: (?:32|64)-bit ELF file)
    0 .*?(cannot execute binary file.*|Exec format error.*)
    0 .*?(\"[^\"]*\" (?:is (?:32|64)-bit instead of (?:32|64)-bit|has bad ELF magic|is for EM_\w+).*)
not-executable: Check that it lies in /data/local/tmp and has mode 755; /sdcard is mounted without exec.
program-not-found: Push the build again; a 64-bit program on a 32-bit system is reported like this too.
missing-symbol: Use program and libraries of one release.
    0 (CANNOT LINK EXECUTABLE .*cannot locate symbol.*)
missing-library: Push the library beside the program, or take the build that contains it.
    0 (CANNOT LINK EXECUTABLE .*)
    0 .*?(error while loading shared libraries: .*)
device-unreachable: Check the cable, the serial and the USB debugging permission with 'benchfarm doctor'.
    0 (?:.*?: )?((?:adb|error): (?:device .*not found|device (?:off|unauth).*|no devices.*|more than one.*))
# The command line.
load-died: The reason says which process: without dd there is no load memory, without the GPU no load gpu.
mode-not-reached: A shell user may not move processes there on most phones: root the phone, or measure in mode shell.
    0 benchfarm: (mode not reached: .*)
bad-flag: Compare with 'benchfarm flags'; the reason names the flag.
    1 (Failed to parse flag .*)
    1 (There are invalid perf options in .*|The 'none' option can not be used .*)
    1 (Please specify the name of your TF Lite input file.*|Output mode.* is not supported.*)
    1 (Requesting full delegation and CPU acceleration are incompatible.*)
provider-missing: Take a build with all delegate providers; performance options need the GPU provider.
    1 (\w+ was not found\.)$
help-shown: Leave out --help.
    9 (usage: \S+ <flags>)
signatures-listed: Leave out --list_signatures and name one with --signature_to_run_for.
    9 (The Model contains \d+ signature key\(s\)\.)
# The model and its inputs.
model-not-found: Check the path; push the model again.
    1 (Could not open '.*'\.)
    1 (Couldn't find '.*' in bundle\.)
model-corrupt: Compare its sha256 with the original's and push it again.
    2 (The model is not a valid Flatbuffer.*|mmap of size 0 requested\.)
    2 (No subgraph in the model\.|Mmap of .* failed with error (?!'12'\.).*)
    3 (The model allocation is null/empty|Failed to load model.*)
model-too-new: Take a newer build.
    2 (Didn't find op for builtin opcode .*|Op builtin_code out of range.*)
flex-ops-missing: Take the build with Flex (plus_flex), or convert the model without SELECT_TF_OPS.
    3 (Node number \d+ \(Flex\w+\) failed to (?:prepare|invoke)\.?)
    4 (Select TensorFlow op\(s\), included in the given model.*)
    4 (Encountered unresolved custom op: Flex\w+).*
unresolved-custom-op: Take a build that registers it, or replace the operator in the model.
    4 (Encountered unresolved custom op: [\w.:-]+)
signature-needed: Name one of those listed with --signature_to_run_for.
    2 (Signature not specified or incorrect\..*)
bad-input-shape: Compare --input_layer and --input_layer_shape with 'benchfarm model inspect'.
    2 (Incorrect size string specified.*|Input tensor #\d+ should have .*)
    2 (The number of items in --input_layer.*|Any unknown sizes in the shapes.*)
    2 (Wrong input value range item specified.*)
bad-input-file: Give a file of exactly the tensor's bytes.
    2 (Failed to read the input_layer_value_file.*|The size of .* bytes\. It should be .*)
context-too-small: Ask for fewer tokens (prefill_tokens), or for a larger context that the model has (max_num_tokens).
bad-threads: Ask for -1 or a number from 1 up.
    1 (num_threads should be .*)
# Delegates.
full-delegation-refused: Leave the flag out to measure a partial delegation, or change the operators that are listed.
    5 (Disallowed CPU fallback detected\.)
dynamic-tensors: Convert the model with a fixed batch and fixed shapes.
    5 (Attempting to use a delegate that only supports static-sized tensors.*)
gpu-init-failed: Read the reason: no OpenCL or OpenGL driver, or a tensor that the GPU can't hold.
    5 (TfLiteGpuDelegate Init: .*)
    5 (\[GPU\] Failed to initialize: .*)
    5 .*?(Failed to create litert::ml_drift::DelegateKernelLiteRt: .*)
    6 (Node number \d+ \(LITERT_\w+\) failed to prepare\.?)
nnapi-failed: Try another --nnapi_accelerator_name or the GPU; NNAPI is deprecated since Android 15.
    5 (NN API returned error .*)
    5 (Returning error since NNAPI returned failure .*|Failed to build graph for NNAPI.*)
hexagon-init-failed: Push libhexagon_interface.so and the skel libraries that fit the phone's DSP.
    5 (Failed to fetch Hexagon NN version.*)
hexagon-version-skew: Take both from one release.
    5 (Incompatible versions between interface library and libhexagon_skel.*)
npu-init-failed: Check the dispatch and runtime libraries for this SoC, LD_LIBRARY_PATH and ADSP_LIBRARY_PATH.
    5 (Failed to create a dispatch delegate kernel: .*)
    6 (No usable Dispatch runtime.*|Failed to initialize Dispatch API.*)
    6 (You should provide the `DispatchLibraryDir` option.*)
npu-version-skew: Take the vendor runtime that the LiteRT release names.
    4 .*?(Qnn (?:\w+ )?library version \S+ is (?:mismatched|not supported)\..*)
    4 .*?(Stub lib id mismatch: expected .*)
    4 .*?(Failed to create context from context binary: Unsupported context binary version.*)
    4 .*?(Incompatible Neuron SDK major version: .*)
    4 .*?(Unsupported dispatch runtime version.*)
external-delegate-failed: Read the delegate's own log; check its options.
    6 (Failed to apply (?:EXTERNAL|STABLE_DELEGATE) delegate\.)
xnnpack-failed: Often memory: lower the batch; or measure with the builtin kernels (delegate cpu).
    5 (failed to create XNNPACK runtime.*|XNNPack delegate failed to .*)
delegate-failed: Read the lines before it in the output.
    6 (Failed to apply \w+ delegate\.)
# While running.
op-failed: Read the reason; random inputs may be out of range: set --input_layer_value_range.
    6 (Node number \d+ \(\w+\) failed to invoke\.?)
allocation-failed: Read the line before it: memory, or a shape that an operator refuses.
    7 (Node number \d+ \(\w+\) failed to prepare\.?)
    8 (Failed to allocate tensors!)
out-of-memory: Lower the batch, close apps, or take a phone with more memory.
    2 (Mmap of .* failed with error '12'\.)
    5 .*?(std::bad_alloc.*|[Oo]ut of memory.*)
low-memory-kill: Lower the batch, close apps, or take a phone with more memory.
killed: Look for lmkd in the system log; a time limit of the caller ends a program like this too.
terminated: Run it again undisturbed.
interrupted: Run it again.
output-closed: Run it again; check the link.
segfault: Read the tombstone's first frames: a driver's or delegate's library is the usual place.
aborted: Read its last FATAL line or the tombstone's abort message.
bus-error: A file was cut off while mapped: push the model again.
illegal-instruction: Take a build for an older architecture.
arithmetic-fault: Report it with the model.
app-crashed: Read the exception in the crash log.
    7 (Failed to create the interpreter with error: .*)
process-died: Read the crash log and lmkd's lines.
app-not-responding: Shorten the run (--max_secs) or measure with the native program.
activity-missing: Install the APK again; 'benchfarm build' shows the activity that it contains.
    0 .*?(Activity class \{[^}]*\} does not exist.*)
install-failed: See the reason's code in docs/reference/failures.md.
    0 .*?\[?(INSTALL_(?:PARSE_)?FAILED_[A-Z_]+)
selinux-denied: Use /data/local/tmp for the shell and the app's own folder for an app.
storage-full: Free space on the phone.
    5 .*?(No space left on device.*)
timed-out: Raise the timeout, or lower min_secs and num_runs.
# The result itself.
no-inferences: Leave out --dry_run; ask for num_runs of at least 1 and a max_secs above 0.
all-zero: The model does nothing measurable; measure a larger one.
no-result: The output was cut off or written elsewhere; keep stdout and run again.
option-not-run: See which option failed before it, and leave that delegate out.
hung-at-exit: The number stands. More threads than the system allows cause this: lower num_threads.
crashed-after-result: The number stands. A driver that fails while unloading causes this.
benchmark-failed: Read its last lines with 'benchfarm parse'.
    7 (Failed to initialize: internalError.*)
    8 (Failed to initialize the interpreter|Failed to set thread number|Run failed: .*)
    8 (Failed to (?:load|compile) model\..*|Failed to create litert environment.*)
    10 (Error while (?:running a single-option run|parsing the flags for .*): .*)
    11 (Benchmarking failed\.)
"""
_ENTRY: Final = re.compile(r"^(?P<code>[a-z-]+): (?P<step>.+)$|^ +(?P<rank>\d+) (?P<pattern>.+)$", re.MULTILINE)
SIGNALS: Final[Mapping[int, tuple[str, str]]] = {
    1: ("terminated", "SIGHUP"), 2: ("interrupted", "SIGINT"), 3: ("aborted", "SIGQUIT"),
    4: ("illegal-instruction", "SIGILL"), 6: ("aborted", "SIGABRT"), 7: ("bus-error", "SIGBUS"),
    8: ("arithmetic-fault", "SIGFPE"), 9: ("killed", "SIGKILL"), 11: ("segfault", "SIGSEGV"),
    13: ("output-closed", "SIGPIPE"), 15: ("terminated", "SIGTERM"), 25: ("storage-full", "SIGXFSZ"),
    31: ("aborted", "SIGSYS"),
}  # fmt: skip


def _read() -> tuple[dict[str, str], list[tuple[int, str, re.Pattern[str]]]]:
    steps: dict[str, str] = {}
    rules = []
    for entry in _ENTRY.finditer(_TABLE):
        if entry["code"]:
            steps[entry["code"]] = entry["step"]
        else:
            rules.append((int(entry["rank"]), [*steps][-1], re.compile(entry["pattern"])))
    return steps, sorted(rules, key=lambda rule: rule[0])


_STEPS, _RULES = _read()
#: Code -> what to do next.
NEXT_STEPS: Final[Mapping[str, str]] = _STEPS
#: (rank, code, pattern) in the order in which they are tried.
RULES: Final = tuple(_RULES)
