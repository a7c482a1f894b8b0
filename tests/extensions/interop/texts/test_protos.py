"""The result and runtime-info protos, and what is done when they and the log differ."""

import pytest

from orchestrator.errors import OutputParseError
from orchestrator.extensions.interop.texts.public import describe
from orchestrator.reading.protos import decode_result, decode_runtime_info
from orchestrator.reading.report import RunFiles, parse_run
from orchestrator.records.run import DelegateTruth
from tests.samples.places import NATIVE

FILES = NATIVE / "files"
RESULT = (FILES / "benchmark_result.pb").read_bytes()
WRITTEN = RunFiles(result_pb=RESULT)
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
    report = parse_run(
        stdout=log("result_file_path.txt"), exit_code=0, files=RunFiles(result_pb=PEAK)
    )
    assert any("number of inferences" in sentence for sentence in report.disagreements)
    assert report.inference_mean_us == 456.99


def test_proto_gives_the_number_when_the_log_was_lost() -> None:
    report = parse_run(exit_code=None, files=WRITTEN)
    assert report.outcome == "ok"
    assert report.inference_mean_us == 456.9903
    assert report.init_us == 3263.0


@pytest.mark.parametrize("ended", ["", "\n"])
def test_proto_gives_the_number_wherever_the_log_was_cut_before_its_result(ended: str) -> None:
    text = log("result_file_path.txt").decode()
    for end in range(text.index("Initialized session"), text.index("Inference (avg): 456.99") + 20):
        report = parse_run(stdout=(text[:end] + ended).encode(), exit_code=0, files=WRITTEN)
        assert report.outcome == "ok", text[:end][-40:]
        assert report.inference_mean_us == 456.9903
        assert report.inference == decode_result(RESULT).inference
        assert report.disagreements == ()
        assert "log_cut" in report.extra
        assert any("result file" in line for line in describe(report))


def test_damaged_proto_is_told_and_the_log_s_number_stays() -> None:
    report = parse_run(
        stdout=log("result_file_path.txt"), exit_code=0, files=RunFiles(result_pb=b"\xff" * 20)
    )
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
        stdout=said + log("export_model_runtime_info.txt"),
        exit_code=0,
        files=RunFiles(runtime_info_pb=RUNTIME),
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
        stdout=log("export_model_runtime_info.txt"),
        exit_code=0,
        files=RunFiles(runtime_info_pb=RUNTIME),
        requested="gpu",
    )
    assert (report.delegate.truth, report.delegate.actual) == (DelegateTruth.FELL_BACK, "xnnpack")
