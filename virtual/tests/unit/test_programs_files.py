"""The files that fake binaries write: read again with the published protos, or compared with
recorded ones."""

from __future__ import annotations

import pytest

from orchestrator.reading.profile import decode_op_profile, decode_result, decode_runtime_info
from orchestrator.reading.report import parse_run
from tests.samples.tools import raw_of

SHORT = ("--num_runs=20", "--min_secs=0", "--warmup_min_secs=0.05")


#: What both the log and the result's proto say.
TOLD = ("init_us", "first_inference_us", "warmup_mean_us", "init_memory_mib", "overall_memory_mib")
SUMMARY = ("count", "min_us", "max_us", "mean_us", "std_us", "median_us", "p5_us", "p95_us")


def test_result_proto_says_what_the_log_says(bench_phone, models):
    phone = bench_phone()
    phone.put("m.tflite", models.BY_NAME["tiny_cnn_float.tflite"]())
    run = phone.run(
        "--graph=m.tflite", "--result_file_path=r.pb", "--report_peak_memory_footprint=true", *SHORT
    )
    said = parse_run(raw_of(run.stdout))
    written = decode_result(phone.get("r.pb"))
    for names, one, other in ((TOLD, said, written), (SUMMARY, said.inference, written.inference)):
        for name in names:
            # A log has whole microseconds.
            assert getattr(other, name) == pytest.approx(
                getattr(one, name), rel=1e-5, abs=1 if name.endswith("_us") else 0
            ), name
    assert written.peak_memory_mib > written.overall_memory_mib


def test_failing_to_write_the_result_is_said_and_exit_stays_0(bench_phone, models):
    phone = bench_phone()
    phone.put("m.tflite", models.BY_NAME["tiny_cnn_float.tflite"]())
    run = phone.run("--graph=m.tflite", "--result_file_path=/nowhere/r.pb", *SHORT)
    assert run.stderr.splitlines()[-1] == "ERROR: Failed to save benchmark result to: /nowhere/r.pb"
    assert run.exit_code == 0


def test_runtime_info_says_which_nodes_the_delegate_took(bench_phone, models):
    phone = bench_phone()
    phone.put("m.tflite", models.BY_NAME["mobilenet_v1_0.25_128_float.tflite"]())
    phone.run(
        "--graph=m.tflite", "--export_model_runtime_info=true", "--model_runtime_info_output_file=info.pb", *SHORT
    )  # fmt: skip
    nodes = decode_runtime_info(phone.get("info.pb"))
    (share,) = nodes.shares
    assert (share.delegate, share.partitions) == ("TfLiteXNNPackDelegate", 2)
    # As in the recorded one of such a model.
    assert nodes.cpu_operators == ("SHAPE", "STRIDED_SLICE", "PACK", "RESHAPE")
    assert share.delegated_nodes + len(nodes.cpu_operators) == nodes.total_nodes


@pytest.mark.parametrize(
    "delegate", [("--use_xnnpack=false",), ("--use_xnnpack=true",), ("--use_gpu=true",)]
)
def test_profile_proto_has_a_row_for_each_operator(bench_phone, models, delegate):
    phone = bench_phone()
    phone.put("m.tflite", models.BY_NAME["tiny_cnn_float.tflite"]())
    run = phone.run(
        "--graph=m.tflite", "--enable_op_profiling=true", "--op_profiling_output_mode=proto",
        "--op_profiling_output_file=p.pb", *delegate, *SHORT,
    )  # fmt: skip
    rows = decode_op_profile(phone.get("p.pb")).operators
    assert [row.run_order for row in rows if row.phase == "run"] == [0, 1, 2, 3]
    assert all(row.mean_us > 0 for row in rows)
    assert [row.node_type for row in rows if row.phase == "init"][-1] == "AllocateTensors"
    assert "Operator-wise" not in run.text
