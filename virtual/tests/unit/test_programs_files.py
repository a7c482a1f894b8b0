"""The files that fake binaries write: read again with the published protos, or compared with
recorded ones."""

from __future__ import annotations

import math
import re
import struct

import pytest

from orchestrator.reading.protos import decode_result
from orchestrator.reading.report import parse_run

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
    said = parse_run(stdout=run.stdout.encode(), exit_code=0)
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


def test_runtime_info_maps_nodes_to_delegates_as_the_published_proto_reads_it(bench_phone, models):
    from ai_edge_litert import model_runtime_info_pb2 as proto

    phone = bench_phone()
    phone.put("m.tflite", models.BY_NAME["mobilenet_v1_0.25_128_float.tflite"]())
    phone.run(
        "--graph=m.tflite", "--export_model_runtime_info=true", "--model_runtime_info_output_file=info.pb", *SHORT
    )  # fmt: skip
    details = proto.ModelRuntimeDetails()
    details.ParseFromString(phone.get("info.pb"))
    (subgraph,) = details.subgraphs
    kernels = {n.id: n for n in subgraph.nodes if n.HasField("delegate_node_details")}
    replaced = {
        i for n in kernels.values() for i in n.delegate_node_details.tflite_node_ids_replaced
    }
    plain = [n for n in subgraph.nodes if n.id not in kernels]
    assert {n.id for n in plain if n.HasField("delegated_to_node_id")} == replaced
    assert [n.name for n in plain if n.id not in replaced] == [
        "SHAPE",
        "STRIDED_SLICE",
        "PACK",
        "RESHAPE",
    ]
    assert {n.delegate_node_details.delegate_name for n in kernels.values()} == {
        "TfLiteXNNPackDelegate"
    }
    assert list(subgraph.execution_plan) == [9, 4, 5, 6, 7, 10]
    assert subgraph.edges[0].name == "serving_default_keras_tensor_4:0"
    assert list(subgraph.edges[0].shape) == [1, 128, 128, 3]
    assert proto.Edge.DataType.Name(subgraph.edges[0].data_type) == "FLOAT32"


@pytest.mark.parametrize(
    "delegate", [("--use_xnnpack=false",), ("--use_xnnpack=true",), ("--use_gpu=true",)]
)
def test_profile_proto_reads_with_the_published_schema(bench_phone, models, delegate):
    from ai_edge_litert import profiling_info_pb2 as proto

    phone = bench_phone()
    phone.put("m.tflite", models.BY_NAME["tiny_cnn_float.tflite"]())
    run = phone.run(
        "--graph=m.tflite", "--enable_op_profiling=true", "--op_profiling_output_mode=proto",
        "--op_profiling_output_file=p.pb", *delegate, *SHORT,
    )  # fmt: skip
    data = proto.BenchmarkProfilingData()
    data.ParseFromString(phone.get("p.pb"))
    rows = data.runtime_profile.subgraph_profiles[0].per_op_profiles
    assert len(rows) == 4
    assert [row.run_order for row in rows] == [0, 1, 2, 3]
    assert all(row.inference_microseconds.count == 20 for row in rows)
    assert all(row.inference_microseconds.min <= row.inference_microseconds.avg for row in rows)
    assert data.init_profile.subgraph_profiles[0].per_op_profiles[-1].node_type == "AllocateTensors"
    assert "Operator-wise" not in run.text


def test_raw_outputs_depend_on_model_and_inputs_only(bench_phone, models):
    def outputs(profile: str, *flags: str, content: bytes = bytes(16 * 16 * 3 * 4)) -> bytes:
        phone = bench_phone(profile, seed=len(flags) + len(profile))
        phone.put("m.tflite", models.BY_NAME["tiny_cnn_float.tflite"]())
        phone.put("in.bin", content)
        inputs = (
            "--input_layer=x", "--input_layer_shape=1,16,16,3", "--input_layer_value_files=x:in.bin",
            "--output_filepath=o.bin",
        )  # fmt: skip
        phone.run("--graph=m.tflite", *inputs, *flags, *SHORT)
        return phone.get("o.bin")

    reference = outputs("pixel-3", "--use_xnnpack=false")
    assert len(reference) == 40
    assert outputs("pixel-8", "--use_xnnpack=false") == reference
    assert outputs("pixel-3", "--use_xnnpack=false", content=bytes([1]) * 3072) != reference
    fp16 = outputs("pixel-3", "--use_gpu=true")
    exact, rounded = struct.unpack("<10f", reference), struct.unpack("<10f", fp16)
    assert rounded != exact
    assert all(math.isclose(a, b, rel_tol=5e-3) for a, b in zip(exact, rounded, strict=True))


def test_gpu_programs_that_were_kept_make_the_next_start_faster(bench_phone, models):
    phone = bench_phone()
    phone.put("m.tflite", models.BY_NAME["tiny_cnn_float.tflite"]())
    kept = ("--use_gpu=true", "--delegate_serialize_dir=.", "--delegate_serialize_token=tok")
    first = phone.run("--graph=m.tflite", *kept, *SHORT)
    second = phone.run("--graph=m.tflite", *kept, *SHORT)
    assert "couldn't be opened for reading: No such file or directory" in first.stderr
    assert "INFO: Initialized OpenCL-based API from serialized data." in second.stderr
    times = [
        float(re.search(r"Initialized session in (\S+)ms", run.stdout)[1])
        for run in (first, second)
    ]
    assert times[1] < 0.5 * times[0]
