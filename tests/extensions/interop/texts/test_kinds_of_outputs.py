"""What outputs of phones say, 2018 to 2026: a short text for each kind that people keep, and what
it holds.

The texts are made up, with the forms and figures of real ones. The collections beside the
repository hold whole ones.
"""

import pytest

from orchestrator.errors import OutputParseError
from orchestrator.extensions.interop.texts.output import parse_text
from tests.samples.careful_reader import found_in


def run(
    *setup: str, mean: str = "306869", first: str = "332961", init: str = "2227672", end: str = ""
) -> str:
    """A run of benchmark_model with these lines between its parameters and its figures."""
    return "\n".join(
        [
            "STARTING!", "Log parameter values verbosely: [0]", "Num threads: [4]", "Graph: [/data/local/tmp/m.tflite]",
            *setup,
            f"count=25 first=313325 curr=308050 min=299074 max=3247030 avg={mean} std=6003",
            (f"Inference timings in us: Init: {init}, First inference: {first}, Warmup (avg): 318238, "
            f"Inference (avg): {mean}"),
            end,
        ]
    )  # fmt: skip


def failed(*lines: str, setup: tuple[str, ...] = ()) -> str:
    echoed = [
        "STARTING!",
        "Log parameter values verbosely: [0]",
        "Graph: [/data/local/tmp/m.tflite]",
        *setup,
    ]
    return "\n".join(
        [*echoed, "Loaded model /data/local/tmp/m.tflite", *lines, "Benchmarking failed.", ""]
    )


def logcat(text: str, tag: str = "tflite", pid: int = 29423) -> str:
    header = f"08-17 21:47:49.138 {pid} {pid} I {tag}  : "
    return "".join(f"{header}{line.removeprefix('INFO: ')}\n" for line in text.splitlines())


LOADED = "Loaded model /data/local/tmp/m.tflite"
XNNPACK = "INFO: Created TensorFlow Lite XNNPACK delegate for CPU."
GPU = "INFO: Created TensorFlow Lite delegate for GPU."
NNAPI = "INFO: Created TensorFlow Lite delegate for NNAPI."
READY = "Initialized session in 2227.67ms."


def took(own: int, every: int | str, name: str, parts: int = 1) -> str:
    of = f" out of {every}" if every else ""
    return f"INFO: Replacing {own}{of} node(s) with delegate ({name}) node, yielding {parts} partitions for subgraph 0."


KINDS: dict[str, tuple[str, dict[str, object]]] = {
    "the GPU took a part, XNNPACK some of the rest": (
        run(
            LOADED, "Use gpu: [1]", GPU, "Following operations are not supported by GPU delegate:",
            "GATHER_ND: Operation is not supported.", "SIGN: OP is supported, but tensor type/shape isn't compatible.",
            took(54, 559, "TfLiteGpuDelegateV2", 3), took(456, 506, "TfLiteXNNPackDelegate", 13), READY,
        ),
        {
            "actual_delegate": "gpu+xnnpack", "delegate_status": "partial", "delegated_nodes": 54, "total_nodes": 559,
            "unsupported_ops": 2, "xnnpack_delegated_nodes": 456, "xnnpack_partitions": 13, "init_us": 2227672,
        },
    ),
    "the GPU's delegate can't hold a tensor": (
        failed(
            GPU, took(127, 1338, "TfLiteGpuDelegateV2", 3),
            "ERROR: TfLiteGpuDelegate Init: CONCATENATION: Expected a 4D tensor of shape BxHxWxC but got 1x1x384",
            "ERROR: TfLiteGpuDelegate Prepare: delegate is not initialized",
            "ERROR: Node number 1338 (TfLiteGpuDelegateV2) failed to prepare.", "Failed to apply GPU delegate.",
            setup=("Use gpu: [1]",),
        ),
        {
            "outcome": "failed", "delegate_status": "failed", "delegated_nodes": 127, "requested_delegate": "gpu",
            "failure_reason": "TfLiteGpuDelegate Init: CONCATENATION: Expected a 4D tensor of shape BxHxWxC but got "
            "1x1x384",
        },
    ),
    "an accelerator of NNAPI failed to compile": (
        failed(
            NNAPI, "ERROR: NN API returned error ANEURALNETWORKS_OP_FAILED at line 3779 while completing NNAPI "
            "compilation.", "ERROR: Node number 248 (TfLiteNnapiDelegate) failed to prepare.",
            "Failed to apply NNAPI delegate.", setup=("Use NNAPI: [1]", "NNAPI accelerator name: [qti-default]"),
        ),
        {
            "outcome": "failed", "delegate_status": "failed", "accelerator": "qti-default",
            "failure_code": "nnapi-failed", "requested_delegate": "nnapi",
        },
    ),
    "NNAPI failed while the model ran": (
        logcat("ModelBuilder::findBestDeviceForEachOperation(CONV_2D) = 0 (qti-dsp)", tag="ExecutionPlan")
        + logcat("SIMPLE for qti-dsp", tag="ExecutionPlan")
        + logcat(
            "NN API returned error ANEURALNETWORKS_OP_FAILED at line 4113 while running computation.\n"
            "Node number 248 (TfLiteNnapiDelegate) failed to invoke.\n"
        ).replace(" I tflite", " E tflite"),
        {
            "outcome": "failed", "delegate_status": "failed", "accelerator": "qti-dsp",
            "failure_reason": "NN API returned error ANEURALNETWORKS_OP_FAILED at line 4113 while running computation. "
            "/ Node number 248 (TfLiteNnapiDelegate) failed to invoke.",
        },
    ),
    "NNAPI took all on its own CPU": (
        run(
            LOADED, "Use NNAPI: [1]", "NNAPI accelerator name: [nnapi-reference]",
            "NNAPI accelerators available: [google-edgetpu,nnapi-reference]", NNAPI,
            took(115, 115, "TfLiteNnapiDelegate"),
            "Explicitly applied NNAPI delegate, and the model graph will be completely executed by the delegate.",
            READY, mean="402153",
        ),
        {"delegate_truth": "wrong-backend", "actual_delegate": "nnapi-reference", "inference_avg_us": 402153},
    ),
    "NNAPI was applied and took nothing": (
        ("INFO: Though NNAPI delegate is explicitly applied, the model graph\n"
        "      will not be executed by the delegate.\n"
        "INFO: Inference (avg): 21140.3 us\n"),
        {"outcome": "ok", "delegate_status": "none", "requested_delegate": "nnapi", "inference_avg_us": 21140.3},
    ),
    "a sentence wrapped by its author, and a unit in words": (
        ("Explicitly applied NNAPI delegate, and the model graph will be\ncompletely executed by the delegate.\n"
        "Inference (avg): 766 microseconds\n"),
        {"outcome": "ok", "delegate_status": "full", "actual_delegate": "nnapi", "inference_avg_us": 766},
    ),
    "XNNPACK tells no total": (
        run(LOADED, XNNPACK, took(75, "", "TfLiteXNNPackDelegate").replace(" for subgraph 0", ""), READY),
        {"delegate_status": "unknown", "delegated_nodes": 75, "partitions": 1, "actual_delegate": "xnnpack"},
    ),
    "the words of 2019": (
        ("STARTING!\nNum threads: [1]\nGraph: [/data/local/tmp/m.tflite]\nUse nnapi : [0]\nUse legacy nnapi : [0]\n"
        "Use gpu : [0]\nLoaded model /data/local/tmp/m.tflite\nInitialized session in 1.892ms\n"
        "count=6 first=91810 curr=88216 min=84000 max=91810 avg=86184.3 std=2000\n"
        "count=50 first=89000 curr=129193 min=88216 max=129193 avg=115062 std=7678\n"
        "Average inference timings in us: Warmup: 86184.3, Init: 1892, no stats: 115062\n"),
        {"outcome": "ok", "inference_avg_us": 115062, "warmup_avg_us": 86184.3, "actual_delegate": "cpu"},
    ),
    "only count and result lines of a notebook": (
        ("    !adb shell /data/local/tmp/benchmark_model --graph=/data/local/tmp/m.tflite --num_threads=8 "
        "--use_xnnpack=true\n    # count=50 first=187881 curr=177890 min=172574 max=273037 avg=179291 std=14146\n"
        "    # Inference timings in us: Init: 97564, First inference: 267559, Warmup (avg): 206443, "
        "Inference (avg): 179291\n"),
        {"requested_delegate": "xnnpack", "delegate_status": "unknown", "inference_avg_us": 179291, "num_threads": 8},
    ),
    "an operator that needs TensorFlow": (
        logcat("Node number 213 (FlexErf) failed to prepare.\n").replace(" I tflite", " E tflite"),
        {"outcome": "failed", "missing": "flex", "failure_reason": "Node number 213 (FlexErf) failed to prepare."},
    ),
    "an iPhone's console, each line twice": (
        ("2023-04-18 11:09:18.315345+0800 Demo[2245:652100] Created TensorFlow Lite delegate for Metal.\n"
        "INFO: Created TensorFlow Lite delegate for Metal.\n"
        "2023-04-18 11:09:18.412768+0800 Demo[2245:652101] Node number 0 (FlexDecodeJpeg) failed to prepare.\n"
        "ERROR: Node number 0 (FlexDecodeJpeg) failed to prepare.\n"
        "Failed to initialize: internalError(Failed to allocate memory for input tensors.)\n"),
        {"outcome": "failed", "delegate_status": "failed", "requested_delegate": "metal"},
    ),
    "an external delegate that crashed": (
        failed("EXTERNAL delegate created.", setup=("External delegate path: [/data/local/tmp/libd.so]",)).replace(
            "Benchmarking failed.", "Segmentation fault"
        ),
        {"outcome": "crashed", "failure_reason": "Segmentation fault", "requested_delegate": "external"},
    ),
    "another program's crash": (
        ("06-18 10:20:42.000  1111  1111 F libc    : Fatal signal 11 (SIGSEGV), code 1 (SEGV_MAPERR), fault addr 0x0\n"
        "06-18 10:20:42.100  1200  1200 F DEBUG   : pid: 1111, tid: 1111, name: rome  >>> org.browser <<<\n"),
        {"outcome": "crashed", "process": "org.browser"},
    ),
    "an NPU that took the compiled model": (
        logcat("[litert_dispatch.cc:159] Loading shared library: /data/x/libLiteRtDispatch_Samsung.so", tag="litert")
        + logcat(took(1, 1, "DispatchDelegate")),
        {"requested_delegate": "npu", "actual_delegate": "npu", "delegate_status": "full", "outcome": "truncated"},
    ),
    "an NPU of which nothing says what it took": (
        "03:23:19 I/litert  (27692): [neuron_adapter_api.cc:136] Loading MediaTek NeuronAdapter .so from: x.so\n",
        {"requested_delegate": "npu", "delegate_status": "unknown", "outcome": "truncated"},
    ),
    "an NPU whose kernel wasn't made": (
        logcat(took(1, 1, "DispatchDelegate"))
        + logcat("[dispatch_delegate.cc:99] Failed to create a dispatch delegate kernel: No runtime", tag="litert")
        .replace(" I litert", " E litert"),
        {"delegate_status": "failed", "failure_code": "npu-init-failed", "requested_delegate": "npu"},
    ),
    "an app that can't be installed": (
        "Performing Streamed Install\nadb: failed to install a.apk: Failure [INSTALL_FAILED_UPDATE_INCOMPATIBLE: x]\n",
        {"outcome": "failed", "failure_reason": "INSTALL_FAILED_UPDATE_INCOMPATIBLE"},
    ),
    "an app that was started": (
        ("m.tflite: 1 file pushed, 0 skipped. (5058721 bytes in 0.155s)\nPerforming Streamed Install\nSuccess\n"
        "Starting: Intent { cmp=org.tensorflow.lite.benchmark/.BenchmarkModelActivity }\n"),
        {"outcome": "ok", "install": "Success", "pushed_bytes": 5058721},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_holds_what_a_careful_reader_finds_in_it(kind: str) -> None:
    text, expected = KINDS[kind]
    (report,) = parse_text(text)
    public = found_in(report)
    assert {name: public.get(name) for name in expected} == expected


def test_runs_one_after_the_other_are_each_read_with_their_own_delegate() -> None:
    nnapi = ("Use NNAPI: [1]", "NNAPI accelerator name: [google-edgetpu]", LOADED, NNAPI)
    text = "".join(
        [
            run(LOADED, XNNPACK, took(29, 40, "TfLiteXNNPackDelegate", 3), READY, mean="25679.9"),
            failed("ERROR: NN API returned error ANEURALNETWORKS_BAD_DATA at line 4768 while adding operation.",
                   "Failed to apply NNAPI delegate.", setup=nnapi),
            run(*nnapi, took(31, 31, "TfLiteNnapiDelegate"),
                "Explicitly applied NNAPI delegate, and the model graph will be completely executed by the delegate.",
                READY, mean="1076.32"),
        ]
    )  # fmt: skip
    found = [
        (
            each.inference_mean_us,
            each.delegate.requested,
            each.delegate.actual,
            each.delegate.truth.value,
        )
        for each in parse_text(text)
    ]
    assert found == [
        (25679.9, "cpu", "xnnpack", "partial"), (None, "nnapi", "", "failed"), (1076.32, "nnapi", "nnapi", "full")
    ]  # fmt: skip


def test_an_operator_table_under_a_heading_of_its_own_is_a_run_without_a_result() -> None:
    table = (
        "## Profile\n============================== Run Order ==============================\n"
        "\t             [node type]\t  [first]\t [avg ms]\t     [%]\t  [cdf%]\t  [mem KB]\t[times called]\t[Name]\n"
        "\t     TfLiteNnapiDelegate\t    5.000\t    5.100\t100.000%\t100.000%\t     0.000\t        1\t[x]:115\n"
    )
    whole, alone = parse_text(run("Use NNAPI: [1]", LOADED, NNAPI, READY) + table)
    assert (whole.inference_mean_us, len(whole.operators)) == (306869, 0)
    assert (alone.inference_mean_us, len(alone.operators)) == (None, 1)


def test_rows_of_performance_options_keep_their_names_and_order() -> None:
    rows = {
        "cpu w/ 4 threads": "33904.9",
        "cpu w/ 1 threads (xnnpack)": "98936.8",
        "gpu-fp16": "41000.5",
    }
    text = "==============Summary of All Runs w/ Different Performance Options==============\n"
    text += "".join(
        f"{name:>30}: count=50 first=34893 curr=35000 min=33000 max=99999 avg={mean} std=700\n"
        for name, mean in rows.items()
    )
    assert {report.label: f"{report.inference_mean_us:.6g}" for report in parse_text(text)} == rows


@pytest.mark.parametrize(
    "text",
    [
        "[ro.product.model]: [Pixel 8]\n[ro.build.version.sdk]: [36]\n",
        "Current Battery Service state:\n  AC powered: false\n  level: 75\n  temperature: 357\n",
        "List of devices attached\n041234567892009a\tunauthorized\nemulator-5554\tdevice model:x\n",
        "IsStatusOverride: false\nThermal Status: 0\nCached temperatures:\n\tTemperature{mValue=32.4, mType=3}\n",
        "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd05\n",
        "Killed\n",
        "\n\n",
    ],
    ids=["getprop", "battery", "adb devices", "thermal service", "cpuinfo", "a word", "nothing"],
)
def test_the_state_of_a_phone_is_no_output(text: str) -> None:
    with pytest.raises(OutputParseError):
        parse_text(text)
