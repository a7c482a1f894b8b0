"""models.yaml: read, written, and named in plans."""

from pathlib import Path

import pytest

from orchestrator.app.preparing import identify_models
from orchestrator.config.declarations import (
    Accuracy,
    ManifestEntry,
    add_to_manifest,
    load_manifest,
    named_models,
)
from orchestrator.config.plan import load_plan
from orchestrator.errors import ModelError, PlanError
from orchestrator.models.inspect import identify_model, sample_models

MODEL = sample_models()[0]


def entry(name: str, sha256: str, path: Path, **changes) -> ManifestEntry:
    return ManifestEntry(name=name, sha256=sha256, path=path, **changes)


def test_what_is_written_is_read_again(tmp_path):
    path = tmp_path / "models.yaml"
    given = [
        entry("a", "a" * 64, tmp_path / "sub" / "a.tflite", command="benchfarm model build 'x: y' #no comment",
              build={"seed": "0", "size": "1e3", "tensorflow": "2.10"}, note="é\n\"'"),
        entry("b", "b" * 64, Path("/elsewhere/b.tflite"), url="https://models.example/b.tgz",
              accuracy=Accuracy(percent=0.5, metric="ImageNet top-1", source="https://models.example/")),
    ]  # fmt: skip
    add_to_manifest(path, given)
    assert load_manifest(path) == {item.sha256: item for item in given}
    assert "file: sub/a.tflite" in path.read_text()
    assert [item.name for item in tmp_path.iterdir()] == ["models.yaml"]
    (tmp_path / "usual").touch()
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_new_entry_takes_the_place_of_its_name_and_keeps_an_accuracy_of_the_same_content(tmp_path):
    path = tmp_path / "models.yaml"
    known = Accuracy(percent=70.0, metric="top-1", source="somebody")
    add_to_manifest(path, [entry("a", "a" * 64, tmp_path / "a.tflite", accuracy=known)])
    add_to_manifest(path, [entry("a", "a" * 64, tmp_path / "a.tflite", note="built again")])
    assert load_manifest(path)["a" * 64].accuracy == known
    add_to_manifest(path, [entry("a", "c" * 64, tmp_path / "a.tflite")])
    assert [(item.sha256, item.accuracy) for item in load_manifest(path).values()] == [
        ("c" * 64, None)
    ]


def test_all_faults_are_told_with_their_places(tmp_path):
    path = tmp_path / "models.yaml"
    path.write_text(
        "models:\n- {name: a, file: a.tflite, sha256: 12}\n- {name: b, file: b.tflite, sha256: '" + "b" * 64
        + "', accuracy: {percent: many, source: x}, colour: red}\n"
    )  # fmt: skip
    with pytest.raises(PlanError) as raised:
        load_manifest(path)
    assert [fault.split(":")[1] for fault in raised.value.faults] == ["2", "3", "3"]


def test_two_models_of_one_name_are_a_fault(tmp_path):
    path = tmp_path / "models.yaml"
    lines = [f"- {{name: a, file: {digit}.tflite, sha256: '{digit * 64}'}}" for digit in "ab"]
    path.write_text("models:\n" + "\n".join(lines) + "\n")
    with pytest.raises(PlanError, match="already the name of another model"):
        load_manifest(path)


@pytest.fixture
def folders(tmp_path):
    """A home and a plan's folder; each knows a model of its own and one of the same name."""
    home, plans = tmp_path / "home", tmp_path / "plans"
    sha256 = identify_model(MODEL).sha256
    add_to_manifest(home / "models.yaml", [entry("texture", sha256, MODEL)])
    add_to_manifest(plans / "models.yaml", [entry("gone", "d" * 64, plans / "gone.tflite")])
    return home, plans


def test_plan_names_a_model_of_the_data_folder_and_is_held_to_its_content(folders):
    home, plans = folders
    (plans / "p.yaml").write_text("models: texture\n")
    (model,) = load_plan(plans / "p.yaml", home=home).models
    assert (model.path, model.sha256) == (MODEL, identify_model(MODEL).sha256)
    assert identify_models(load_plan(plans / "p.yaml", home=home))[0].sha256 == model.sha256
    (plans / "copy.tflite").write_bytes(MODEL.read_bytes())
    add_to_manifest(plans / "models.yaml", [entry("texture", "e" * 64, plans / "copy.tflite")])
    with pytest.raises(ModelError, match="the plan requires " + "e" * 64):
        identify_models(load_plan(plans / "p.yaml", home=home))


def test_name_without_a_file_and_unknown_name_are_faults(folders):
    home, plans = folders
    (plans / "p.yaml").write_text("models: gone\n")
    with pytest.raises(PlanError, match=r"there is no file .*gone"):
        load_plan(plans / "p.yaml")
    (plans / "p.yaml").write_text("models: nobody\n")
    with pytest.raises(PlanError, match=r"there is no file .*nobody"):
        load_plan(plans / "p.yaml", home=home)


def test_nearer_manifest_goes_before_the_data_folders(folders):
    home, plans = folders
    add_to_manifest(plans / "models.yaml", [entry("texture", "e" * 64, plans / "x.tflite")])
    assert named_models([plans, home])["texture"].sha256 == "e" * 64
