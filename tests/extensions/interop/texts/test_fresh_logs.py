"""Outputs collected after the reader was built, in place, against what a careful reader gets out of
each."""

import pytest

from orchestrator.errors import OutputParseError
from orchestrator.extensions.interop.texts.output import parse_text
from orchestrator.records.run import ToolReport
from tests.samples.beside import FRESH, needs_fresh

pytestmark = needs_fresh

#: A run: mean (us), what was asked for, where it ran, how much of it, NNAPI's accelerator.
FULL_GPU = (115246.0, "gpu", "gpu", "full", "")
REFERENCE_B = (15246.0, "nnapi", "nnapi-reference", "wrong-backend", "nnapi-reference")
REFERENCE = (402153.0, "nnapi", "nnapi-reference", "wrong-backend", "nnapi-reference")
REFUSED = (8212.16, "nnapi", "xnnpack", "none", "google-edgetpu")
EDGETPU_FAILED = (None, "nnapi", "", "failed", "google-edgetpu")
OLD_FULL = (8680.33, "gpu", "gpu", "full", "")
#: An operator table under a heading of its own: a run without a result.
PROFILE_ONLY = (None, "nnapi", "nnapi", "full", "")

MIN = {
    "L1_gpu_cl": [(10200.0, "gpu", "gpu", "full", "")],
    "L2_gpu_xnn": [(10200.0, "gpu", "xnnpack", "fell-back", "")],
    "L3_npu_cl": [(10200.0, "npu", "gpu", "wrong-backend", "")],
    "L4_npu_xnn": [(10200.0, "npu", "xnnpack", "fell-back", "")],
    "L5_npu_dd": [(10200.0, "npu", "npu", "full", "")],
    "L6_npu_ddp_xnn": [(10200.0, "npu", "npu+xnnpack", "partial", "")],
    "L7_gpu_clp": [(10200.0, "gpu", "gpu+xnnpack", "partial", "")],
    "L8_npu_noplugin": [(10200.0, "npu", "xnnpack", "fell-back", "")],
    "L9_none_cl": [(10200.0, "", "gpu", "full", "")],
    **{
        f"apk_{form}_{kind}": [FULL_GPU, REFERENCE_B]
        for form in ("bri", "tag", "thr", "tim")
        for kind in ("2pids", "nolp_2pids", "samepid")
    },
    "nostart_gpu_then_cpu": [FULL_GPU, REFERENCE_B],
    "logparam": [FULL_GPU, REFERENCE_B],
    "logparam_nothreads": [FULL_GPU, REFERENCE_B],
    "fail_then_ref_noSTART": [EDGETPU_FAILED, REFERENCE],
    "fail_then_ref_START": [EDGETPU_FAILED, REFERENCE],
    "ok_then_ref_noSTART": [(402153.0, "nnapi", "nnapi", "full", "google-edgetpu"), REFERENCE],
    "two_ok_noSTART": [REFERENCE, (402153.0, "nnapi", "nnapi", "full", "google-edgetpu")],
    "w10_plus_profile": [REFERENCE, PROFILE_ONLY],
    "whisper_two": [
        (323849.0, "cpu", "xnnpack", "partial", ""),
        (None, "nnapi", "", "failed", "google-edgetpu"),
    ],
    "lp6m_two": [
        (92571.2, "nnapi", "", "unknown", "qti-gpu"),
        (None, "nnapi", "nnapi", "partial", "qti-gpu"),
    ],
    "lp6m_cmd": [(156669.0, "nnapi", "", "unknown", "qti-gpu")],
    "cutjoin3": [REFUSED],
    "cutjoin_ext": [(None, "external", "", "none", ""), REFUSED],
    "cutjoin_nnapi": [
        (1885.74, "nnapi", "nnapi", "full", ""),
        (None, "nnapi", "", "unknown", ""),
        REFUSED,
    ],
    "wrap_swallow": [REFUSED],
    "wrap_swallow2": [
        (1885.74, "nnapi", "nnapi", "full", ""),
        (None, "nnapi", "", "unknown", ""),
        REFUSED,
    ],
    "join_open": [(None, "gpu", "gpu", "full", ""), (3000.0, "nnapi", "", "none", "")],
    "join_open2": [(3000.0, "gpu", "gpu", "full", "")],
    "join_open3": [(3000.0, "gpu", "gpu", "full", "")],
    "n26_v0_same_created": [OLD_FULL],
    "n26_v1_explicit_w_created": [OLD_FULL],
    "n26_v2_applied_by_created": [OLD_FULL],
    # It says that the delegate was applied, and not to how much of the model.
    "n26_v3_applied_created": [(8680.33, "gpu", "", "unknown", "")],
    "n26_v4_partial_created": [(8680.33, "gpu", "gpu", "partial", "")],
    "n26_v5_not_created": [(8680.33, "gpu", "cpu", "none", "")],
    "n26_v6_normal_created": [OLD_FULL],
    "equals_line": [],
}
CPU, FAILED = "cpu", (None, "nnapi", "", "failed", "")
WHOLE = {
    "a01_cpu.log": [],
    "a02_gpumodes.log": [],
    "w51_p6_summary.txt": [],
    "w52_whisper_enc.log": [],
    # llama-bench on a phone's CPU, then with its GPU, of which the tables don't say how much it
    # took.
    "w53_vulkan.log": [
        *[(1e6 / speed, "", "cpu", "unknown", "") for speed in (35.31, 24.90, 40.59, 22.78)],
        *[
            (1e6 / speed, "", "", "unknown", "")
            for speed in (3.59, 10.38, 2.65, 8.04, 3.37, 9.63, 2.71, 7.78)
        ],
    ],
    "l01.md": [
        (mean, "xnnpack", "", "unknown", "") for mean in (5393.91, 4462.15, 125876.0, 62149.7)
    ],
    "l02.md": [(1790.37, "xnnpack", "", "unknown", "")],
    "l03.md": [(4615.41, "xnnpack", "", "unknown", ""), (41520.6, "xnnpack", "", "unknown", "")],
    "w01_p6_L121.txt": [(25679.9, CPU, "xnnpack", "partial", "")],
    "w02_p6_L147.txt": [EDGETPU_FAILED],
    "w03_p6_L172.txt": [FAILED],
    "w04_p6_L252.txt": [(1073.2, "nnapi", "nnapi", "full", "")],
    "w05_p6_L281.txt": [(3540.86, CPU, "xnnpack", "partial", "")],
    "w06_p6_L339.txt": [(10187.4, CPU, "xnnpack", "full", "")],
    "w07_p6_L396.txt": [(102383.0, CPU, "xnnpack", "partial", "")],
    "w08_p6_L422.txt": [EDGETPU_FAILED],
    "w09_p6_L447.txt": [FAILED],
    "w10_p6_L497.txt": [REFERENCE],
    "m50_lp6m_README.md": [
        (249684.0, CPU, "", "unknown", ""),
        (156669.0, "nnapi", "", "unknown", "qti-gpu"),
        (92571.2, "nnapi", "", "unknown", "qti-gpu"),
        (None, "nnapi", "nnapi", "partial", "qti-gpu"),
        (95788.3, CPU, "", "unknown", ""),
        (None, "nnapi", "", "failed", "qti-default"),
        (None, "nnapi", "", "failed", "qti-dsp"),
        (None, "nnapi", "", "failed", "qti-dsp"),
    ],
    "w50_p6_whole.log": [
        (9212.05, CPU, "xnnpack", "partial", ""),
        FAILED,
        EDGETPU_FAILED,
        (562394.0, "nnapi", "nnapi-reference", "wrong-backend", "nnapi-reference"),
        (25679.9, CPU, "xnnpack", "partial", ""),
        EDGETPU_FAILED,
        FAILED,
        (11293.0, CPU, "xnnpack", "partial", ""),
        (1076.32, "nnapi", "nnapi", "full", "google-edgetpu"),
        (1073.2, "nnapi", "nnapi", "full", ""),
        (3540.86, CPU, "xnnpack", "partial", ""),
        (1389.89, "nnapi", "nnapi", "partial", "google-edgetpu"),
        (10187.4, CPU, "xnnpack", "full", ""),
        (2023.9, "nnapi", "nnapi", "full", "google-edgetpu"),
        (102383.0, CPU, "xnnpack", "partial", ""),
        EDGETPU_FAILED,
        FAILED,
        EDGETPU_FAILED,
        REFERENCE,
        PROFILE_ONLY,
        (5744.06, CPU, "xnnpack", "partial", ""),
        (11447.2, "nnapi", "nnapi+xnnpack", "partial", "google-edgetpu"),
        (7345.17, CPU, "xnnpack", "partial", ""),
        REFUSED,
        (37017.3, CPU, "xnnpack", "partial", ""),
        EDGETPU_FAILED,
        (323849.0, CPU, "xnnpack", "partial", ""),
        EDGETPU_FAILED,
        (505315.0, CPU, "xnnpack", "full", ""),
        EDGETPU_FAILED,
    ],
}
EXPECTED = {**{f"min/{name}": runs for name, runs in MIN.items()}, **WHOLE}
#: Files -> operator rows per run.
OPERATORS = {
    "min/lp6m_two.md": [0, 13],
    "min/w10_plus_profile.txt": [0, 1],
    "m50_lp6m_README.md": [0, 0, 0, 13, 0, 0, 0, 0],
}


def told(report: ToolReport) -> tuple[object, ...]:
    evidence = report.delegate
    return (
        report.inference_mean_us,
        evidence.requested,
        evidence.actual,
        evidence.truth.value,
        evidence.accelerator,
    )


def read(name: str) -> tuple[ToolReport, ...]:
    path = next(FRESH.glob(name if "." in name else f"{name}.*"))
    try:
        return parse_text(path.read_bytes())
    except OutputParseError:
        return ()


def test_every_file_has_an_expectation() -> None:
    kept = {path.relative_to(FRESH).as_posix() for path in FRESH.rglob("*") if path.is_file()}
    kept -= {"README.md", "PROVENANCE.txt"}
    assert {name if "." in name else name.partition(".")[0] for name in EXPECTED} == {
        name if name in EXPECTED else name.rpartition(".")[0] for name in kept
    }


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_run_is_read_as_a_careful_reader_does(name: str) -> None:
    reports = read(name)
    assert [told(report) for report in reports] == EXPECTED[name]
    assert all(
        (report.outcome == "ok") == (report.inference_mean_us is not None) for report in reports
    )


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_operator_tables_are_the_run_s_that_they_follow(name: str) -> None:
    assert [len(report.operators) for report in read(name)] == OPERATORS[name]


def test_banner_of_the_compiled_model_fills_the_figures() -> None:
    (report,) = read("min/L1_gpu_cl")
    assert report.inference is not None
    assert (report.inference.count, report.inference.mean_us) == (50, 10200.0)
