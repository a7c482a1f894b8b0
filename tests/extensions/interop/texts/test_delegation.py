"""Requested against actual: each trap that makes a CPU's number look like an accelerator's."""

import pytest

from orchestrator.delegates import place_of
from orchestrator.delegates.judging import extent_of
from orchestrator.extensions.interop.texts.output import parse_text
from orchestrator.reading.profile import decode_message
from orchestrator.reading.report import parse_run
from orchestrator.records.run import DelegateEvidence, DelegateTruth
from tests.samples.tools import raw_of

LOADED = "INFO: Loaded model m.tflite\n"
XNNPACK = "INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n"
FLEX = (
    "INFO: Created TensorFlow Lite delegate for select TF ops.\n"
    "VERBOSE: Replacing 2 out of 31 node(s) with delegate (TfLiteFlexDelegate) node, yielding 3 partitions.\n"
)
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
PARTLY = (
    "completely executed by the delegate",
    "partially executed by the delegate w/ 1 delegate kernels",
)
GPU_PART = GPU_ALL.replace(*PARTLY)
EXTERNAL_ALL = GPU_ALL.replace("GPU", "EXTERNAL")
EXTERNAL_PART = EXTERNAL_ALL.replace(*PARTLY)
EXTERNAL_NONE = GPU_NONE.replace("GPU", "EXTERNAL")
XNNPACK_PART = GPU_PART.replace("GPU", "XNNPACK")
XNNPACK_NONE = GPU_NONE.replace("GPU", "XNNPACK")
YNNPACK_ALL = GPU_ALL.replace("GPU", "YNNPACK")
NO_OPENCL = "INFO: [ml_drift_cl_gl_accelerator.cc:126] OpenCL not supported on this platform. Using OpenGL instead.\n"


#: XNNPACK, which comes unasked, fails after another one was applied (TensorFlow's issue 53423).
TAKEN_BACK = (
    XNNPACK + "ERROR: Restored original execution plan after delegate application failure.\n"
)
NO_ACCELERATOR = (
    "WARNING: [gpu_registry.cc:131] GPU accelerator could not be loaded and registered.\n"
)


def replacing(delegate: str) -> str:
    where = "node, yielding 1 partitions for subgraph 0 ()."
    return f"VERBOSE: Replacing 31 out of 31 node(s) with delegate ({delegate}) {where}\n"


def judged(
    middle: str,
    requested: str,
    *,
    echo: str = "",
    exit_code: int = 0,
    ready: bool = True,
    after: str = "",
) -> DelegateEvidence:
    end = READY + RESULT + after if ready else ""
    text = f"INFO: STARTING!\nINFO: Graph: [m.tflite]\n{echo}{LOADED}{middle}{end}"
    report = parse_run(raw_of(text, exit_code=exit_code), requested=requested)
    return report.delegate


@pytest.mark.parametrize(
    ("requested", "middle", "echo", "truth", "actual"),
    [
        ("gpu", "WARN: GPU acceleration is unsupported on this platform.\n" + XNNPACK, "", "fell-back", "xnnpack"),
        ("gpu", "", "INFO: Use xnnpack: [0]\nINFO: Use gpu: [1]\n", "fell-back", "cpu"),
        ("external", XNNPACK + FLEX, "INFO: External delegate path: [x.so]\n", "fell-back", "xnnpack"),
        ("hexagon", "WARN: Could not create Hexagon delegate: platform may not\n", "", "fell-back", ""),
        ("cpu", XNNPACK, "INFO: Use xnnpack: [0]\n", "wrong-backend", "xnnpack"),
        ("nnapi", "INFO: NNAPI accelerators available: [nnapi-reference]\n" + NNAPI_ALL, "", "wrong-backend",
         "nnapi-reference"),
        ("nnapi", "INFO: NNAPI accelerators available: [qti-dsp,nnapi-reference]\n" + NNAPI_ALL, "", "full", "nnapi"),
        ("gpu", "ERROR: Falling back to OpenGL\nINFO: Initialized OpenGL-based API.\n" + GPU_ALL,
         "INFO: GPU backend: [cl]\n", "wrong-backend", "gpu"),
        ("gpu", "INFO: Initialized OpenGL-based API.\n" + GPU_ALL, "INFO: GPU backend: [gl]\n", "full", "gpu"),
        ("gpu", "INFO: Initialized OpenGL-based API.\n" + GPU_ALL, "INFO: GPU backend: [cl]\n", "wrong-backend", "gpu"),
        ("gpu", "DEBUG: [compiled_model.cc:1003] Apply accelerator LiteRT GPU\n", "", "unknown", ""),
        ("gpu", NO_ACCELERATOR + XNNPACK, "", "fell-back", "xnnpack"),
        ("nnapi", NNAPI_ALL + TAKEN_BACK, "", "fell-back", "cpu"),
        ("gpu", GPU_ALL + TAKEN_BACK, "", "fell-back", "cpu"),
        ("", replacing("TfLiteXNNPackDelegate") + TAKEN_BACK, "", "full", "cpu"),
        ("gpu", NO_OPENCL + replacing("LITERT_OPENGL"), "INFO: GPU backend: [webgpu]\n", "wrong-backend", "gpu"),
        ("cpu", EXTERNAL_ALL, "INFO: Use xnnpack: [0]\n", "wrong-backend", "external"),
        ("cpu", YNNPACK_ALL, "INFO: Use xnnpack: [0]\nINFO: Use ynnpack: [1]\n", "wrong-backend", "ynnpack"),
        ("cpu", replacing("SomebodysDelegate"), "INFO: Use xnnpack: [0]\n", "wrong-backend", "external"),
        ("cpu", replacing("TfLiteFlexDelegate"), "INFO: Use xnnpack: [0]\n", "full", "cpu"),
        ("xnnpack", XNNPACK + EXTERNAL_ALL + XNNPACK_NONE, "INFO: Use xnnpack: [1]\n", "wrong-backend", "external"),
        ("xnnpack", XNNPACK + EXTERNAL_PART + XNNPACK_PART, "INFO: Use xnnpack: [1]\n", "wrong-backend", "external"),
        ("xnnpack", XNNPACK + EXTERNAL_NONE + XNNPACK_PART, "INFO: Use xnnpack: [1]\n", "partial", "xnnpack"),
    ],
)  # fmt: skip
def test_what_ran_is_not_what_was_asked_for(
    requested: str, middle: str, echo: str, truth: str, actual: str
) -> None:
    evidence = judged(middle, requested, echo=echo)
    assert (evidence.truth.value, evidence.actual) == (truth, actual)


@pytest.mark.parametrize(
    "middle",
    [
        "ERROR: Falling back to OpenGL\nINFO: Initialized OpenGL-based API.\n" + GPU_ALL,
        NO_OPENCL + replacing("LITERT_OPENGL"),
    ],
)
def test_opengl_is_the_gpu_unless_another_backend_was_asked_for(middle: str) -> None:
    evidence = judged(middle, "gpu")
    assert (evidence.truth, evidence.actual, place_of(evidence)) == (
        DelegateTruth.FULL,
        "gpu",
        "gpu (OpenGL)",
    )


@pytest.mark.parametrize(
    ("delegate", "backend", "asked", "truth"),
    [
        ("LITERT_CL", "opencl", "cl", "full"),
        ("LITERT_CL", "opencl", "opengl", "wrong-backend"),
        ("LITERT_WEBGPU", "webgpu", "webgpu", "full"),
        ("LITERT_VULKAN", "vulkan", "opengl", "wrong-backend"),
    ],
)
def test_a_delegate_of_litert_names_the_backend_that_ran(
    delegate: str, backend: str, asked: str, truth: str
) -> None:
    evidence = judged(replacing(delegate), "gpu", echo=f"INFO: GPU backend: [{asked}]\n")
    assert (evidence.backend, evidence.truth.value) == (backend, truth)


def test_a_backend_that_only_the_plan_names_is_held_against_what_ran() -> None:
    text = f"INFO: STARTING!\nINFO: [benchmark_litert_model.cc:305] Loading model from: m\n{replacing('LITERT_CL')}"
    report = parse_run(
        raw_of(text + READY + RESULT),
        requested="gpu",
        flags={"gpu_backend": "opengl"},
    )
    assert (report.delegate.truth, report.delegate.backend) == (
        DelegateTruth.WRONG_BACKEND,
        "opencl",
    )


@pytest.mark.parametrize(
    ("backend", "truth", "actual"),
    [("htp", "full", "npu"), ("dsp", "full", "npu"), ("gpu", "wrong-backend", "gpu")],
)
def test_qualcomms_library_may_run_another_unit_than_the_npu(
    backend: str, truth: str, actual: str
) -> None:
    text = f"INFO: STARTING!\nINFO: [benchmark_litert_model.cc:305] Loading model from: m\n{replacing('DispatchDelegate')}"
    report = parse_run(
        raw_of(text + READY + RESULT),
        requested="npu",
        flags={"qualcomm_backend": backend},
    )
    delegate = report.delegate
    assert (delegate.truth.value, delegate.actual, delegate.accelerator) == (truth, actual, backend)


def test_core_ml_tells_its_partitions_after_a_comma() -> None:
    line = "INFO: CoreML delegate: 29 nodes delegated out of 31 nodes, with 2 partitions.\n"
    evidence = judged(line, "coreml")
    told = (evidence.truth, evidence.delegated_nodes, evidence.partitions)
    assert told == (DelegateTruth.PARTIAL, 29, 2)


def test_an_iphones_gpu_beside_xnnpack_is_what_was_asked_for() -> None:
    echo = "Use gpu: [1]\nUse xnnpack: [1]\n"
    text = f"STARTING!\n{echo}{LOADED}{XNNPACK}{replacing('TfLiteMetalDelegate')}{XNNPACK_PART}{READY}{RESULT}"
    (report,) = parse_text(text)
    assert report.delegate.each == {"xnnpack": DelegateTruth.PARTIAL, "gpu": DelegateTruth.FULL}


def test_a_litert_delegate_whose_kernel_fails_has_failed() -> None:
    middle = (
        replacing("LITERT_OPENGL") + "ERROR: Node number 31 (LITERT_OPENGL) failed to prepare.\n"
        "ERROR: Benchmarking failed.\n"
    )
    assert judged(middle, "gpu", exit_code=1, ready=False).truth is DelegateTruth.FAILED


def replaced(delegate: str, nodes: str, subgraph: str) -> str:
    where = f"node, yielding 2 partitions for subgraph {subgraph}."
    return f"VERBOSE: Replacing {nodes} node(s) with delegate ({delegate}) {where}\n"


@pytest.mark.parametrize(
    ("signature", "truth", "nodes"),
    [
        ("encode", "full", (100, 100)),
        ("decode", "partial", (3, 90)),
        ("", "full", (100, 100)),
        ("embed", "none", (0, 20)),
    ],
)
@pytest.mark.parametrize("is_echoed", [True, False])
def test_what_a_delegate_took_is_of_the_signature_that_ran(
    signature: str, truth: str, nodes: tuple[int, int], *, is_echoed: bool
) -> None:
    middle = (
        replaced("LITERT_CL", "100 out of 100", "0 (encode)")
        + replaced("LITERT_CL", "3 out of 90", "1 (decode)")
        + replaced("TfLiteXNNPackDelegate", "70 out of 88", "1 (decode)")
        + replaced("TfLiteXNNPackDelegate", "20 out of 20", "2 (embed)")
    )
    echo = f"INFO: Signature to run: [{signature if is_echoed else ''}]\n"
    name = f"INFO: [benchmark_litert_model.h:88] Signature name:       {signature}\n"
    banner = "" if is_echoed or not signature else name
    evidence = judged(middle, "gpu", echo=echo, after=banner)
    assert (evidence.truth.value, evidence.delegated_nodes, evidence.total_nodes) == (truth, *nodes)


def test_nothing_is_known_of_a_signature_that_no_line_is_of() -> None:
    """A delegate that takes nothing of a graph prints no line of it."""
    taken = replaced("LITERT_CL", "100 out of 100", "0 (encode)")
    banner = "INFO: [benchmark_litert_model.h:88] Signature name:       decode\n"
    evidence = judged(taken, "gpu", after=banner)
    assert evidence.truth is DelegateTruth.UNKNOWN


def test_what_was_compiled_for_the_npu_is_of_the_signature_that_ran() -> None:
    details = decode_message("ModelRuntimeDetails", b"")
    text = "".join(
        f"INFO: [compiler_plugin.cc:740] Partitioned subgraph<{number}>, selected {taken} ops, from a total of {total} ops."
        " resulted in 1 partitions.\n" + replaced("DispatchDelegate", f"1 out of {1 + left}", f"{number} ({name})")
        for number, name, taken, total, left in ((0, "encode", 100, 100, 0), (1, "decode", 60, 90, 30))
    )  # fmt: skip
    for number, (name, left) in enumerate((("encode", 0), ("decode", 30))):
        graph = details.subgraphs.add(subgraph_id=number, name=name)
        graph.nodes.add(id=0, name="DISPATCH_OP", delegated_to_node_id=99)
        for node in range(1, left + 1):
            graph.nodes.add(id=node, name="ADD")
        graph.nodes.add(id=99, name="D").delegate_node_details.delegate_name = "DispatchDelegate"
        graph.execution_plan.extend([*range(1, left + 1), 99])
    text += (
        "INFO: The input model file size (MB): 1.5\nINFO: Initialized session in 20.1ms.\n"
        "INFO: [benchmark_litert_model.h:82] ========== BENCHMARK RESULTS ==========\n"
        "INFO: [benchmark_litert_model.h:88] Signature name:       decode\n"
        "INFO: [benchmark_litert_model.h:95] Inference (avg):      4.00 ms (50 runs)\n"
    )
    for runtime_info in (b"", details.SerializeToString()):
        found = parse_run(
            raw_of(text, runtime_info_pb=runtime_info),
            requested="npu",
        ).delegate
        assert (found.truth.value, found.delegated_nodes, found.total_nodes) == ("partial", 60, 90)


def test_what_another_delegate_ran_did_not_fall_back_to_the_cpu() -> None:
    """The info about the nodes says the same as the log alone."""
    details = decode_message("ModelRuntimeDetails", b"")
    graph = details.subgraphs.add(subgraph_id=0, name="main")
    graph.nodes.add(id=0, name="CONV_2D", delegated_to_node_id=1)
    graph.nodes.add(id=1, name="D").delegate_node_details.delegate_name = "LITERT_CL"
    graph.execution_plan.append(1)
    text = LOADED + replaced("LITERT_CL", "1 out of 1", "0 (main)") + READY + RESULT
    for runtime_info in (b"", details.SerializeToString()):
        found = parse_run(
            raw_of(text, runtime_info_pb=runtime_info),
            requested="npu",
        ).delegate
        assert (found.truth.value, found.actual) == ("wrong-backend", "gpu")


def test_an_npu_beside_which_the_gpu_could_be_used_is_the_npu() -> None:
    """LiteRT applies each accelerator that it has."""
    both = "".join(
        f"DEBUG: [compiled_model.cc:1003] Apply accelerator {name}\n"
        for name in ("NpuAccelerator", "LiteRT GPU")
    )
    (report,) = parse_text(
        f"INFO: [benchmark_litert_model.cc:305] Loading model from: m.tflite\n{both}"
        f"{replaced('DispatchDelegate', '5 out of 5', '0 (main)')}"
        "INFO: [benchmark_litert_model.h:82] ========== BENCHMARK RESULTS ==========\n"
        "INFO: [benchmark_litert_model.h:88] Signature name:       serving_default\n"
        "INFO: [benchmark_litert_model.h:95] Inference (avg):      4.00 ms (50 runs)\n"
    )
    assert (report.delegate.actual, report.delegate.truth) == ("npu", DelegateTruth.FULL)


ALL_ON_XNNPACK = replacing("TfLiteXNNPackDelegate")


@pytest.mark.parametrize(
    "why",
    [
        "WARNING: [compiled_model.cc:742] Failed to load compiler plugins: No compiler plugin found",
        "WARNING: [compiler_plugin.cc:311] Failed to load plugin at: /p/libX.so with error: dlopen",
        "ERROR: [compiled_model.cc:1327] Plugin errs: Qualcomm: Failed to create backend",
    ],
)
def test_why_nothing_was_compiled_for_the_npu_is_told_first(why: str) -> None:
    """After LiteRT's source."""
    none = "INFO: [compiled_model.cc:1323] 0 compiler plugins were applied successfully: \n"
    tried = "DEBUG: [compiled_model.cc:1003] Apply accelerator NpuAccelerator\n"
    evidence = judged(f"{tried}{none}{why}\n{XNNPACK}{ALL_ON_XNNPACK}", "npu")
    assert evidence.truth is DelegateTruth.FELL_BACK
    assert why.endswith(evidence.lines[0])


@pytest.mark.parametrize(
    ("selected", "left", "truth", "nodes"),
    [
        ("100 ops, from a total of 120 ops. resulted in 3", 20, "partial", (100, 120)),
        ("120 ops, from a total of 120 ops. resulted in 3", 0, "full", (120, 120)),
        # The delegate took others: of an older cache, for example.
        ("100 ops, from a total of 120 ops. resulted in 4", 20, "partial", (3, 23)),
    ],
)
def test_what_was_compiled_for_the_npu_counts_as_operators_of_the_model(
    selected: str, left: int, truth: str, nodes: tuple[int, int]
) -> None:
    """After LiteRT's source."""
    compiled = (
        f"INFO: [compiler_plugin.cc:740] Partitioned subgraph<0>, selected {selected} partitions.\n"
    )
    taken = replaced("DispatchDelegate", f"3 out of {3 + left}", "0 (main)")
    evidence = judged(compiled + taken, "npu")
    assert (evidence.truth.value, evidence.delegated_nodes, evidence.total_nodes) == (truth, *nodes)


def nnapi_log(*devices: str) -> str:
    head = "08-17 21:47:50.187 29423 29423 I "
    accelerators = "INFO: NNAPI accelerators available: [qti-dsp,nnapi-reference]\n"
    lines = f"INFO: STARTING!\nINFO: Use NNAPI: [1]\n{accelerators}{LOADED}{NNAPI_ALL}{READY}{RESULT}".splitlines()
    said = [f"{head}tflite  : {line.partition(': ')[2]}" for line in lines]
    plans = [f"{head}ExecutionPlan: SIMPLE for {device}" for device in devices]
    return "\n".join([*said[:5], *plans, *said[5:], ""])


@pytest.mark.parametrize(
    ("devices", "truth", "actual", "accelerator"),
    [
        (("qti-dsp",), "full", "nnapi", "qti-dsp"),
        (("nnapi-reference",), "wrong-backend", "nnapi-reference", "nnapi-reference"),
        (
            ("nnapi-reference", "nnapi-reference"),
            "wrong-backend",
            "nnapi-reference",
            "nnapi-reference",
        ),
        (("qti-dsp", "nnapi-reference"), "partial", "nnapi", "qti-dsp+nnapi-reference"),
    ],
)
def test_nnapi_on_its_own_reference_is_no_accelerator(
    devices: tuple[str, ...], truth: str, actual: str, accelerator: str
) -> None:
    (report,) = parse_text(nnapi_log(*devices))
    evidence = report.delegate
    assert (evidence.truth.value, evidence.actual, evidence.accelerator) == (
        truth,
        actual,
        accelerator,
    )
    assert any(devices[-1] in line for line in evidence.lines)


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
    assert [name for name, _ in evidence.cpu_operators] == [
        "TOPK_V2",
        "CUSTOM TFLite_Detection_PostProcess",
    ]


@pytest.mark.parametrize(
    ("wanted", "actual", "own", "every", "truth"),
    [
        ("gpu", "", 3, 3, "unknown"),
        ("gpu", "xnnpack", 3, 3, "fell-back"),
        ("npu", "gpu", None, None, "wrong-backend"),
        ("gpu", "gpu", None, None, "unknown"),
        ("gpu", "gpu", 0, 9, "none"),
        ("gpu", "gpu", 8, 9, "partial"),
        ("gpu", "gpu", 9, 9, "full"),
        ("xnnpack", "xnnpack", None, None, "full"),
        ("xnnpack", "xnnpack", 8, 9, "partial"),
        ("xnnpack", "xnnpack", 0, 9, "none"),
        ("gpu", "gpu", 0, 0, "unknown"),
    ],
)
def test_a_named_backend_took_what_its_nodes_say(
    wanted: str, actual: str, own: int | None, every: int | None, truth: str
) -> None:
    assert extent_of(wanted, actual, own, every).value == truth


@pytest.mark.parametrize("line", ["(TfLiteNnapiDel", "(", ""])
@pytest.mark.parametrize("requested", ["gpu", "nnapi", "xnnpack"])
def test_who_took_the_nodes_isnt_known_where_the_name_is_cut(line: str, requested: str) -> None:
    cut = f"Replacing 31 out of 31 node(s) with delegate {line}\n"
    evidence = judged(cut, requested)
    assert (evidence.truth, evidence.actual) == (DelegateTruth.UNKNOWN, "")


def test_an_npu_that_failed_has_failed_where_its_error_is_wrapped() -> None:
    text = f"{replacing('DispatchDelegate')}Failed to create a dispatch delegate ker\nnel: No usable Dispatch runtime found\n"
    (report,) = parse_text(text)
    assert (report.outcome, report.failure_code) == ("failed", "npu-init-failed")
