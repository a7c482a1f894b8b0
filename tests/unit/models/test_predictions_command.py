"""Predictions beside what this computer did, by the commands, for a model that a plan names as models.yaml does."""

from orchestrator.app import reporting
from orchestrator.bootstrap import Settings
from orchestrator.config.model_manifest import add_to_manifest
from orchestrator.models.inspect import identify_model
from orchestrator.models.zoo import sample_models
from orchestrator.records.model import Accuracy, ManifestEntry
from tests.samples.command import Cli

INT8 = sample_models()[1]
PLAN = """
models: int8 sample
devices: {host: true}
matrix: {delegates: xnnpack, threads: 1, tools: litert}
invocations: 1
settings: {num_runs: 5, min_secs: 0, warmup_min_secs: 0}
reference_check: false
"""


def test_prediction_stands_beside_what_this_computer_did(tmp_path):
    benchfarm = Cli(home=tmp_path)
    sha256 = identify_model(INT8).sha256
    entry = ManifestEntry(name="int8 sample", sha256=sha256, path=INT8)
    add_to_manifest(tmp_path / "models.yaml", [entry])
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "p.yaml").write_text(PLAN)
    done = benchfarm("run", tmp_path / "plans" / "p.yaml")
    assert "1 stored" in done.said, done.said

    told = benchfarm("model", "predictions", "--json").json
    (trial,) = told["trials"]
    assert (trial["serial"], trial["extent"], trial["predicted"]["taken"]) == ("host", "partial", 29)
    assert told["hits"]["devices"] == {
        "trials": 1,
        "hits": 1,
        "hits_by_documents": 1,
        "counted": 0,
        "exact": 0,
        "exact_by_documents": 0,
    }
    assert told["hits"]["virtual"]["trials"] == 0

    shown = benchfarm("model", "inspect", INT8, "--delegate", "xnnpack", "--device", "host").stdout
    assert "xnnpack likely takes 29 of 30 operators in 1 partition" in shown
    assert "partition of 29: #0-#28" in shown
    assert "#29 SOFTMAX: its data is INT8" in shown
    assert "host took partial" in shown
    assert "hit rate: devices: 1 of 1 right" in shown
    unknown = benchfarm("model", "inspect", INT8, "--delegate", "xnnpack", "--device", "nobody")
    assert (unknown.exit_code, "no stored run is of a device 'nobody'" in unknown.stderr) == (2, True)


def test_report_knows_the_manifests_accuracies_and_outlives_a_manifest_with_faults(tmp_path):
    settings = Settings.from_environment({}, home=tmp_path)
    known = Accuracy(percent=71.5, metric="top-1", source="made up for a test")
    add_to_manifest(
        tmp_path / "models.yaml", [ManifestEntry(name="m", sha256="a" * 64, path=tmp_path / "m.tflite", accuracy=known)]
    )
    assert reporting._manifest_accuracies(settings) == {"a" * 64: 71.5}
    (tmp_path / "models.yaml").write_text("models: 3\n")
    assert reporting._manifest_accuracies(settings) == {}
    done = Cli(home=tmp_path)("model", "list")
    assert (done.exit_code, "models.yaml:1" in done.stderr) == (2, True)
