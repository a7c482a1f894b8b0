"""Requested against actual: each trap that makes a CPU's number look like an accelerator's."""

import pytest

from orchestrator.records.run import DelegateEvidence, DelegateShare, DelegateTruth
from orchestrator.tools.delegate_clues import DelegateClues, DelegateRequest
from orchestrator.tools.delegation import judge_delegate
from orchestrator.tools.output import parse_run
from orchestrator.tools.protos import RuntimeNodes

LOADED = "INFO: Loaded model m.tflite\n"
XNNPACK = "INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n"
READY = "INFO: Initialized session in 2.5ms.\n"
RESULT = (
    "INFO: Running benchmark for at least 1 iterations and at least 1 seconds but terminate if exceeding 150 seconds.\n"
    "INFO: count=3 first=5 curr=4 min=4 max=5 avg=4.5 std=0 p5=4 median=4 p95=5\n\n"
    "INFO: Running benchmark for at least 5 iterations and at least 1 seconds but terminate if exceeding 150 seconds.\n"
    "INFO: count=5 first=5 curr=4 min=4 max=5 avg=4.2 std=0 p5=4 median=4 p95=5\n\n"
    "INFO: Inference timings in us: Init: 2500, First inference: 5, Warmup (avg): 4.5, Inference (avg): 4.2\n"
)
NNAPI_ALL = (
    "INFO: Created TensorFlow Lite delegate for NNAPI.\n"
    "VERBOSE: Replacing 31 out of 31 node(s) with delegate (TfLiteNnapiDelegate) node, yielding 1 partitions.\n"
    "INFO: Explicitly applied NNAPI delegate, and the model graph will be completely executed by the delegate.\n"
)
GPU_ALL = "INFO: Explicitly applied GPU delegate, and the model graph will be completely executed by the delegate.\n"
GPU_NONE = "INFO: Though GPU delegate is explicitly applied, the model graph will not be executed by the delegate.\n"
GPU_PART = GPU_ALL.replace(
    "completely executed by the delegate", "partially executed by the delegate w/ 1 delegate kernels"
)


def judged(middle: str, requested: str, *, echo: str = "", exit_code: int = 0, ready: bool = True) -> DelegateEvidence:
    text = f"INFO: STARTING!\nINFO: Graph: [m.tflite]\n{echo}{LOADED}{middle}{READY + RESULT if ready else ''}"
    report = parse_run(stdout=text.encode(), stderr=b"", exit_code=exit_code, timed_out=False, requested=requested)
    return report.delegate


@pytest.mark.parametrize(
    ("requested", "middle", "echo", "truth", "actual"),
    [
        ("gpu", XNNPACK, "WARN: Unconsumed cmdline flags: --use_gpu=true\n", "flag-ignored", "xnnpack"),
        ("gpu", "WARN: GPU acceleration is unsupported on this platform.\n" + XNNPACK, "", "fell-back", "xnnpack"),
        ("gpu", "", "INFO: Use xnnpack: [0]\nINFO: Use gpu: [1]\n", "fell-back", "cpu"),
        ("external", XNNPACK, "INFO: External delegate path: [x.so]\n", "fell-back", "xnnpack"),
        ("external", "ERROR: Invalid TFLiteSettings for the stable delegate.\n" + XNNPACK, "", "fell-back", "xnnpack"),
        ("hexagon", "WARN: Could not create Hexagon delegate: platform may not\n", "", "fell-back", ""),
        ("cpu", XNNPACK, "INFO: Use xnnpack: [0]\n", "wrong-backend", "xnnpack"),
        ("cpu", "", "INFO: Use xnnpack: [0]\n", "full", "cpu"),
        ("cpu", "", "", "unknown", ""),
        ("nnapi", "INFO: NNAPI accelerators available: [nnapi-reference]\n" + NNAPI_ALL, "", "wrong-backend",
         "nnapi-reference"),
        ("nnapi", "INFO: NNAPI accelerators available: [qti-dsp,nnapi-reference]\n" + NNAPI_ALL, "", "full", "nnapi"),
        ("gpu", "ERROR: Falling back to OpenGL\nINFO: Initialized OpenGL-based API.\n" + GPU_ALL, "", "wrong-backend",
         "gpu"),
        ("gpu", "INFO: Initialized OpenGL-based API.\n" + GPU_ALL, "INFO: GPU backend: [gl]\n", "full", "gpu"),
        ("gpu", "INFO: Initialized OpenGL-based API.\n" + GPU_ALL, "INFO: GPU backend: [cl]\n", "wrong-backend", "gpu"),
        ("gpu", "INFO: Initialized OpenCL-based API.\n" + GPU_ALL, "", "full", "gpu"),
        ("gpu", GPU_NONE + XNNPACK, "", "none", "xnnpack"),
    ],
)  # fmt: skip
def test_what_ran_is_not_what_was_asked_for(requested: str, middle: str, echo: str, truth: str, actual: str) -> None:
    evidence = judged(middle, requested, echo=echo)
    assert (evidence.truth.value, evidence.actual) == (truth, actual)


def test_replacing_every_node_proves_nothing_when_a_failure_follows() -> None:
    middle = (
        NNAPI_ALL.partition("INFO: Explicitly")[0]
        + "ERROR: Failed to apply NNAPI delegate.\nERROR: Benchmarking failed.\n"
    )
    evidence = judged(middle, "nnapi", exit_code=1, ready=False)
    assert (evidence.truth, evidence.actual) == (DelegateTruth.FAILED, "")
    assert evidence.lines[0] == "Failed to apply NNAPI delegate."


def test_operators_left_to_the_cpu_are_listed_with_their_reasons() -> None:
    middle = (
        "ERROR: Following operations are not supported by GPU delegate:\n"
        "TOPK_V2: Operation is not supported.\n"
        "CUSTOM TFLite_Detection_PostProcess: Operation is not supported.\n"
        "4 operations will run on the GPU, and the remaining 2 operations will run on the CPU.\n"
    )
    evidence = judged(middle + GPU_PART, "gpu")
    assert evidence.truth is DelegateTruth.PARTIAL
    assert [name for name, _ in evidence.cpu_operators] == ["TOPK_V2", "CUSTOM TFLite_Detection_PostProcess"]


def test_runtime_info_decides_against_the_log() -> None:
    clues = DelegateClues()
    clues.feed("Explicitly applied GPU delegate, and the model graph will be completely executed by the delegate.")
    runtime = RuntimeNodes(
        shares=(
            DelegateShare(delegate="TfLiteGpuDelegateV2", delegated_nodes=9, total_nodes=10, partitions=2, subgraph=0),
        ),
        total_nodes=10,
        cpu_operators=("SOFTMAX",),
    )
    evidence = judge_delegate(
        clues, DelegateRequest(delegates=("gpu",)), runtime=runtime, has_result=True, has_started=True, is_whole=True
    )
    assert evidence.truth is DelegateTruth.PARTIAL
    assert (evidence.delegated_nodes, evidence.total_nodes, evidence.partitions) == (9, 10, 2)
    assert evidence.cpu_operators == (("SOFTMAX", ""),)


def test_an_excerpt_without_any_line_about_the_delegate_proves_nothing() -> None:
    report = parse_run(stdout=RESULT.encode(), stderr=b"", exit_code=0, timed_out=False, requested="gpu")
    assert report.delegate.truth is DelegateTruth.UNKNOWN
