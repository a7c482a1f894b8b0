"""The benchmark programs as a host meets them: pushed and started by the plain adb command."""

from __future__ import annotations

import re

import pytest

from benchfarm_lab.samples import benchmark_apk, benchmark_elf

FOLDER = "/data/local/tmp"


@pytest.fixture
def served(link, tmp_path):
    """A phone with the stand-in programs and a model pushed to it."""
    model = tmp_path / "m.tflite"
    model.write_bytes(link_model())
    for name in ("benchmark_model", "benchmark_model_performance_options"):
        (tmp_path / name).write_bytes(benchmark_elf(name))
        assert link.adb("push", str(tmp_path / name), f"{FOLDER}/{name}").returncode == 0
        assert link.adb("shell", f"chmod 755 {FOLDER}/{name}").returncode == 0
    assert link.adb("push", str(model), f"{FOLDER}/m.tflite").returncode == 0
    return link


def link_model() -> bytes:
    """Return a model of one ADD, written with the published schema."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model, graph, add, code = schema.ModelT(), schema.SubGraphT(), schema.OperatorT(), schema.OperatorCodeT()
    tensors = []
    for name in ("x", "y"):
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.buffer = name, [1, 64, 64, 3], schema.TensorType.FLOAT32, 0
        tensors.append(tensor)
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.ADD
    code.version = 1
    add.opcodeIndex, add.inputs, add.outputs = 0, [0, 0], [1]
    graph.name, graph.tensors, graph.operators, graph.inputs, graph.outputs = "main", tensors, [add], [0], [1]
    model.version, model.operatorCodes, model.subgraphs, model.buffers = 3, [code], [graph], [schema.BufferT()]
    builder = flatbuffers.Builder(512)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def test_native_program_runs_over_adb_with_streams_and_exit_code(served):
    run = served.adb(
        "shell", f"cd {FOLDER} && taskset f0 ./benchmark_model --graph=m.tflite --num_threads=4 --use_xnnpack=true "
        "--result_file_path=r.pb",
    )  # fmt: skip
    assert run.returncode == 0
    assert run.stdout.startswith(b"INFO: STARTING!\n")
    assert b"Saved benchmark result to: r.pb" in run.stdout
    assert run.stderr.startswith(
        b"INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\nVERBOSE: Replacing 1 out of 1"
    )
    assert len(served.adb("exec-out", f"cat {FOLDER}/r.pb").stdout) > 60
    failed = served.adb("shell", f"{FOLDER}/benchmark_model --graph=/nope")
    assert failed.returncode == 1


def test_detached_program_is_killed_by_its_pid(served, wait_until):
    started = served.adb(
        "shell",
        f"cd {FOLDER}; (trap '' HUP; ./benchmark_model --graph=m.tflite --min_secs=3000 --max_secs=3000 >out 2>err; "
        "echo $? >rc) </dev/null >/dev/null 2>&1 & echo started",
    )
    assert started.stdout == b"started\n"
    wait_until(lambda: served.adb("shell", "pidof benchmark_model").stdout.strip(), "the program runs")
    wait_until(lambda: b"at least 50" in served.adb("shell", f"cat {FOLDER}/out").stdout, "it measures")
    served.adb("shell", "kill -9 $(pidof benchmark_model)")
    wait_until(lambda: served.adb("shell", f"cat {FOLDER}/rc").stdout == b"137\n", "the shell has its exit code")
    assert b"Inference timings" not in served.adb("shell", f"cat {FOLDER}/out").stdout


def test_app_is_installed_started_and_followed_in_the_log(served, tmp_path, wait_until):
    apk = tmp_path / "b.apk"
    apk.write_bytes(benchmark_apk())
    installed = served.adb("install", "-r", "-d", "-g", str(apk))
    assert b"Success" in installed.stdout
    started = served.adb(
        "shell", "am start -S -W -n org.tensorflow.lite.benchmark/.BenchmarkModelActivity --es args "
        f'"--graph={FOLDER}/m.tflite --use_gpu=true"',
    )  # fmt: skip
    assert started.returncode == 0
    found = []

    def finished() -> bool:
        found[:] = served.adb("logcat", "-d").stdout.splitlines()
        return any(b"Memory footprint delta" in line for line in found)

    wait_until(finished, "the app has measured")
    text = b"\n".join(found).decode()
    assert f"args: --graph={FOLDER}/m.tflite --use_gpu=true" in text
    assert "Explicitly applied GPU delegate, and the model graph will be completely executed" in text
    assert re.search(r"I tflite *: Inference timings in us: Init: \d+", text)


def test_load_is_seen_in_sysfs_while_a_program_runs(served, wait_until):
    path = "/sys/devices/system/cpu/cpu4/cpufreq/scaling_cur_freq"
    idle = int(served.adb("shell", f"cat {path}").stdout)
    served.adb(
        "shell", f"cd {FOLDER}; setsid taskset f0 ./benchmark_model --graph=m.tflite --num_threads=4 --min_secs=600 "
        "--max_secs=600 </dev/null >/dev/null 2>&1 &",
    )  # fmt: skip
    wait_until(lambda: int(served.adb("shell", f"cat {path}").stdout) > idle, "the clock has gone up")
    served.adb("shell", "kill -9 $(pidof benchmark_model)")
    wait_until(lambda: int(served.adb("shell", f"cat {path}").stdout) == idle, "the clock has gone down")
