"""Plan files and plans made of options."""

import os

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.config.plan import load_plan, plan_from_options, plan_json_schema
from orchestrator.errors import PlanError
from orchestrator.records.case import DelegateName
from orchestrator.records.plan import (
    DeviceSelection,
    InvocationCount,
    Order,
    Plan,
    StoppingRule,
    fixed_count,
    keys_of,
)
from tests.samples.extensions import needs_extension
from tests.samples.places import REPO
from tests.samples.plan_files import read_plan

EXAMPLE = REPO / "examples" / "plan.yaml"


@pytest.fixture
def folder(tmp_path):
    # What looks like a pattern in a folder's own name is none.
    folder = tmp_path / "plans[1]"
    for name in ("a.tflite", "b.tflite", "sub/a.tflite"):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(name.encode())
    return folder


@needs_extension("energy")
def test_example_holds_every_key_and_loads():
    plan = load_plan(EXAMPLE)
    assert [model.name for model in plan.models] == ["texturenet_0.25_256_float", "texturenet-int8"]
    assert plan.matrix.flags == (
        (),
        (("gpu_backend", "cl"), ("gpu_precision_loss_allowed", "false")),
    )
    assert plan.text == EXAMPLE.read_text()
    written = yaml.safe_load(plan.text)
    keys = {key.at for key in keys_of(Plan)}
    assert set(written) == {at[0] for at in keys}
    for section in ("matrix", "settings", "limits", "quiet"):
        assert set(written[section]) == {at[1] for at in keys if at[0] == section}


def test_models_are_found_from_the_plans_folder_sorted_and_once(folder, monkeypatch):
    (folder / "c[1].tflite").write_bytes(b"c")
    path = folder / "plan.yaml"
    path.write_text(
        "models: ['*.tflite', b.tflite, 'c[1].tflite', {path: sub/a.tflite, name: other}]\n"
    )
    monkeypatch.chdir("/")
    assert [(m.name, m.path.name) for m in load_plan(path).models] == [
        ("a", "a.tflite"),
        ("b", "b.tflite"),
        ("c[1]", "c[1].tflite"),
        ("other", "a.tflite"),
    ]


def test_units_are_read(folder):
    text = "models: a.tflite\nlimits: {wait: 1.5 min, battery_heat_max: 38 °C, thermal_status_max: light}\n"
    limits = read_plan(text + "timeout: 2 min\n", folder).limits
    assert (limits.wait, limits.battery_heat_max, limits.thermal_status_max) == (90.0, 38.0, 1)
    cores = read_plan("models: a.tflite\nsettings: {affinity: 0xF0}\n", folder).settings.affinity
    assert cores == "f0"


def test_schema_for_editors_takes_the_example_and_names_every_key():
    schema = plan_json_schema()
    assert set(schema["properties"]) == {key.at[0] for key in keys_of(Plan)}
    assert schema["required"] == ["models"]
    assert schema["additionalProperties"] is False
    assert {"type": "string"} in schema["properties"]["models"]["anyOf"][0]["anyOf"]


def test_options_make_the_same_plan_as_the_file_that_they_are_written_to(folder, tmp_path_factory):
    plan = plan_from_options(
        models=[folder / "a.tflite"],
        delegates=["xnnpack,gpu"],
        threads=["1", 4],
        tools=["native"],
        flags=["gpu_backend=cl", "delegate_serialize_dir=/data/local/tmp/a b=c"],
        devices=["0123", "emulator-5554"],
        where=["android >= 9"],
        one_of_each="soc",
        at_most=2,
        host=True,
        num_runs=5,
        min_secs="200 ms",
        passes=["timing,sustained"],
        builds={"native": "benchmark_model"},
        invocations="6-20",
        precision="1%",
        budget="10m",
        sustained="2 min",
        reference_check=False,
        reboot=True,
        order="sequential",
        timeout="2 min",
    )
    assert plan.matrix.delegates == (DelegateName.XNNPACK, DelegateName.GPU)
    assert plan.matrix.threads == (1, 4)
    assert plan.devices == DeviceSelection(
        serials=("0123", "emulator-5554"),
        where=("android >= 9",),
        one_of_each="soc",
        any=2,
        host=True,
    )
    assert plan.settings.min_secs == 0.2
    assert plan.stopping == StoppingRule(first=6, half_width=0.01, most=20)
    assert (plan.budget, plan.sustained, plan.order) == (600.0, 120.0, Order.SEQUENTIAL)
    assert (plan.reference_check, plan.reboot) == (False, True)
    assert read_plan(plan.text, tmp_path_factory.mktemp("elsewhere")) == plan
    # Numbers stand there as numbers, and what only looks like one as it was.
    assert "threads:\n  - 1\n  - 4\n" in plan.text
    assert "- '0123'" in plan.text


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(
    stem=st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=30)
)
def test_any_file_name_survives_the_way_through_options_and_text(tmp_path_factory, stem):
    path = tmp_path_factory.mktemp("m") / f"{stem}.tflite"
    path.write_bytes(b"x")
    plan = plan_from_options(models=[path], devices=[stem] if stem.strip() else None)
    assert plan.models[0].path == path
    assert read_plan(plan.text, tmp_path_factory.mktemp("elsewhere")) == plan


def test_delegates_are_known_in_any_case_and_a_word_for_several_stands_alone(folder):
    def matrix(*words):
        return plan_from_options(models=[folder / "a.tflite"], delegates=words).matrix

    assert matrix("GPU", "Xnnpack").delegates == (DelegateName.GPU, DelegateName.XNNPACK)
    assert (matrix("ALL").named, matrix("ALL").choice) == ((), "all")
    with pytest.raises(PlanError, match="'all' stands for several delegates"):
        matrix("gpu", "all")


def test_faults_of_options_name_the_option(folder):
    with pytest.raises(PlanError) as raised:
        plan_from_options(
            models=["none.tflite"],
            delegates=["gpuu"],
            threads=["x"],
            num_runs="many",
            flags=["graph=x"],
        )
    text = str(raised.value)
    for part in (
        "model: there is no file",
        "--delegate: 'gpuu'",
        "--threads: 'x' should be a valid integer",
        "--inferences: 'many' should be a valid integer",
    ):
        assert part in text
    with pytest.raises(
        PlanError, match=r"--flag: the flag use_gpu can't be set here: .*--delegate sets it"
    ):
        plan_from_options(models=[folder / "a.tflite"], flags=["use_gpu=true"])
    with pytest.raises(PlanError, match=r"model: .* would both be called 'a'; rename one"):
        plan_from_options(models=[folder / "a.tflite", folder / "sub" / "a.tflite"])
    with pytest.raises(PlanError, match="--flag: 'allow_fp16' lacks a value"):
        plan_from_options(models=[folder / "a.tflite"], flags=["allow_fp16"])
    with pytest.raises(PlanError, match=r"--one-of-each: .*sok"):
        plan_from_options(models=[folder / "a.tflite"], one_of_each="sok")
    with pytest.raises(PlanError, match="model: must not be empty"):
        plan_from_options(models=[])


def test_file_name_that_is_no_utf8_is_refused(folder):
    with open(os.fsencode(folder) + b"/\xff.tflite", "wb") as stream:
        stream.write(b"x")
    with pytest.raises(PlanError, match="isn't UTF-8; rename the file"):
        plan_from_options(models=[os.fsdecode(os.fsencode(folder) + b"/\xff.tflite")])


def test_a_plain_number_of_invocations_is_fixed_and_bounds_adapt(folder):
    def read(text):
        return read_plan(f"models: a.tflite\n{text}", folder)

    plain = read("invocations: 5\n")
    assert (plain.invocations, plain.stopping) == (fixed_count(5), None)
    assert read("invocations: 6-20\n").invocations == InvocationCount(first=6, most=20)
    rule = read("invocations: {first: 4}\nprecision: 5 %\nbudget: 30m\n")
    assert (rule.invocations.first, rule.budget) == (4, 1800.0)
    assert rule.stopping == StoppingRule(first=4, half_width=0.05, most=40)


@pytest.mark.parametrize("name", ["", "  ", "x" * 101, "two\nlines"])
def test_a_name_that_nothing_can_show_is_one_clear_fault(folder, name):
    with pytest.raises(PlanError) as raised:
        plan_from_options(models=[folder / "a.tflite"], name=name)
    (fault,) = raised.value.faults
    assert fault.startswith("--name: ")
