"""The result and runtime-info protos, and what is done when they and the log differ."""

import pytest

from orchestrator.errors import OutputParseError
from orchestrator.extensions.interop.cli import describe
from orchestrator.reading.profile import decode_message, decode_result, decode_runtime_info
from orchestrator.reading.report import parse_run
from orchestrator.records.run import DelegateTruth
from tests.samples.places import NATIVE
from tests.samples.tools import raw_of

FILES = NATIVE / "files"
RESULT = (FILES / "benchmark_result.pb").read_bytes()
PEAK = (FILES / "benchmark_result_peak.pb").read_bytes()
RUNTIME = (FILES / "runtime_info.pb").read_bytes()


def log(name: str) -> bytes:
    return b"\n".join((NATIVE / name).read_bytes().split(b"\n")[1:-2]) + b"\n"


def test_every_figure_of_a_result_proto_is_decoded_into_our_units() -> None:
    result = decode_result(PEAK)
    assert result.inference is not None
    assert (result.inference.count, result.inference.mean_us, result.inference.p95_us) == (
        1964,
        500.1991,
        758.0,
    )
    assert (result.init_us, result.first_inference_us, result.warmup_mean_us) == (
        2840.0,
        961.0,
        518.0474,
    )
    assert result.init_memory_mib == pytest.approx(8456 / 1024)
    assert result.peak_memory_mib == pytest.approx(15.66016)
    assert result.model_size_mb == pytest.approx(1.875852)


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"not a proto at all"])
def test_bytes_that_are_no_proto_are_refused(data: bytes) -> None:
    with pytest.raises(OutputParseError):
        decode_runtime_info(data)


def test_proto_of_another_run_is_a_disagreement_and_the_log_s_number_stays() -> None:
    report = parse_run(raw_of(log("result_file_path.txt"), result_pb=PEAK))
    assert any("number of inferences" in sentence for sentence in report.disagreements)
    assert report.inference_mean_us == 456.99


def test_proto_gives_the_number_when_the_log_was_lost() -> None:
    report = parse_run(raw_of(exit_code=None, result_pb=RESULT))
    assert report.outcome == "ok"
    assert report.inference_mean_us == 456.9903
    assert report.init_us == 3263.0


@pytest.mark.parametrize("ended", ["", "\n"])
def test_proto_gives_the_number_wherever_the_log_was_cut_before_its_result(ended: str) -> None:
    text = log("result_file_path.txt").decode()
    for end in range(text.index("Initialized session"), text.index("Inference (avg): 456.99") + 20):
        report = parse_run(raw_of(text[:end] + ended, result_pb=RESULT))
        assert report.outcome == "ok", text[:end][-40:]
        assert report.inference_mean_us == 456.9903
        assert report.inference == decode_result(RESULT).inference
        assert report.disagreements == ()
        assert "log_cut" in report.extra
        assert any("result file" in line for line in describe(report))


def test_damaged_proto_is_told_and_the_log_s_number_stays() -> None:
    report = parse_run(raw_of(log("result_file_path.txt"), result_pb=b"\xff" * 20))
    assert report.outcome == "ok"
    assert any("can't be read" in sentence for sentence in report.disagreements)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"INFO: Explicitly applied XNNPACK delegate, and the model graph will be completely executed by the delegate.\n",
    ],
    ids=["nothing", "something else"],
)
def test_runtime_info_gives_the_coverage_whatever_log_lines_say(said: bytes) -> None:
    report = parse_run(
        raw_of(said + log("export_model_runtime_info.txt"), runtime_info_pb=RUNTIME),
        requested="xnnpack",
    )
    assert report.delegate.truth is DelegateTruth.PARTIAL
    assert (report.delegate.delegated_nodes, report.delegate.total_nodes) == (30, 34)
    assert [name for name, _ in report.delegate.cpu_operators] == [
        "SHAPE",
        "STRIDED_SLICE",
        "PACK",
        "RESHAPE",
    ]


def test_runtime_info_without_the_delegate_that_was_asked_for_means_that_it_fell_back() -> None:
    report = parse_run(
        raw_of(log("export_model_runtime_info.txt"), runtime_info_pb=RUNTIME),
        requested="gpu",
    )
    assert (report.delegate.truth, report.delegate.actual) == (DelegateTruth.FELL_BACK, "xnnpack")


@pytest.mark.parametrize(
    ("signature", "truth", "nodes"),
    [("decode", DelegateTruth.NONE, (0, 5)), ("prefill", DelegateTruth.FULL, (6, 6))],
)
def test_runtime_info_is_read_of_the_signature_that_ran(
    signature: str, truth: DelegateTruth, nodes: tuple[int, int]
) -> None:
    report = parse_run(
        raw_of(
            log(f"signature_of_two_{signature}.txt"),
            runtime_info_pb=(FILES / "runtime_info_two_signatures.pb").read_bytes(),
        ),
        requested="xnnpack",
    )
    delegate = report.delegate
    assert (delegate.truth, (delegate.delegated_nodes, delegate.total_nodes)) == (truth, nodes)


def runtime_info(**subgraphs: tuple[list[str], list[str]]) -> bytes:
    """Return the info of subgraphs: the operators that the GPU took of each, and those that it left."""
    details = decode_message("ModelRuntimeDetails", b"")
    for number, (name, (taken, left)) in enumerate(subgraphs.items()):
        subgraph = details.subgraphs.add(subgraph_id=number, name=name)
        kernel = len(taken) + len(left)
        for place, operator in enumerate(taken + left):
            node = subgraph.nodes.add(id=place, name=operator)
            if place < len(taken):
                node.delegated_to_node_id = kernel
            else:
                subgraph.execution_plan.append(place)
        if taken:
            node = subgraph.nodes.add(id=kernel, name="TfLiteGpuDelegateV2")
            node.delegate_node_details.delegate_name = "TfLiteGpuDelegateV2"
            subgraph.execution_plan.append(kernel)
    data: bytes = details.SerializeToString()
    return data


CONV = ["CONV_2D"] * 100
BODY = ["MUL", "RSQRT"]


def test_a_composite_that_the_delegate_took_whole_leaves_nothing_to_the_cpu() -> None:
    data = runtime_info(main=(CONV, []), body_of_norm=([], BODY))
    assert (decode_runtime_info(data).total_nodes, decode_runtime_info(data).cpu_operators) == (
        100,
        (),
    )


def test_a_loop_that_stays_with_the_runtime_runs_its_subgraphs() -> None:
    nodes = decode_runtime_info(runtime_info(main=(CONV, ["WHILE"]), body=(["MUL"], ["RSQRT"])))
    assert (nodes.total_nodes, nodes.cpu_operators) == (103, ("WHILE", "RSQRT"))


def test_what_was_replaced_by_its_parts_is_no_node() -> None:
    details = decode_message("ModelRuntimeDetails", runtime_info(main=(CONV, BODY)))
    details.subgraphs[0].nodes.add(id=103, name="STABLEHLO_COMPOSITE")
    nodes = decode_runtime_info(details.SerializeToString())
    assert (nodes.total_nodes, nodes.cpu_operators) == (102, ("MUL", "RSQRT"))


@pytest.mark.parametrize(
    ("said", "truth"),
    [
        ("Explicitly applied GPU delegate, and the model graph will be completely executed by the delegate.", "full"),
        ("Though GPU delegate is explicitly applied, the model graph will not be executed by the delegate.", "none"),
        ("Explicitly applied GPU delegate, and the model graph will be partially executed by the delegate w/ 2 delegate kernels.",
         "partial"),
    ],
)  # fmt: skip
def test_the_program_decides_where_no_subgraph_has_the_name_of_what_ran(
    said: str, truth: str
) -> None:
    text = log("signature_of_two_decode.txt").decode()
    begin, end = text.index("INFO: XNNPACK delegate created"), text.index("INFO: The input model")
    report = parse_run(
        raw_of(
            f"{text[:begin]}INFO: {said}\n{text[end:]}",
            runtime_info_pb=runtime_info(one=(CONV, BODY), other=([], BODY)),
        ),
        requested="gpu",
    )
    assert report.delegate.truth.value == truth
