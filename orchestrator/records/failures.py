"""Every code of a failure: what it means, what to do next, and the texts that show it.

One record a code.

docs/reference/failures.md, ``benchfarm explain``, next steps in reports and the readers of
programs' and phones' texts are made from these records. A code never changes its meaning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Source(StrEnum):
    """Whose words a text is, which says how it is looked for."""

    #: A program, linker, shell or package manager, in what a run printed: a pattern of a line from
    #: its start.
    PROGRAM = "program"
    #: The adb server, adbd or the adb client: a pattern of any part of a message, in any case.
    ADB = "adb"
    #: The phone's file service or a shell command that writes: likewise.
    WRITING = "writing"
    #: A tool that asks a service of Android's (``cmd``, ``am``, ``pm``, ``settings``, ``run-as``):
    #: likewise.
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class FailureText:
    """A text that shows a failure."""

    #: Group 1 is the reason where a program says it.
    pattern: str
    #: A text as it is printed; a test runs each through the reader.
    example: str
    #: Of several texts in one run that of the lowest rank explains it, and among equals the first
    #: one.
    rank: int = 0
    source: Source = Source.PROGRAM
    #: What the text means and what to do, where that is more than the code says.
    meaning: str = ""
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class FailureCode:
    """One code."""

    code: str
    meaning: str
    next_step: str
    texts: tuple[FailureText, ...] = ()


#: Codes of what a run printed, and of how it ended.
RUN_FAILURES: Final = (
    FailureCode(
        "wrong-abi",
        "The program is built for another processor or word size than the phone's.",
        "Choose the build for the phone's ABI: see 'benchfarm devices' and 'benchfarm build'.",
        (
            FailureText(
                ".*?(not executable: (?:32|64)-bit ELF file)",
                "/system/bin/sh: ./benchmark_model: not executable: 64-bit ELF file",
            ),
            FailureText(
                ".*?(cannot execute binary file.*|Exec format error.*)",
                "bash: ./benchmark_model: cannot execute binary file: Exec format error",
            ),
            FailureText(
                r".*?(\"[^\"]*\" (?:is (?:32|64)-bit instead of (?:32|64)-bit|has bad ELF "
                r"magic|is for EM_\w+).*)",
                '"" is 32-bit instead of 32-bit',
            ),
        ),
    ),
    FailureCode(
        "not-executable",
        "The phone refuses to execute the file.",
        "Check that it lies in /data/local/tmp and has mode 755; /sdcard is mounted without exec.",
    ),
    FailureCode(
        "program-not-found",
        "The shell finds no program at the path, or not the linker that the program asks for.",
        "Push the build again; a 64-bit program on a 32-bit system is reported like this too.",
    ),
    FailureCode(
        "page-size",
        "The phone's memory pages have 16 KiB; the program or a library of it is linked for 4 KiB.",
        "Take a build linked with -Wl,-z,max-page-size=16384 (NDK r28 does so by itself); it runs on all phones.",
        (
            FailureText(
                r".*?((?:\"[^\"]*\":? )?program alignment \(\d+\) cannot be smaller than "
                "system page size.*)",
                'CANNOT LINK EXECUTABLE "./benchmark_model": '
                '"/data/local/tmp/libLiteRt.so" program alignment (4096) cannot be smaller '
                "than system page size (16384)",
            ),
        ),
    ),
    FailureCode(
        "linker-refused",
        "Android's linker refuses how the program was linked.",
        "Take a release build, or build it again with a current NDK for this Android's API level.",
        (
            FailureText(
                '.*?((?:\\"[^\\"]*\\": )?executable\'s TLS segment is underaligned.*)',
                'error: "/data/local/tmp/benchmark_model": executable\'s TLS segment is '
                "underaligned: alignment is 8, needs to be at least 64 for ARM64 Bionic",
            ),
            FailureText(
                r".*?((?:Android \S+ and later )?only (?:support )?position[- ]independent "
                "executables.*)",
                "error: Android 5.0 and later only support position-independent executables (-fPIE).",
            ),
        ),
    ),
    FailureCode(
        "library-not-accessible",
        "A library of the phone's maker isn't open to the program: the linker's namespace leaves it out.",
        "Take a build that opens the library by dlopen at run time instead of "
        "being linked with it; an app names it in its manifest "
        "(uses-native-library).",
        (
            FailureText(
                r".*?((?:library \"[^\"]*\" )?(?:needed or dlopened by \"[^\"]*\" )?is not "
                "accessible for the namespace.*)",
                'CANNOT LINK EXECUTABLE "./benchmark_model": library '
                '"/vendor/lib64/libOpenCL.so" needed or dlopened by "./libMNN.so" is not '
                'accessible for the namespace "(default)"',
            ),
        ),
    ),
    FailureCode(
        "missing-symbol",
        "A shared library lacks a function that the program needs.",
        "Use program and libraries of one release.",
        (
            FailureText(
                "(CANNOT LINK EXECUTABLE .*cannot locate symbol.*)",
                'CANNOT LINK EXECUTABLE "./benchmark_model": cannot locate symbol "_ZN3'
                'foo" referenced by "./benchmark_model"...',
            ),
        ),
    ),
    FailureCode(
        "missing-library",
        "A shared library that the program needs isn't on the phone.",
        "Push the library beside the program, or take the build that contains it.",
        (
            FailureText(
                "(CANNOT LINK EXECUTABLE .*)",
                'CANNOT LINK EXECUTABLE "./benchmark_model": library "libc++_shared.so"'
                " not found: needed by main executable",
            ),
            FailureText(
                ".*?(error while loading shared libraries: .*)",
                "./benchmark_model: error while loading shared libraries: libomp.so.5: "
                "cannot open shared object file",
            ),
        ),
    ),
    FailureCode(
        "device-unreachable",
        "adb found no phone to start the program on, or wasn't allowed to use it.",
        "Check the cable, the serial and the USB debugging permission with 'benchfarm doctor'.",
        (
            FailureText(
                "(?:.*?: )?((?:adb|error): (?:device .*not found|device "
                "(?:off|unauth).*|no devices.*|more than one.*))",
                "adb: device 'R58M12' not found",
            ),
            FailureText(
                "(?:.*?: )?((?:adb|error): .*(?:couldn't read from device|protocol "
                "fault|device unresponsive|unknown host service|transport is closing).*)",
                "adb: error: failed to copy 'a' to '/data/local/tmp/a': couldn't read from device",
            ),
        ),
    ),
    FailureCode(
        "affinity-refused",
        "The phone refused the cores that the plan asks for.",
        "Use affinity: all, or a mask of cores that are online now (cat /sys/devices/system/cpu/online).",
        (
            FailureText(
                ".*?(taskset: .*affinity.*)",
                "taskset: failed to set pid 11011's affinity: Invalid argument",
            ),
        ),
    ),
    FailureCode(
        "load-died",
        "The load of the pass contention didn't run from begin to end: the phone was less busy than stated.",
        "The reason says which process: without dd there is no load memory, without the GPU no load gpu.",
    ),
    FailureCode(
        "mode-not-reached",
        "The program was to run in the scheduling groups of the app on the screen, and the phone didn't let it.",
        "A shell user may not move processes there on most phones: root the phone, or measure in mode shell.",
        (
            FailureText(
                "benchfarm: (mode not reached: .*)",
                "benchfarm: mode not reached: top-app",
            ),
        ),
    ),
    FailureCode(
        "bad-flag",
        "The program refuses a flag or its value.",
        "Compare with 'benchfarm flags'; the reason names the flag.",
        (
            FailureText(
                "(Failed to parse flag .*)",
                "Failed to parse flag 'num_threads' against the value 'x'",
                rank=1,
            ),
            FailureText(
                "(There are invalid perf options in .*|The 'none' option can not be used .*)",
                "There are invalid perf options in 'gpuu'.",
                rank=1,
            ),
            FailureText(
                "(Please specify the name of your TF Lite input file.*|Output mode.* is not supported.*)",
                "Please specify the name of your TF Lite input file with --graph",
                rank=1,
            ),
            FailureText(
                "(Requesting full delegation and CPU acceleration are incompatible.*)",
                "Requesting full delegation and CPU acceleration are incompatible.",
                rank=1,
            ),
        ),
    ),
    FailureCode(
        "provider-missing",
        "The program was built without a part that it asks for itself.",
        "Take a build with all delegate providers; performance options need the GPU provider.",
        (
            FailureText(
                r"(\w+ was not found\.)$",
                "gpu_delegate was not found.",
                rank=1,
            ),
        ),
    ),
    FailureCode(
        "help-shown",
        "The program printed its flags instead of running.",
        "Leave out --help.",
        (
            FailureText(
                r"(usage: \S+ <flags>)",
                "usage: ./benchmark_model <flags>",
                rank=9,
            ),
        ),
    ),
    FailureCode(
        "signatures-listed",
        "The program listed the model's signatures instead of running.",
        "Leave out --list_signatures and name one with --signature_to_run_for.",
        (
            FailureText(
                r"(The Model contains \d+ signature key\(s\)\.)",
                "The Model contains 1 signature key(s).",
                rank=9,
            ),
        ),
    ),
    FailureCode(
        "model-not-found",
        "The model file isn't at the path.",
        "Check the path; push the model again.",
        (
            FailureText(
                r"(Could not open '.*'\.)",
                "Could not open '/data/local/tmp/net.tflite'.",
                rank=1,
            ),
            FailureText(
                r"(Couldn't find '.*' in bundle\.)",
                "Couldn't find 'mobilenet.tflite' in bundle.",
                rank=1,
            ),
        ),
    ),
    FailureCode(
        "model-corrupt",
        "The file is no TFLite model, or a damaged one.",
        "Compare its sha256 with the original's and push it again.",
        (
            FailureText(
                r"(The model is not a valid Flatbuffer.*|mmap of size 0 requested\.)",
                "The model is not a valid Flatbuffer buffer",
                rank=2,
            ),
            FailureText(
                r"(No subgraph in the model\.|Mmap of .* failed with error (?!'1[23]'\.).*)",
                "No subgraph in the model.",
                rank=2,
            ),
            FailureText(
                "(The model allocation is null/empty|Failed to load model.*)",
                "The model allocation is null/empty",
                rank=3,
            ),
        ),
    ),
    FailureCode(
        "model-unreadable",
        "The phone refused to map the model file, which is there.",
        "Move the model to /data/local/tmp (for an app: to its own folder) instead "
        "of pushing it again; the log names what SELinux denied.",
        (
            FailureText(
                r"(Mmap of .* failed with error '13'\.)",
                "Mmap of '184' at offset '0' failed with error '13'.",
                rank=2,
            ),
        ),
    ),
    FailureCode(
        "model-too-new",
        "The model holds an operator, or a version of one, that this build doesn't know.",
        "Take a newer build.",
        (
            FailureText(
                "(Didn't find op for builtin opcode .*|Op builtin_code out of range.*)",
                "Didn't find op for builtin opcode 'CONV_2D' version '9'. An older vers"
                "ion of this builtin might be supported.",
                rank=2,
            ),
        ),
    ),
    FailureCode(
        "flex-ops-missing",
        "The model uses TensorFlow operators that the plain build doesn't contain.",
        "Take the build with Flex (plus_flex), or convert the model without SELECT_TF_OPS.",
        (
            FailureText(
                r"(Node number \d+ \(Flex\w+\) failed to (?:prepare|invoke)\.?)",
                "Node number 12 (FlexErf) failed to prepare.",
                rank=3,
            ),
            FailureText(
                r"(Select TensorFlow op\(s\), included in the given model.*)",
                "Select TensorFlow op(s), included in the given model, is(are) not supported by this interpreter.",
                rank=4,
            ),
            FailureText(
                r"(Encountered unresolved custom op: Flex\w+).*",
                "Encountered unresolved custom op: FlexErf.",
                rank=4,
            ),
        ),
    ),
    FailureCode(
        "unresolved-custom-op",
        "The model uses a custom operator that the build doesn't contain.",
        "Take a build that registers it, or replace the operator in the model.",
        (
            FailureText(
                r"(Encountered unresolved custom op: [\w.:-]+)",
                "Encountered unresolved custom op: TFLite_Detection_PostProcess.",
                rank=4,
            ),
        ),
    ),
    FailureCode(
        "signature-needed",
        "The model has several signatures, or not the one that was named.",
        "Name one of those listed with --signature_to_run_for.",
        (
            FailureText(
                r"(Signature not specified or incorrect\..*)",
                "Signature not specified or incorrect. Available signatures: encode",
                rank=2,
            ),
        ),
    ),
    FailureCode(
        "bad-input-shape",
        "The inputs or shapes that were named don't fit the model.",
        "Compare --input_layer and --input_layer_shape with 'benchfarm model inspect'.",
        (
            FailureText(
                r"(Incorrect size string specified.*|Input tensor #\d+ should have .*)",
                "Incorrect size string specified: 1,a,224,3",
                rank=2,
            ),
            FailureText(
                "(The number of items in --input_layer.*|Any unknown sizes in the shapes.*)",
                "The number of items in --input_layer_shape (1, with 2 layers) is wrong",
                rank=2,
            ),
            FailureText(
                "(Wrong input value range item specified.*)",
                "Wrong input value range item specified: a,0",
                rank=2,
            ),
        ),
    ),
    FailureCode(
        "bad-input-file",
        "An input file is missing or doesn't have the tensor's size.",
        "Give a file of exactly the tensor's bytes.",
        (
            FailureText(
                r"(Failed to read the input_layer_value_file.*|The size of .* bytes\. It "
                "should be .*)",
                "Failed to read the input_layer_value_file /data/local/tmp/in.bin",
                rank=2,
            ),
        ),
    ),
    FailureCode(
        "context-too-small",
        "The prompt has as many tokens as the language model's context, or more.",
        "Ask for fewer tokens (prefill_tokens), or for a larger context that the model has (max_num_tokens).",
    ),
    FailureCode(
        "bad-threads",
        "The program refuses the number of threads.",
        "Ask for -1 or a number from 1 up.",
        (
            FailureText(
                "(num_threads should be .*)",
                "num_threads should be >= 0 or just -1 to let TFLite runtime set the value.",
                rank=1,
            ),
        ),
    ),
    FailureCode(
        "full-delegation-refused",
        "--require_full_delegation was set and some operators stayed on the CPU.",
        "Leave the flag out to measure a partial delegation, or change the operators that are listed.",
        (
            FailureText(
                r"(Disallowed CPU fallback detected\.)",
                "Disallowed CPU fallback detected.",
                rank=5,
            ),
        ),
    ),
    FailureCode(
        "dynamic-tensors",
        "The delegate takes only models whose tensors have fixed sizes.",
        "Convert the model with a fixed batch and fixed shapes.",
        (
            FailureText(
                "(Attempting to use a delegate that only supports static-sized tensors.*)",
                "Attempting to use a delegate that only supports static-sized tensors w"
                "ith a graph that has dynamic-sized tensors",
                rank=5,
            ),
        ),
    ),
    FailureCode(
        "gpu-init-failed",
        "The GPU delegate was made and could not be set up.",
        "Read the reason: no OpenCL or OpenGL driver, or a tensor that the GPU can't hold.",
        (
            FailureText(
                "(TfLiteGpuDelegate Init: .*)",
                "TfLiteGpuDelegate Init: Only identical batch dimension is supported",
                rank=5,
            ),
            FailureText(
                r"(\[GPU\] Failed to initialize: .*)",
                "[GPU] Failed to initialize: No EGL error, but eglChooseConfig failed",
                rank=5,
            ),
            FailureText(
                ".*?(Failed to create litert::ml_drift::DelegateKernelLiteRt: .*)",
                "Failed to create litert::ml_drift::DelegateKernelLiteRt: INTERNAL: no OpenCL",
                rank=5,
            ),
            FailureText(
                r"(Node number \d+ \(LITERT_\w+\) failed to prepare\.?)",
                "Node number 31 (LITERT_CL) failed to prepare.",
                rank=6,
            ),
            FailureText(
                r".*?(undefined symbol: cl\w+.*)",
                "loading libOpenCL.so: undefined symbol: clGetCommandBufferInfoKHR",
                rank=4,
            ),
            FailureText(
                "(.*cl_khr_3d_image_writes' is not supported.*)",
                "<source>:2:9: error: extension 'cl_khr_3d_image_writes' is not supported",
                rank=4,
            ),
        ),
    ),
    FailureCode(
        "nnapi-failed",
        "The phone's NNAPI driver refused or failed the model.",
        "Try another --nnapi_accelerator_name or the GPU; NNAPI is deprecated since Android 15.",
        (
            FailureText(
                "(NN API returned error .*)",
                "NN API returned error ANEURALNETWORKS_BAD_DATA at line 3918 while adding operation.",
                rank=5,
            ),
            FailureText(
                "(Returning error since NNAPI returned failure .*|Failed to build graph for NNAPI.*)",
                "Returning error since NNAPI returned failure nnapi_delegate.cc:3062.",
                rank=5,
            ),
        ),
    ),
    FailureCode(
        "hexagon-init-failed",
        "The Hexagon delegate could not be set up.",
        "Push libhexagon_interface.so and the skel libraries that fit the phone's DSP.",
        (
            FailureText(
                "(Failed to fetch Hexagon NN version.*)",
                "Failed to fetch Hexagon NN version. This might be because you're using"
                " incompatible versions of libhexagon",
                rank=5,
            ),
            FailureText(
                r".*?(hexagon_nn_\w+ failed\..*)",
                "hexagon_nn_config failed. Error: -1",
                rank=5,
            ),
        ),
    ),
    FailureCode(
        "hexagon-version-skew",
        "libhexagon_interface.so and the skel libraries are of different versions.",
        "Take both from one release.",
        (
            FailureText(
                "(Incompatible versions between interface library and libhexagon_skel.*)",
                "Incompatible versions between interface library and libhexagon_skel 1 vs 2. Abort.",
                rank=5,
            ),
        ),
    ),
    FailureCode(
        "npu-init-failed",
        "LiteRT found no usable dispatch library for the NPU.",
        "Check the dispatch and runtime libraries for this SoC, LD_LIBRARY_PATH and ADSP_LIBRARY_PATH.",
        (
            FailureText(
                "(Failed to create a dispatch delegate kernel: .*)",
                "Failed to create a dispatch delegate kernel: No usable Dispatch runtime found",
                rank=5,
            ),
            FailureText(
                "(No usable Dispatch runtime.*|Failed to initialize Dispatch API.*)",
                "No usable Dispatch runtime found",
                rank=6,
            ),
            FailureText(
                "(You should provide the `DispatchLibraryDir` option.*)",
                "You should provide the `DispatchLibraryDir` option to use the NPU",
                rank=6,
            ),
            FailureText(
                ".*?(Failed to load skel, error: .*)",
                "[ERROR] [Qnn ExecuTorch]: Failed to load skel, error: 4000",
                rank=4,
                next_step="Push the skel library that fits the DSP's version (libQnnHtpVxxSkel.so) "
                "and name its folder in ADSP_LIBRARY_PATH.",
            ),
            FailureText(
                ".*?(qnn_open failed, .*)",
                "<E> DspTransport.openSession qnn_open failed, 0x80000406",
                rank=4,
                next_step="Push the skel library that fits the DSP's version (libQnnHtpVxxSkel.so) "
                "and name its folder in ADSP_LIBRARY_PATH.",
            ),
        ),
    ),
    FailureCode(
        "npu-version-skew",
        "The vendor's NPU library is of another version than LiteRT was built with.",
        "Take the vendor runtime that the LiteRT release names.",
        (
            FailureText(
                r".*?(Qnn (?:\w+ )?library version \S+ is (?:mismatched|not supported)\..*)",
                "Qnn System library version 1.6.0 is mismatched. The minimum supported version is 1.8.0.",
                rank=4,
            ),
            FailureText(
                ".*?(Stub lib id mismatch: expected .*)",
                "<E> Stub lib id mismatch: expected (v2.28.0), detected (v2.25.17)",
                rank=4,
            ),
            FailureText(
                ".*?(Failed to create context from context binary: Unsupported context binary version.*)",
                "Failed to create context from context binary: Unsupported context binary version",
                rank=4,
            ),
            FailureText(
                ".*?(Incompatible Neuron SDK major version: .*)",
                "Incompatible Neuron SDK major version: bytecode compiled with 8.2.30, but runtime is 9.2.0",
                rank=4,
            ),
            FailureText(
                ".*?(Unsupported dispatch runtime version.*)",
                "[litert_dispatch.cc:210] Unsupported dispatch runtime version",
                rank=4,
            ),
        ),
    ),
    FailureCode(
        "external-delegate-failed",
        "The external or stable delegate was loaded and could not be set up.",
        "Read the delegate's own log; check its options.",
        (
            FailureText(
                r"(Failed to apply (?:EXTERNAL|STABLE_DELEGATE) delegate\.)",
                "Failed to apply EXTERNAL delegate.",
                rank=6,
            ),
        ),
    ),
    FailureCode(
        "xnnpack-failed",
        "XNNPACK could not be set up for this model and these shapes.",
        "Often memory: lower the batch; or measure with the builtin kernels (delegate cpu).",
        (
            FailureText(
                "(failed to create XNNPACK runtime.*|XNNPack delegate failed to .*)",
                "failed to create XNNPACK runtime",
                rank=5,
            ),
        ),
    ),
    FailureCode(
        "delegate-failed",
        "The delegate could not be applied.",
        "Read the lines before it in the output.",
        (
            FailureText(
                r"(Failed to apply \w+ delegate\.)",
                "Failed to apply FOO delegate.",
                rank=6,
            ),
        ),
    ),
    FailureCode(
        "op-failed",
        "An operator failed, so the times printed after it are of failing calls.",
        "Read the reason; random inputs may be out of range: set --input_layer_value_range.",
        (
            FailureText(
                r"(Node number \d+ \(\w+\) failed to invoke\.?)",
                "Node number 3 (GATHER) failed to invoke.",
                rank=6,
            ),
        ),
    ),
    FailureCode(
        "allocation-failed",
        "The tensors could not be allocated or an operator could not be prepared.",
        "Read the line before it: memory, or a shape that an operator refuses.",
        (
            FailureText(
                r"(Node number \d+ \(\w+\) failed to prepare\.?)",
                "Node number 3 (CONV_2D) failed to prepare.",
                rank=7,
            ),
            FailureText(
                "(Failed to allocate tensors!)",
                "Failed to allocate tensors!",
                rank=8,
            ),
        ),
    ),
    FailureCode(
        "out-of-memory",
        "The phone refused memory to the program.",
        "Lower the batch, close apps, or take a phone with more memory.",
        (
            FailureText(
                r"(Mmap of .* failed with error '12'\.)",
                "Mmap of '184' at offset '0' failed with error '12'.",
                rank=2,
            ),
            FailureText(
                ".*?(std::bad_alloc.*|[Oo]ut of memory.*)",
                "terminate called after throwing an instance of 'std::bad_alloc'",
                rank=5,
            ),
        ),
    ),
    FailureCode(
        "low-memory-kill",
        "Android killed the program to free memory.",
        "Lower the batch, close apps, or take a phone with more memory.",
    ),
    FailureCode(
        "phantom-process-kill",
        "Android killed the program because too many processes run beside apps (phantom processes).",
        "Lift the limit: adb shell device_config put activity_manager "
        "max_phantom_processes 2147483647; from Android 12L also: settings put "
        "global settings_enable_monitor_phantom_procs false.",
    ),
    FailureCode(
        "killed",
        "The program was killed (SIGKILL) and nothing says by whom.",
        "Look for lmkd in the system log; a time limit of the caller ends a program like this too.",
    ),
    FailureCode(
        "terminated",
        "The program was told to end (SIGTERM, SIGHUP).",
        "Run it again undisturbed.",
    ),
    FailureCode(
        "interrupted",
        "The program was interrupted (Ctrl-C).",
        "Run it again.",
    ),
    FailureCode(
        "output-closed",
        "Whoever read the program's output went away.",
        "Run it again; check the link.",
    ),
    FailureCode(
        "segfault",
        "The program crashed (SIGSEGV).",
        "Read the tombstone's first frames: a driver's or delegate's library is the usual place.",
    ),
    FailureCode(
        "aborted",
        "The program aborted (SIGABRT).",
        "The reason ends with its last line and the tombstone's abort message; "
        "'benchfarm results log RUN' shows the rest.",
    ),
    FailureCode(
        "bus-error",
        "The program crashed (SIGBUS).",
        "A file was cut off while mapped: push the model again.",
    ),
    FailureCode(
        "illegal-instruction",
        "The program used an instruction that this processor lacks (SIGILL).",
        "Take a build for an older architecture.",
    ),
    FailureCode(
        "arithmetic-fault",
        "The program crashed in arithmetic (SIGFPE).",
        "Report it with the model.",
    ),
    FailureCode(
        "app-crashed",
        "The benchmark app ended with a Java exception.",
        "Read the exception in the crash log.",
        (
            FailureText(
                "(Failed to create the interpreter with error: .*)",
                "Failed to create the interpreter with error: The model is too new",
                rank=7,
            ),
        ),
    ),
    FailureCode(
        "process-died",
        "The benchmark app's process disappeared.",
        "Read the crash log and lmkd's lines.",
    ),
    FailureCode(
        "app-not-responding",
        "Android found the app not responding (ANR).",
        "Shorten the run (--max_secs) or measure with the native program.",
    ),
    FailureCode(
        "activity-missing",
        "The app has no such activity, or isn't installed.",
        "Install the APK again; 'benchfarm build' shows the activity that it contains.",
        (
            FailureText(
                r".*?(Activity class \{[^}]*\} does not exist.*)",
                "Error: Activity class {org.tensorflow.lite.benchmark/.BenchmarkModelActivity} does not exist.",
            ),
            FailureText(
                "(Error: Activity class does not exist.*)",
                "Error: Activity class does not exist.",
            ),
        ),
    ),
    FailureCode(
        "activity-refused",
        "The phone refused to start the app's activity.",
        "The reason says why: switch to the phone's main user and unlock it, or allow the app's start.",
        (
            FailureText(
                r".*?((?:java\.lang\.)?SecurityException: .*)",
                "java.lang.SecurityException: Shell does not have permission to access user 10",
            ),
            FailureText(
                "(Error: .*(?:Permission Denial|permission).*)",
                "Error: Permission Denial: starting Intent { } not exported from uid 10123",
            ),
        ),
    ),
    FailureCode(
        "install-failed",
        "The phone's package manager refused the APK.",
        "'benchfarm explain CODE' tells what to do about the reason's code.",
        (
            FailureText(
                r".*?\[?(INSTALL_(?:PARSE_)?FAILED_[A-Z_]+)",
                "adb: failed to install benchmark.apk: Failure [INSTALL_FAILED_OLDER_SDK]",
            ),
            FailureText(
                r".*?(Failure \[-\d+\].*)",
                "adb: failed to install benchmark.apk: Failure [-99]",
                next_step="The phone's maker refuses it: allow 'Install via USB' and 'USB debugging "
                "(Security settings)' in the developer options.",
            ),
        ),
    ),
    FailureCode(
        "selinux-denied",
        "SELinux denied the program something that it needs.",
        "Use /data/local/tmp for the shell and the app's own folder for an app.",
    ),
    FailureCode(
        "storage-full",
        "There is no room for the file that the program writes.",
        "Free space on the phone.",
        (
            FailureText(
                ".*?(No space left on device.*)",
                "write failed: No space left on device",
                rank=5,
            ),
        ),
    ),
    FailureCode(
        "timed-out",
        "The run didn't end in its time.",
        "Raise the timeout, or lower min_secs and num_runs.",
    ),
    FailureCode(
        "no-inferences",
        "The program ran and made no inference (count=0): there is no number.",
        "Leave out --dry_run; ask for num_runs of at least 1 and a max_secs above 0.",
    ),
    FailureCode(
        "too-fast",
        "The inferences took less than what the program rounds its figures to: there is no number.",
        "Measure with the native program, which rounds to microseconds: --tool native --build benchmark_model=PATH.",
    ),
    FailureCode(
        "all-zero",
        "Every inference took 0 microseconds by the program's clock: there is no number.",
        "The model does nothing measurable; measure a larger one.",
    ),
    FailureCode(
        "no-result",
        "The program ended without an error and without its result line.",
        "The output was cut off or written elsewhere; keep stdout and run again.",
    ),
    FailureCode(
        "hung-at-exit",
        "The program printed its whole result and then didn't exit.",
        "The number stands. More threads than the system allows cause this: lower num_threads.",
    ),
    FailureCode(
        "crashed-after-result",
        "The program printed its whole result and then crashed.",
        "The number stands. A driver that fails while unloading causes this.",
    ),
    FailureCode(
        "benchmark-failed",
        "The program said that it failed, without a reason that benchfarm knows.",
        "See all that it printed: benchfarm results log RUN; the reason ends with its last line.",
        (
            FailureText(
                "(Failed to initialize: internalError.*)",
                "Failed to initialize: internalError",
                rank=7,
            ),
            FailureText(
                "(Failed to initialize the interpreter|Failed to set thread number|Run failed: .*)",
                "Failed to initialize the interpreter",
                rank=8,
            ),
            FailureText(
                r"(Failed to (?:load|compile) model\..*|Failed to create litert environment.*)",
                "Failed to compile model.",
                rank=8,
            ),
            FailureText(
                "(Error while (?:running a single-option run|parsing the flags for .*): .*)",
                "Error while running a single-option run: gpu",
                rank=10,
            ),
            FailureText(
                r"(Benchmarking failed\.)",
                "Benchmarking failed.",
                rank=11,
            ),
        ),
    ),
)
#: Codes of the errors that end a run (errors.py), and of those that the engine gives itself.
ERROR_FAILURES: Final = (
    FailureCode(
        "device-set-aside",
        "The phone is kept out until somebody has looked at it.",
        "'benchfarm status' says why; mend that, then 'benchfarm device release SERIAL'.",
    ),
    FailureCode(
        "adb-unavailable",
        "The adb server can't be started or reached.",
        "Start the adb server, or set $BENCHFARM_ADB to an adb binary; then resume.",
    ),
    FailureCode(
        "no-device",
        "No usable phone is attached.",
        "Plug the phone in and allow USB debugging; 'benchfarm devices' must show it.",
        (
            FailureText(
                "no devices/emulators found|more than one device/emulator",
                "more than one device/emulator",
                source=Source.ADB,
                next_step="name the phone's serial; 'benchfarm devices' lists them",
            ),
        ),
    ),
    FailureCode(
        "device-unauthorized",
        "The phone doesn't let this computer in.",
        "Allow this computer in the dialog on the phone's screen, then resume.",
        (
            FailureText(
                "device unauthorized|failed to authenticate",
                "device unauthorized.\nThis adb server's $ADB_VENDOR_KEYS is not set",
                source=Source.ADB,
                next_step="accept the key of this computer on the phone's screen (USB debugging), then try again",
            ),
            FailureText(
                "device still authorizing",
                "device still authorizing",
                source=Source.ADB,
                next_step="wait a moment, or accept the key of this computer on the phone's screen",
            ),
        ),
    ),
    FailureCode(
        "device-unusable",
        "The phone is attached but can't be used.",
        "'benchfarm devices' says why this phone can't be used.",
        (
            FailureText(
                "insufficient permissions|no permissions",
                "insufficient permissions for device: user in plugdev group; are your udev rules wrong?",
                source=Source.ADB,
                next_step="this user may not open the USB device: install udev rules and join the group plugdev",
            ),
            FailureText(
                "more than one device with serial",
                "more than one device with serial X",
                source=Source.ADB,
                next_step="two phones have the same serial number: attach one of them only, or reach it over TCP",
            ),
            FailureText(
                "read-only file system",
                "sh: can't create boot: Read-only file system",
                source=Source.WRITING,
                meaning="the phone's storage is read-only",
                next_step="reboot the phone; when it stays read-only, its storage is damaged",
            ),
        ),
    ),
    FailureCode(
        "device-unfit",
        "The phone didn't become fit to be measured in time.",
        "Let the phone cool, charge it, or wait until it is idle, then resume.",
    ),
    FailureCode(
        "link-lost",
        "The connection to the phone ended before the answer was whole.",
        "Check cable, hub and power, then resume.",
        (
            FailureText(
                "device unresponsive|unknown host service|transport is closing|protocol "
                "fault|couldn't read (?:status|from device)",
                "protocol fault (couldn't read status): Success",
                source=Source.ADB,
                next_step="check the cable or the network; 'benchfarm devices' shows how the phone is",
            ),
            FailureText(
                "not found|no device with transport|device offline|still connecting|closed|no transport",
                "device 'X' not found",
                rank=9,
                source=Source.ADB,
                next_step="check the cable or the network; 'benchfarm devices' shows how the phone is",
            ),
        ),
    ),
    FailureCode(
        "system-down",
        "Android's own services aren't running: the phone boots, or its system has crashed.",
        "Wait until 'adb shell pm path android' answers; reboot the phone if it doesn't.",
        (
            FailureText(
                r".*?(cmd: (?:Can't find service|Failure calling service \w+)\b.*)",
                "cmd: Can't find service: package",
            ),
            FailureText(
                r".*?(Error: .*Is the system running\?.*)",
                "Error: Could not access the Package Manager.  Is the system running?",
            ),
            FailureText(
                "can't find service: (?:package|activity|settings|window)|failure calling "
                r"service \w+|is the system running\?",
                "cmd: Failure calling service package: Broken pipe (32)",
                source=Source.SERVICE,
            ),
        ),
    ),
    FailureCode(
        "log-overrun",
        "The phone's log was overwritten faster than it could be read.",
        "Give the log more room: adb logcat -G 16M; end the app that floods it.",
        (
            FailureText(
                "read: unexpected EOF",
                "read: unexpected EOF!",
                source=Source.SERVICE,
            ),
        ),
    ),
    FailureCode(
        "device-timeout",
        "The phone didn't answer in time.",
        "Look whether the phone hangs; reboot it if it does, then resume.",
    ),
    FailureCode(
        "device-busy",
        "Another benchfarm process is using this phone.",
        "Wait for the other benchfarm process, or choose another phone.",
    ),
    FailureCode(
        "device-changed",
        "The phone that answers isn't the one the run began with: another serial number, or it was rebooted.",
        "Look whether the phone rebooted or another one is on this cable, then measure again.",
    ),
    FailureCode(
        "device-command",
        "A command that had to succeed failed on the phone.",
        "The reason names the command: try it by 'adb shell' on this phone.",
    ),
    FailureCode(
        "folder-refused",
        "The phone's shell user may not write in our folder, or not in /data/local/tmp itself.",
        "Look at both folders' owner and mode: adb shell ls -ld /data/local/tmp /data/local/tmp/benchfarm.",
        (
            FailureText(
                "permission denied|operation not permitted",
                "couldn't create file: Permission denied",
                source=Source.WRITING,
                meaning="the phone's shell user may not write there",
                next_step="'adb shell ls -ld /data/local/tmp /data/local/tmp/benchfarm' shows whose "
                "folders they are: both belong to shell. If /data/local/tmp itself doesn't "
                "(mode 771), reboot the phone; if only the inner one doesn't, remove it as "
                "who made it (root)",
            ),
        ),
    ),
    FailureCode(
        "shell-restricted",
        "The phone's maker doesn't let the shell user do this (MIUI, HyperOS, ColorOS and others).",
        "Turn on 'USB debugging (Security settings)' in the developer options "
        "(some phones: 'Disable permission monitoring'), then reconnect the phone.",
        (
            FailureText(
                "INJECT_EVENTS "
                r"permission|requires:?\s*android\.permission\.WRITE_SECURE_SETTINGS",
                "java.lang.SecurityException: Injecting to another application requires INJECT_EVENTS permission",
                source=Source.SERVICE,
            ),
            FailureText(
                r"requires:?\s*android\.permission\.WRITE_SECURE_SETTINGS",
                "Permission denial: writing to settings requires:android.permission.WRITE_SECURE_SETTINGS",
                source=Source.SERVICE,
            ),
        ),
    ),
    FailureCode(
        "run-as-refused",
        "The phone doesn't give the app's own files away (run-as).",
        "See the reason; figures in the log are read all the same.",
        (
            FailureText(
                "run-as: (?:could ?n[o']t|couldn't) set capabilities|Could not set capabilities",
                "run-as: Could not set capabilities: Operation not permitted",
                source=Source.SERVICE,
                next_step="this phone's system forbids run-as (its kernel or SELinux policy): update "
                "it, or measure with the native program",
            ),
            FailureText(
                r"setegid\(AID_PACKAGE_INFO\) failed|couldn't setegid",
                "run-as: setegid(AID_PACKAGE_INFO) failed: Operation not permitted",
                source=Source.SERVICE,
                next_step="run-as isn't installed as set-uid on this system: take a stock system "
                "image, or measure with the native program",
            ),
            FailureText(
                "run-as: unknown package|run-as: package not found|run-as: Package '[^']*' is unknown",
                "run-as: unknown package: org.tensorflow.lite.benchmark",
                source=Source.SERVICE,
                next_step="the app isn't installed for the user that adb's shell is: install it for "
                "the main user, or update the phone if it is there",
            ),
            FailureText(
                "run-as: [Pp]ackage .*not debuggable",
                "run-as: package not debuggable: org.tensorflow.lite.benchmark",
                source=Source.SERVICE,
                next_step="install a debuggable build of the app",
            ),
            FailureText(
                "run-as: ",
                "run-as: couldn't stat /data/user/0/org.tensorflow.lite.benchmark: Permission denied",
                rank=9,
                source=Source.SERVICE,
                next_step="is the app a debuggable build?",
            ),
        ),
    ),
    FailureCode(
        "file-absent",
        "The app's folder on the iPhone can't be read.",
        "Look whether the app is still installed ('benchfarm device check -s UDID'), then resume.",
    ),
    FailureCode(
        "transfer",
        "What arrived differs from what was sent.",
        "Resume; if it happens often, change the cable.",
    ),
    FailureCode(
        "device-storage",
        "There is no space left on the phone.",
        "Free some space on the phone, or lower the blob budget.",
        (
            FailureText(
                "no space left|quota exceeded",
                "couldn't write: No space left on device",
                source=Source.WRITING,
                meaning="there is no space left on the phone",
                next_step="free some space on the phone",
            ),
        ),
    ),
    FailureCode(
        "install",
        "The phone's package manager refused the APK.",
        "The reason has the package manager's own code; 'adb install' of the same file tells more.",
    ),
    FailureCode(
        "download",
        "A benchmark program couldn't be fetched.",
        "Look at the connection or the mirror, then fetch again.",
    ),
    FailureCode(
        "not-there",
        "The server has no such file.",
        "Look at the address in the build's file ('benchfarm build list'), or at the mirror.",
    ),
    FailureCode(
        "artifact",
        "A benchmark program can't be found or isn't what its checksum says.",
        "See 'benchfarm build' for what is there and what it should be.",
    ),
    FailureCode(
        "model",
        "The model file can't be used: it is missing, truncated or no TFLite flatbuffer.",
        "Check the model file with 'benchfarm model'.",
    ),
    FailureCode(
        "host-storage",
        "There is no space left on this computer.",
        "Free some space on this computer, then resume.",
    ),
    FailureCode(
        "parity-not-in-tool",
        "The program can't write its outputs to a file, so that they can't be compared.",
        "Use 'native' or 'apk', which write their outputs to a file.",
    ),
    FailureCode(
        "parity-no-reference",
        "This computer can't compute the outputs that the phone's are compared with.",
        "The reason says why this computer can't compute the outputs.",
    ),
    FailureCode(
        "parity-own-inputs",
        "The plan names inputs of its own, for which there are no reference outputs.",
        "Leave the input flags out of this plan, or give the inputs by parity_inputs.",
    ),
    FailureCode(
        "abandoned",
        "The run was planned and its campaign was closed before it began.",
        "Measure it again: its campaign was closed before it began.",
    ),
    FailureCode(
        "threads-unused",
        "The program uses fewer threads than were asked for, so that another case has this figure.",
        "Read the figure of the other number of threads; 'matrix.every_thread_count' measures each.",
    ),
    FailureCode(
        "failed-before",
        "The case wasn't tried again after it failed twice the same way.",
        "Mend what the first failure of this case names.",
    ),
    FailureCode(
        "rebooted",
        "The phone rebooted during the run.",
        "Look for the cause (heat, battery, a driver that crashes), then measure again.",
    ),
    FailureCode(
        "no-figure",
        "The program ended well and gave no figure.",
        "Read its log: the program ended well without a single inference; look at the flags.",
    ),
)
#: Two switches of the phone and one of Samsung's.
_VERIFIED: Final = (
    "allow 'Install via USB' and turn off 'Verify apps over USB' in the developer options; Play Protect and Samsung's "
    "Auto Blocker refuse like this too"
)
#: The package manager's codes -> what to do.
INSTALL_STEPS: Final[Mapping[str, str]] = {
    "INSTALL_FAILED_ALREADY_EXISTS": "uninstall the package first: adb uninstall PACKAGE",
    "INSTALL_FAILED_UPDATE_INCOMPATIBLE": "a build with another signature is installed: adb uninstall PACKAGE",
    "INSTALL_FAILED_SHARED_USER_INCOMPATIBLE": "uninstall the package that shares its user id first",
    "INSTALL_FAILED_VERSION_DOWNGRADE": "a newer version is installed: adb uninstall PACKAGE",
    "INSTALL_FAILED_INSUFFICIENT_STORAGE": "free some space on the phone",
    "INSTALL_FAILED_NO_MATCHING_ABIS": "this APK has no code for the phone's processor: choose a build for its ABI",
    "INSTALL_FAILED_CPU_ABI_INCOMPATIBLE": "this APK has no code for the phone's processor: choose a build for its ABI",
    "INSTALL_FAILED_OLDER_SDK": "this APK asks for a newer Android than the phone has: choose an older build",
    "INSTALL_FAILED_NEWER_SDK": "this APK was made for an older Android only: choose a newer build",
    "INSTALL_FAILED_DEPRECATED_SDK_VERSION": "this APK targets an Android too old for the phone: choose a newer build",
    "INSTALL_FAILED_MISSING_SHARED_LIBRARY": "the phone lacks a library that the APK asks for: choose another build",
    "INSTALL_FAILED_MISSING_SPLIT": "this is one part of a split APK: choose a build that is one whole APK",
    "INSTALL_FAILED_TEST_ONLY": "this APK is marked test-only: build it for release or with the test-only flag off",
    "INSTALL_FAILED_USER_RESTRICTED": "allow 'Install via USB' in the developer options; some makers ask for an account",
    "INSTALL_FAILED_VERIFICATION_FAILURE": _VERIFIED,
    "INSTALL_FAILED_VERIFICATION_TIMEOUT": _VERIFIED,
    "INSTALL_FAILED_ABORTED": "the phone aborted it: look at its screen for a question, then try again",
    "INSTALL_FAILED_DEXOPT": "the phone couldn't compile the app: free some space, then try again",
    "INSTALL_FAILED_CONFLICTING_PROVIDER": "another app provides the same content: uninstall that one",
    "INSTALL_FAILED_DUPLICATE_PERMISSION": "another app defines the same permission: uninstall that one",
    "INSTALL_FAILED_INVALID_APK": "the file isn't a sound APK: fetch or build it again",
    "INSTALL_FAILED_INVALID_URI": "the phone couldn't read the pushed file: try again",
    "INSTALL_FAILED_INTERNAL_ERROR": "look into the phone's log (adb logcat), reboot it and try again",
    "INSTALL_FAILED_MEDIA_UNAVAILABLE": "the phone's storage isn't mounted: reboot it",
    "INSTALL_PARSE_FAILED_NOT_APK": "the file isn't an APK: fetch or build it again",
    "INSTALL_PARSE_FAILED_BAD_MANIFEST": "the APK's manifest can't be read: fetch or build it again",
    "INSTALL_PARSE_FAILED_UNEXPECTED_EXCEPTION": "the APK can't be read: fetch or build it again",
    "INSTALL_PARSE_FAILED_NO_CERTIFICATES": "the APK isn't signed (or was damaged): sign it",
    "INSTALL_PARSE_FAILED_INCONSISTENT_CERTIFICATES": "the APK's signatures contradict each other: sign it again",
    "INSTALL_PARSE_FAILED_MANIFEST_MALFORMED": "the APK's manifest is malformed: fetch or build it again",
    "-99": (
        "the phone's maker refuses it: allow 'Install via USB' and 'USB debugging (Security settings)' in the "
        "developer options"
    ),
}
#: Code -> its record.
FAILURES: Final[Mapping[str, FailureCode]] = {
    item.code: item for item in (*ERROR_FAILURES, *RUN_FAILURES)
}


def next_step_of(code: str, reason: str = "") -> str:
    """Return what to do about a failure, empty for a code that isn't known; its reason may say more
    than the code.
    """
    failure = FAILURES.get(code)
    if failure is None:
        return ""
    if (word := re.search(r"\bINSTALL_[A-Z_]+|(?<=Failure \[)-\d+", reason)) and word[
        0
    ] in INSTALL_STEPS:
        return INSTALL_STEPS[word[0]]
    of_text = (
        text.next_step
        for text in failure.texts
        if text.next_step and re.search(text.pattern, reason, re.I)
    )
    return next(of_text, failure.next_step)


def texts_of(source: Source) -> tuple[tuple[FailureText, FailureCode], ...]:
    """Return the texts of a source with their codes, in the order in which they are tried."""
    found = [
        (text, item) for item in FAILURES.values() for text in item.texts if text.source is source
    ]
    return tuple(sorted(found, key=lambda pair: pair[0].rank))
