"""What is learned from runs, and how often predictions were right."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.models.inspect import identify_model, open_graph
from orchestrator.models.learning import is_categorical, learn, sightings, trials
from orchestrator.models.prediction import kinds, predict
from orchestrator.models.zoo import sample_models
from orchestrator.records.identity import BuildSha, CampaignId, ModelSha, RunId, Serial
from orchestrator.records.run import DelegateEvidence, DelegateTruth, Outcome, RunRecord, ToolReport
from orchestrator.records.verdict import Quality, QualityVerdict
from orchestrator.records.workload import Case, DelegateName, Pass, ToolName

MODELS = {identify_model(path).sha256: path for path in sample_models()}
FLOAT, INT8 = MODELS
GRAPHS = {sha256: open_graph(path) for sha256, path in MODELS.items()}
BEGUN = datetime(2026, 11, 20, tzinfo=UTC)


def run(
    truth: DelegateTruth, *, model: str = FLOAT, delegate: DelegateName = DelegateName.GPU, serial: str = "A",
    hours: int = 0, virtual: bool = False, outcome: Outcome = Outcome.COMPLETED, **evidence,
) -> RunRecord:  # fmt: skip
    case = Case(
        serial=Serial(serial), model_sha256=ModelSha(model), model_name=model[:6], delegate=delegate, threads=1,
        tool=ToolName.NATIVE, build_sha256=BuildSha("b"),
    )  # fmt: skip
    return RunRecord(
        run_id=RunId(f"{serial}{model}{hours}"), campaign_id=CampaignId("c"), case=case, run_pass=Pass.TIMING,
        invocation=hours, outcome=outcome, reason_code="", reason="", is_virtual=virtual,
        started_at=BEGUN + timedelta(hours=hours), duration_s=1.0, command="", exit_code=0, attachments=(),
        report=ToolReport(outcome="ok", delegate=DelegateEvidence(truth=truth, **evidence)),
        verdict=QualityVerdict(quality=Quality.TRUSTED),
    )  # fmt: skip


def test_newest_run_of_a_device_counts_and_runs_that_say_nothing_do_not():
    runs = [
        run(DelegateTruth.PARTIAL, hours=2, delegated_nodes=20, total_nodes=30),
        run(DelegateTruth.FULL, hours=1),
        run(DelegateTruth.UNKNOWN, serial="B"),
        run(DelegateTruth.FELL_BACK, serial="C"),
        run(DelegateTruth.FULL, serial="D", delegate=DelegateName.CPU),
        run(DelegateTruth.FULL, serial="E", outcome=Outcome.UNFIT),
    ]
    (seen,) = sightings(runs)
    assert (seen.serial, seen.runs, seen.evidence.delegated_nodes) == ("A", 2, 20)


def test_unsupported_operator_is_refused_in_all_models_and_a_reason_about_options_for_its_kind():
    words = (("SOFTMAX", "Operation is not supported."), ("MEAN", "MEAN: axes must be constant."))
    seen = sightings([run(DelegateTruth.PARTIAL, cpu_operators=words)])
    (mean,) = (kind for kind in kinds(GRAPHS[FLOAT]) if kind.startswith("MEAN "))
    assert set(learn(seen, GRAPHS, "gpu", model_sha256=INT8)) == {"SOFTMAX", mean}
    assert "INT8" not in mean
    own = learn(seen, GRAPHS, "gpu", model_sha256=FLOAT)
    assert set(own) == {"SOFTMAX", "MEAN", mean}
    assert own["MEAN"].reason == "MEAN: axes must be constant."
    assert learn(seen, GRAPHS, "nnapi") == {}
    # Without its file nobody knows of what kind the operator was.
    assert set(learn(seen, {}, "gpu")) == {"SOFTMAX"}


def test_partly_taken_model_tells_of_each_kind_where_its_numbers_agree():
    left = (("SOFTMAX", ""),)
    seen = sightings([
        run(DelegateTruth.PARTIAL, model=INT8, delegate=DelegateName.NNAPI, cpu_operators=left, delegated_nodes=29,
            total_nodes=30),
    ])  # fmt: skip
    words = learn(seen, GRAPHS, "nnapi")
    assert {word.operator: word.is_taken for word in words.values()}["SOFTMAX"] is False
    assert sum(word.is_taken for word in words.values()) == len(set(kinds(GRAPHS[INT8]))) - 1
    # Two operators are missing and one is named: what was taken stays unknown.
    doubtful = [replace(seen[0], evidence=replace(seen[0].evidence, delegated_nodes=28))]
    assert not any(word.is_taken for word in learn(doubtful, GRAPHS, "nnapi").values())
    # The GPU delegate leaves smaller partitions, too: without a reason it is no refusal.
    gpu = [replace(doubtful[0], delegate="gpu")]
    assert learn(gpu, GRAPHS, "gpu") == {}


def test_same_device_goes_before_another_and_a_twin_gives_nothing_away():
    words = (("SOFTMAX", "Operation is not supported."),)
    runs = [
        run(DelegateTruth.FULL, model=FLOAT, serial="A"),
        run(DelegateTruth.PARTIAL, model=FLOAT, serial="B", cpu_operators=words, delegated_nodes=29, total_nodes=30),
        run(DelegateTruth.PARTIAL, model=INT8, serial="B", cpu_operators=words, delegated_nodes=29, total_nodes=30),
    ]
    found = {(trial.serial, trial.model_sha256): trial for trial in trials(sightings(runs), GRAPHS)}
    assert [found[key].is_exact for key in (("B", FLOAT), ("B", INT8))] == [True, True]
    assert [found[key].is_documented_exact for key in (("B", FLOAT), ("B", INT8))] == [False, False]
    # The same network under another hash (other weights) would tell the answer.
    twin = "c" * 64
    alone = trials(sightings([*runs[1:2], replace(runs[2], case=replace(runs[2].case, model_sha256=ModelSha(twin)))]),
                   {FLOAT: GRAPHS[FLOAT], twin: GRAPHS[FLOAT]})  # fmt: skip
    assert [trial.is_exact for trial in alone] == [False, False]


def test_wholly_taken_model_says_what_is_taken_elsewhere_with_the_same_types():
    seen = sightings([run(DelegateTruth.FULL, model=INT8, delegate=DelegateName.XNNPACK)])
    words = learn(seen, GRAPHS, "xnnpack")
    assert "SOFTMAX" in {refusal.operator for refusal in predict(GRAPHS[INT8], "xnnpack").refusals}
    assert predict(GRAPHS[INT8], "xnnpack", learned=words).extent == "full"
    assert learn(seen, {}, "xnnpack") == {}


def test_refusal_of_one_device_weighs_more_than_another_that_took_it():
    seen = sightings([
        run(DelegateTruth.FULL, serial="A"),
        run(DelegateTruth.PARTIAL, serial="B", cpu_operators=(("SOFTMAX", "Operation is not supported."),)),
    ])  # fmt: skip
    found = predict(GRAPHS[FLOAT], "gpu", learned=learn(seen, GRAPHS, "gpu"))
    assert [(refusal.operator, refusal.reason) for refusal in found.refusals] == [
        ("SOFTMAX", "Operation is not supported.")
    ]
    assert found.learned == 30


def test_virtual_phones_teach_nothing_about_real_ones_nor_the_other_way():
    words = (("SOFTMAX", "Operation is not supported."),)
    seen = sightings([run(DelegateTruth.PARTIAL, virtual=True, cpu_operators=words)])
    assert learn(seen, GRAPHS, "gpu") == {}
    assert set(learn(seen, GRAPHS, "gpu", virtual=True)) == {"SOFTMAX"}


def test_trial_learns_from_other_models_and_never_from_its_own():
    words = (("SOFTMAX", "Operation is not supported."),)
    taught_by_other = sightings([
        run(DelegateTruth.PARTIAL, model=INT8, cpu_operators=words, delegated_nodes=29, total_nodes=30),
        run(DelegateTruth.PARTIAL, model=FLOAT, delegated_nodes=29, total_nodes=30),
    ])  # fmt: skip
    by_model = {trial.model_sha256: trial for trial in trials(taught_by_other, GRAPHS)}
    assert (by_model[FLOAT].is_hit, by_model[FLOAT].is_documented_hit, by_model[FLOAT].is_exact) == (True, False, True)
    # INT8's own words told of SOFTMAX, and no other model's did.
    assert (by_model[INT8].is_hit, by_model[INT8].is_exact) == (False, False)


def test_number_of_operators_is_judged_only_when_it_was_printed():
    assert trials(sightings([run(DelegateTruth.FULL)]), {}) == []
    (trial,) = trials(sightings([run(DelegateTruth.FULL)]), GRAPHS)
    assert (trial.is_hit, trial.is_exact) == (True, None)
    (exact,) = trials([replace(sightings([run(DelegateTruth.FULL, delegated_nodes=30)])[0])], GRAPHS)
    assert exact.is_exact


@pytest.mark.parametrize(
    ("reason", "categorical"),
    [
        ("Operation is not supported.", True),
        ("Not supported op TOPK_V2", True),
        ("OP is supported, but tensor type/shape isn't compatible.", False),
        ("StridedSlice does not support shrink_axis_mask parameter.", False),
        ("Not supported logical op case", False),
    ],
)
def test_reasons_about_an_operator_are_told_from_those_about_its_options(reason, categorical):
    assert is_categorical(reason) is categorical
