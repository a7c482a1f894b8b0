"""Every benchmark program on phones, from the command line: what each option, library and delegate
comes to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchfarm_virtual.samples import benchmark_elf
from tests.e2e.conftest import Lab
from tests.samples.places import MODELS
from virtual.tests.unit import tiny_models

PIXEL, GALAXY = 0, 1


@pytest.fixture(scope="module")
def running_lab(lab_of: Callable[..., Lab]) -> Lab:
    return lab_of("pixel-4", "galaxy-s23")


@pytest.fixture
def quantised() -> Path:
    return min(MODELS.glob("*int8*.tflite"))


def bench(
    lab: Lab, *words: object, serial: int = PIXEL, exit_code: int = 0
) -> list[dict[str, Any]]:
    done = lab.cli("bench --min-secs 0.1 -n 1 --json", *words, "-s", lab.serials[serial])
    assert done.exit_code == exit_code, done.stdout + done.stderr
    return done.json["runs"]


def tiny(folder: Path, name: str) -> Path:
    path = folder / f"{name.partition('.')[0]}.tflite"
    path.write_bytes(tiny_models.BY_NAME[name]())
    return path


def test_performance_options_runs_each_case_alone_and_judges_it_by_its_own_lines(
    lab: Lab, model: Path
) -> None:
    words = ("--tool", "perf-options", "-d", "xnnpack,gpu,nnapi", "--pass", "timing,memory")
    lab.fault(lab.serials[PIXEL], "delegate-missing", "subject=nnapi", "times=0")
    runs = bench(lab, model, *words, exit_code=1)
    assert all("--perf_options_list=none" in run["command"] for run in runs)
    assert len({run["command"] for run in runs}) == len(runs) == 6
    for run in runs:
        actual = run["report"]["delegate"]["actual"]
        if run["case"]["delegate"] == "nnapi":
            assert (run["outcome"], run["reason_code"]) == ("failed", "delegate-fell-back")
        else:
            assert (run["outcome"], actual) == ("completed", run["case"]["delegate"])
            assert (run["report"]["peak_memory_mib"] is None) == (run["run_pass"] == "timing")


def test_a_model_with_tensorflow_operators_is_run_with_the_flex_build_alone(
    lab: Lab, tmp_path: Path
) -> None:
    (flex,) = bench(lab, tiny(tmp_path, "multi_add_flex.bin"), "-d", "cpu")
    (plain,) = bench(lab, tiny(tmp_path, "multi_add.bin"), "-d", "cpu")
    assert (flex["outcome"], plain["outcome"]) == ("completed", "completed")
    assert flex["case"]["build_sha256"] != plain["case"]["build_sha256"]


def test_the_plain_app_is_restored_after_the_flex_app(
    lab: Lab, tmp_path: Path, model: Path
) -> None:
    flex_model = tiny(tmp_path, "multi_add_flex.bin")
    done = lab.cli(
        "bench --tool apk -d cpu --min-secs 0.1 -n 2 --json", flex_model, model, "-s", lab.serials[PIXEL],
    )  # fmt: skip
    runs = done.json["runs"]
    flex = {
        run["case"]["build_sha256"]
        for run in runs
        if "Flex" in str(run["report"]["delegate"]["shares"])
    }
    plain = {run["case"]["build_sha256"] for run in runs if run["case"]["model_name"] == model.stem}
    assert len(flex) == len(plain) == 1
    assert flex != plain


def test_litert_measures_cpu_gpu_and_npu(lab: Lab, model: Path) -> None:
    runs = bench(lab, model, "--tool", "litert-native", "-d", "xnnpack,gpu,npu", serial=GALAXY)
    for run in runs:
        delegate = run["case"]["delegate"]
        assert run["outcome"] == "completed"
        assert run["report"]["delegate"]["actual"].startswith(delegate)
        assert run["report"]["inference"]["median_us"] > 0
    (npu,) = (run for run in runs if run["case"]["delegate"] == "npu")
    names = [name for name, _ in npu["case"]["files"]]
    assert names == ["libLiteRtCompilerPlugin_Qualcomm.so", "libLiteRtDispatch_Qualcomm.so"]
    assert "ADSP_LIBRARY_PATH=" in npu["command"]
    (gpu,) = (run for run in runs if run["case"]["delegate"] == "gpu")
    assert "--use_cpu=false" in gpu["command"]
    assert "ADSP_LIBRARY_PATH" not in gpu["command"]


@pytest.mark.parametrize(
    ("flags", "backend", "code"),
    [
        ((), "opencl", ""),
        (("--flag", "gpu_backend=opengl"), "opengl", ""),
        (("--flag", "gpu_backend=webgpu"), "opencl", "delegate-wrong-backend"),
    ],
)
def test_litert_on_a_gpu_is_believed_for_the_backend_that_it_ran_on(
    lab: Lab, model: Path, flags: tuple[str, ...], backend: str, code: str
) -> None:
    runs = bench(
        lab, model, "--tool", "litert-native", "-d", "gpu", "--pass", "timing,memory", *flags, serial=GALAXY,
        exit_code=1 if code else 0,
    )  # fmt: skip
    # The runtime info says it in the one pass, the log alone in the other.
    assert {run["run_pass"] for run in runs} == {"timing", "memory"}
    for run in runs:
        assert (run["reason_code"], run["report"]["delegate"]["backend"]) == (code, backend)
        assert run["report"]["delegate"]["actual"].startswith("gpu")


@pytest.mark.parametrize(
    ("fault", "delegate", "code", "said"),
    [
        ("delegate-missing", "gpu", "delegate-fell-back", "could not be loaded"),
        ("delegate-failing", "gpu", "gpu-init-failed", ""),
        # Whatever was replaced: an NPU's runtime that doesn't load has failed.
        ("delegate-failing", "npu", "npu-init-failed", ""),
    ],
)
def test_litert_whose_delegate_is_missing_or_fails_has_no_figure_of_it(
    lab: Lab, model: Path, fault: str, delegate: str, code: str, said: str
) -> None:
    lab.fault(lab.serials[GALAXY], fault, f"subject={delegate}", "times=0")
    words = ("--tool", "litert-native", "-d", delegate, "--pass", "timing,memory")
    runs = bench(lab, model, *words, serial=GALAXY, exit_code=1)
    assert {(run["outcome"], run["reason_code"]) for run in runs} == {("failed", code)}
    assert all(said in run["reason"] for run in runs)


def test_hexagon_takes_a_quantised_model_by_every_program(lab: Lab, quantised: Path) -> None:
    runs = bench(lab, quantised, "--tool", "native,apk,perf-options", "-d", "hexagon")
    assert len(runs) == 3
    for run in runs:
        assert (run["outcome"], run["report"]["delegate"]["truth"]) == ("completed", "full")
        is_app = run["case"]["tool"] == "apk"
        # The app brings its libraries with it and says itself where they are.
        assert ("libhexagon_interface.so" in dict(run["case"]["files"])) is not is_app
        assert ("hexagon_lib_path=" in run["command"]) is not is_app


def test_an_external_delegate_of_this_computer_is_placed_and_believed_by_evidence(
    lab: Lab, tmp_path: Path
) -> None:
    library = tmp_path / "libmine.so"
    library.write_bytes(benchmark_elf("dummy_external_delegate"))
    add = 0  # the operator's code
    model = tiny(tmp_path, "multi_add.bin")
    words = (
        model,
        "-d",
        "external",
        "--flag",
        f"external_delegate_options=allowed_builtin_code:{add}",
    )
    (run,) = bench(lab, *words, "--flag", f"external_delegate_path=@{library}")
    assert (run["outcome"], run["report"]["delegate"]["truth"]) == ("completed", "full")
    assert [name for name, _ in run["case"]["files"]] == ["libmine.so"]
    assert ["external_delegate_path", "@libmine.so"] in run["case"]["flags"]
    assert str(tmp_path) not in run["command"]
    assert "ADSP_LIBRARY_PATH=" in run["command"]
    library.write_bytes(b"\x7fELF no delegate")
    (other,) = bench(lab, *words, "--flag", f"external_delegate_path=@{library}", exit_code=1)
    assert (other["outcome"], other["reason_code"]) == ("failed", "delegate-fell-back")
    assert other["case"]["files"] != run["case"]["files"]


def test_a_stable_delegate_gets_its_settings_and_its_library(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "libstable.so").write_bytes(benchmark_elf("sample_stable_delegate"))
    settings = tmp_path / "settings.json"
    settings.write_text('{"stable_delegate_loader_settings": {"delegate_path": "libstable.so"}}')
    model = tiny(tmp_path, "multi_add.bin")
    (run,) = bench(
        lab, model, "-d", "external", "--flag", f"stable_delegate_settings_file=@{settings}"
    )
    assert (run["outcome"], run["report"]["delegate"]["truth"]) == ("completed", "full")
    assert [name for name, _ in run["case"]["files"]] == ["libstable.so", "settings.json"]
    words = (
        "bench -d external", model, "-s", lab.serials[PIXEL], "--flag", f"stable_delegate_settings_file=@{settings}",
    )  # fmt: skip
    other = tmp_path / "other" / "libstable.so"
    other.parent.mkdir()
    other.write_bytes(b"another")
    done = lab.cli(*words, "--flag", f"external_delegate_path=@{other}")
    assert "another file of these flags is called 'libstable.so', too" in done.ended_with(2).stderr
    (tmp_path / "libstable.so").unlink()
    done = lab.cli(*words)
    assert "libstable.so' doesn't lie beside it" in done.stderr


def test_a_pass_leaves_the_figures_and_files_that_it_writes_and_no_others(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    runs = bench(lab, model, "-d", "xnnpack", "--pass", "timing,memory,profile")
    by_pass = {run["run_pass"]: run["report"] for run in runs}
    assert by_pass["memory"]["peak_memory_mib"] > 0
    operators = by_pass["profile"]["operators"]
    # The model's own names, under which its author looks for them.
    layers = [row["layer"] for row in operators if "DWConv" in row["name"]]
    assert layers[:2] == ["Relu6_1", "Relu6_3"]
    assert not by_pass["timing"]["operators"]
    assert by_pass["timing"]["peak_memory_mib"] is None
    found = {}
    for run in runs:
        refused = lab.cli("results log", run["run_id"], "--out", tmp_path / "one")
        found[run["run_pass"]] = refused.stderr.rpartition("there are: ")[2].split()
    assert found["timing"] == ["stdout,", "stderr,", "result.pb,", "runtime_info.pb,", "samples"]
    assert found["memory"] == ["stdout,", "stderr,", "result.pb,", "samples"]
    assert found["profile"] == [
        "stdout,",
        "stderr,",
        "result.pb,",
        "op_profile.pb,",
        "samples,",
        "layers",
    ]


def test_the_gpu_of_a_phone_without_opencl_is_measured_on_opengl_and_called_so(
    lab_of: Callable[..., Lab], model: Path
) -> None:
    lab = lab_of("moto-e5-play")
    measure = ("bench -d gpu --min-secs 0.1 -n 1 --tool native", model, "-s", lab.serial)
    done = lab.cli(*measure).ok()
    assert "one clean figure, gpu (OpenGL) with" in " ".join(done.stdout.split())
    report = lab.cli("table").ok().stdout
    assert "gpu (OpenGL)" in report
    refused = lab.cli(*measure, "--flag", "gpu_backend=cl", "--json")
    assert refused.exit_code == 1
    assert refused.json["runs"][0]["outcome"] == "failed"
