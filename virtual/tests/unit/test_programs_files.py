"""The files that fake binaries write: read again with the published protos, or compared with
recorded ones."""

from __future__ import annotations

import math
import re
import struct

import pytest

SHORT = ("--num_runs=20", "--min_secs=0", "--warmup_min_secs=0.05")


def proto_fields(data: bytes) -> list[tuple[int, int, object]]:
    """Return (field, wire type, value) of a message; nested ones as bytes."""
    found, at = [], 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
        elif key & 7 == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            length, at = _varint(data, at)
            value, at = data[at : at + length], at + length
        found.append((key >> 3, key & 7, value))
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def test_result_proto_says_what_the_log_says(bench_phone, models):
    phone = bench_phone()
    phone.put("m.tflite", models.BY_NAME["tiny_cnn_float.tflite"]())
    run = phone.run(
        "--graph=m.tflite", "--result_file_path=r.pb", "--report_peak_memory_footprint=true", *SHORT
    )
    parts = {number: value for number, _, value in proto_fields(phone.get("r.pb"))}
    assert sorted(parts) == [2, 3, 4]
    times = {number: value for number, _, value in proto_fields(parts[2])}
    memory = {number: value for number, _, value in proto_fields(parts[3])}
    misc = {number: value for number, _, value in proto_fields(parts[4])}
    assert sorted(times) == list(range(1, 11))
    warmup, measured = re.findall(
        r"count=(\d+) first=(\d+) curr=\d+ min=(\d+) max=(\d+) avg=(\S+) std=(\d+)", run.stdout
    )
    assert misc[2] == int(measured[0]) == 20
    assert misc[3] == int(warmup[0])
    assert math.isclose(times[1] * 1e3, float(measured[4]), rel_tol=1e-5)
    assert math.isclose(times[2] * 1e3, float(measured[2]), rel_tol=1e-6)
    assert math.isclose(times[4] * 1e3, float(measured[5]), abs_tol=1e-3)
    init_us = re.search(r"Init: (\d+), First inference: (\d+)", run.stdout)
    assert math.isclose(times[8] * 1e3, int(init_us[1]), rel_tol=1e-6)
    assert math.isclose(times[9] * 1e3, int(init_us[2]), rel_tol=1e-6)
    delta = re.search(r"init=(\S+) overall=(\S+)", run.stdout)
    assert math.isclose(memory[1] / 1024, float(delta[1]), rel_tol=1e-5)
    assert math.isclose(memory[2] / 1024, float(delta[2]), rel_tol=1e-5)
    assert memory[3] > memory[2] / 1024


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
