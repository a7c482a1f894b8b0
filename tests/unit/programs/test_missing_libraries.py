"""What is said when a delegate's libraries are missing or don't belong together; the programs exit
with 0.
"""

from __future__ import annotations

import pytest

from benchfarm_virtual.samples import HEXAGON_LIBRARIES
from orchestrator.analysis.quality import ending_of
from orchestrator.reading.report import parse_run
from orchestrator.records.run import DelegateTruth, Outcome
from tests.samples.tools import raw_of
from virtual.tests.unit import tiny_models
from virtual.tests.unit.bench_phone import BenchPhone

QUANTISED = "mobilenet_v1_0.25_128_static_uint8io.tflite"


@pytest.mark.parametrize(
    ("left_out", "code"),
    [
        ("libhexagon_nn_skel_v66.so", ""),
        ("libhexagon_nn_skel_v65.so", "delegate-fell-back"),
        ("libhexagon_interface.so", "delegate-fell-back"),
        ("", ""),
    ],
)
def test_a_dsp_without_its_libraries_is_never_believed(left_out: str, code: str) -> None:
    phone = BenchPhone("pixel-3")  # its DSP wants the skel of v65
    phone.put(QUANTISED, tiny_models.BY_NAME[QUANTISED]())
    phone.put_libraries([name for name in HEXAGON_LIBRARIES if name != left_out])
    run = phone.run(
        f"--graph={QUANTISED}", "--use_hexagon=true", "--use_xnnpack=false", "--num_runs=20", "--min_secs=0"
    )  # fmt: skip
    report = parse_run(
        raw_of(run.stdout, stderr=run.stderr.encode(), exit_code=run.exit_code),
        requested="hexagon",
    )
    ending = ending_of(report, exit_code=run.exit_code, timed_out=False)
    assert run.exit_code == 0
    if not code:
        assert (ending.outcome, report.delegate.truth) == (Outcome.COMPLETED, DelegateTruth.FULL)
        return
    assert report.delegate.truth is DelegateTruth.FELL_BACK
    assert (ending.outcome, ending.reason_code) == (Outcome.FAILED, code)


@pytest.mark.parametrize(
    ("libraries", "code"),
    [
        ([], "delegate-fell-back"),
        (["libLiteRtCompilerPlugin_Qualcomm.so"], "npu-init-failed"),
        (["libLiteRtDispatch_Qualcomm.so"], "delegate-fell-back"),
        (
            ["libLiteRtCompilerPlugin_MediaTek.so", "libLiteRtDispatch_MediaTek.so"],
            "delegate-fell-back",
        ),
        (["libLiteRtCompilerPlugin_Qualcomm.so", "libLiteRtDispatch_Qualcomm.so"], ""),
    ],
)
def test_an_npu_without_its_own_libraries_is_never_believed(
    libraries: list[str], code: str
) -> None:
    phone = BenchPhone("galaxy-s23")
    phone.put("m.tflite", tiny_models.BY_NAME["tiny_cnn_float.tflite"]())
    phone.put_libraries(libraries)
    folder = "/data/local/tmp"
    run = phone.run(
        "--graph=m.tflite", "--use_cpu=false", "--use_npu=true", f"--dispatch_library_path={folder}",
        f"--compiler_plugin_library_path={folder}", "--num_runs=20", "--min_secs=0", program="benchmark_litert_model",
    )  # fmt: skip
    report = parse_run(
        raw_of(run.stdout, stderr=run.stderr.encode(), exit_code=run.exit_code),
        requested="npu",
    )
    ending = ending_of(report, exit_code=run.exit_code, timed_out=False)
    assert ending.reason_code == code
    assert (ending.outcome is Outcome.COMPLETED) == (code == "")
