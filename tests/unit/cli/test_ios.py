"""``benchfarm ios``: from a plan to folders for a Mac, and from what the app showed to stored, judged runs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.app.iphones import IPhone
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli import ios, reports, stored
from orchestrator.cli.result import CommandResult
from orchestrator.errors import UsageError
from orchestrator.records.device import DeviceKind
from orchestrator.records.run import DelegateTruth, Outcome
from orchestrator.records.verdict import Quality
from tests.samples.iphone_output import FULL, console, view
from tests.samples.places import MODELS

MODEL = min(MODELS.glob("*float*.tflite"))
SIZE_BYTES = MODEL.stat().st_size
GPU = f"INFO: {FULL.format(name='GPU')}\n"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.from_environment({}, home=tmp_path / "home")


@pytest.fixture
def write_plan(tmp_path: Path) -> Callable[..., Path]:
    def write(delegates: str = "[cpu, gpu, nnapi]", profiles: str = "[pixel-4, iphone-xs]", extra: str = "") -> Path:
        path = tmp_path / "plan.yaml"
        path.write_text(
            f"name: phones\nmodels: [{json.dumps(str(MODEL))}]\n"
            f"matrix: {{delegates: {delegates}, threads: [2], tools: [native]}}\n"
            f"devices: {{profiles: {profiles}}}\ninvocations: 2\n{extra}"
        )
        return path

    return write


@pytest.fixture
def folder(settings: Settings, write_plan: Callable[..., Path], tmp_path: Path) -> Path:
    """An exported plan: the GPU case has the folder that ``case_folder`` finds."""
    out = tmp_path / "export"
    ios.export(settings, write_plan(), out, IPhone(name="lab-xs", os_version="17.4"))
    return out


def case_folder(folder: Path, delegate: str = "gpu") -> Path:
    (found,) = folder.glob(f"*-{delegate}-*")
    return found


def params_of(case: Path) -> dict[str, str]:
    params: dict[str, str] = json.loads((case / "benchmark_data" / "benchmark_params.json").read_text())
    return params


def put(case: Path, name: str, text: str) -> Path:
    path = case / "results" / name
    path.write_text(text)
    return path


def take(settings: Settings, folder: Path, *files: Path, case: str = "") -> CommandResult:
    return ios.import_results(settings, folder, files, case, None)


def test_an_export_has_for_each_case_the_model_and_its_parameters_as_text(folder: Path) -> None:
    case = case_folder(folder)
    params = params_of(case)
    assert params["use_gpu"] == "true"
    assert all(isinstance(value, str) for value in params.values())
    assert (case / "benchmark_data" / params["graph"]).read_bytes() == MODEL.read_bytes()
    assert "benchfarm ios import" in (folder / "README.md").read_text()


def test_what_an_iphone_can_not_do_is_skipped_with_a_reason(folder: Path) -> None:
    skipped = json.loads((folder / "manifest.json").read_text())["skipped"]
    assert [(skip["delegate"], skip["reason_code"]) for skip in skipped] == [("nnapi", "delegate-not-in-tool")]


def test_flags_that_the_app_has_not_are_skipped(
    settings: Settings, write_plan: Callable[..., Path], tmp_path: Path
) -> None:
    plan = write_plan("[gpu]")
    plan.write_text(plan.read_text().replace("threads: [2]", "threads: [2], flags: [{}, {gpu_backend: cl}]"))
    data = ios.export(settings, plan, tmp_path / "export", IPhone()).data
    assert isinstance(data, dict)
    assert len(data["cases"]) == 1
    assert [skip.reason_code for skip in data["skipped"]] == ["flags-not-in-tool"]
    assert data["serial"] == "iphone-xs"


def test_a_plan_without_an_iphone_needs_one_named(
    settings: Settings, write_plan: Callable[..., Path], tmp_path: Path
) -> None:
    plan = write_plan(profiles="[pixel-4]")
    with pytest.raises(UsageError, match="--profile"):
        ios.export(settings, plan, tmp_path / "export", IPhone())
    with pytest.raises(UsageError, match="pixel-4"):
        ios.export(settings, plan, tmp_path / "export", IPhone(profile="pixel-4"))
    ios.export(settings, plan, tmp_path / "export", IPhone(profile="iphone-xs"))


def test_a_pass_that_the_app_can_not_do_is_left_out_and_told(
    settings: Settings, write_plan: Callable[..., Path], tmp_path: Path
) -> None:
    plan = write_plan("[cpu]", extra="passes: [timing, memory, cold]\n")
    result = ios.export(settings, plan, tmp_path / "export", IPhone())
    assert isinstance(result.data, dict)
    assert [case["pass"] for case in result.data["cases"]] == ["timing", "memory"]
    assert "the pass cold" in result.text
    with pytest.raises(UsageError, match="cold"):
        ios.export(settings, write_plan("[cpu]", extra="passes: cold\n"), tmp_path / "other", IPhone())


def test_an_export_never_writes_over_what_is_there(
    settings: Settings, write_plan: Callable[..., Path], folder: Path
) -> None:
    before = sorted(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    with pytest.raises(UsageError, match="isn't an empty folder"):
        ios.export(settings, write_plan(), folder, IPhone())
    assert sorted(path.read_bytes() for path in folder.rglob("*") if path.is_file()) == before


def test_imported_console_texts_are_judged_runs_of_the_iphone(settings: Settings, folder: Path) -> None:
    case = case_folder(folder)
    for number, mean_us in enumerate((4000.0, 4010.0), start=1):
        text = console(params_of(case), size_bytes=SIZE_BYTES, mean_us=mean_us, delegate_lines=GPU)
        put(case, f"{number}.txt", text)
    result = take(settings, folder)
    assert result.exit_code == 0
    assert "2 runs imported" in result.text
    assert "cpu-2t: 0 of 2 runs" in result.text
    with Farm(settings) as farm:
        first, second = farm.store.runs()
        facts = farm.store.devices()[first.case.serial]
        (campaign,) = farm.store.campaigns()
        (kept, *_) = farm.store.attachments(first.run_id)
    assert (facts.serial, facts.kind, facts.is_virtual, facts.os_version) == ("lab-xs", DeviceKind.IOS, False, "17.4")
    assert (first.invocation, second.invocation) == (0, 1)
    assert (first.outcome, first.latency_us, first.is_virtual) == (Outcome.COMPLETED, 4000.0, False)
    assert first.report is not None
    assert first.report.delegate.truth is DelegateTruth.FULL
    assert first.verdict.quality is Quality.TRUSTED
    assert kept.data == (case / "results" / "1.txt").read_bytes()
    assert campaign.status.value == "finished"


def test_reading_again_finds_the_same(settings: Settings, folder: Path) -> None:
    case = case_folder(folder)
    texts = [console(params_of(case), size_bytes=SIZE_BYTES, mean_us=mean, delegate_lines=GPU) for mean in (4e3, 5e3)]
    put(case, "both.txt", "".join(texts))
    take(settings, folder)
    with Farm(settings) as farm:
        assert [run.latency_us for run in farm.store.runs()] == [4000.0, 5000.0]
    assert stored.reparse(settings, ()).data == {"reviewed": 2, "changed": [], "pruned": 0}


def test_a_delegate_that_fell_back_is_a_failed_run(settings: Settings, folder: Path) -> None:
    case = case_folder(folder)
    put(case, "1.txt", console(params_of(case), size_bytes=SIZE_BYTES))
    assert take(settings, folder).exit_code == 1
    with Farm(settings) as farm:
        (run,) = farm.store.runs()
    assert (run.outcome, run.reason_code) == (Outcome.FAILED, "delegate-fell-back")


def test_a_view_s_figures_are_suspect_because_nothing_shows_their_case(settings: Settings, folder: Path) -> None:
    put(case_folder(folder), "1.txt", view())
    take(settings, folder)
    with Farm(settings) as farm:
        (run,) = farm.store.runs()
    assert run.latency_us == 4000.0
    assert run.verdict.quality is Quality.SUSPECT
    assert run.verdict.has("unidentified")
    assert run.verdict.has("delegate-unknown")


def test_texts_of_other_cases_are_refused_all_at_once_and_nothing_is_stored(settings: Settings, folder: Path) -> None:
    cpu, gpu = case_folder(folder, "cpu"), case_folder(folder)
    put(cpu, "1.txt", console(params_of(gpu), size_bytes=SIZE_BYTES))
    put(gpu, "1.txt", console({**params_of(gpu), "num_threads": "6"}, size_bytes=SIZE_BYTES))
    put(gpu, "2.txt", "hello\n")
    with pytest.raises(UsageError) as caught:
        take(settings, folder)
    for word in ("Use gpu: [1]", "Num threads: [6]", "2.txt"):
        assert word in str(caught.value)
    with Farm(settings) as farm:
        assert list(farm.store.campaigns()) == []


def test_importing_again_adds_only_what_is_new(settings: Settings, folder: Path) -> None:
    case = case_folder(folder)
    put(case, "1.txt", console(params_of(case), size_bytes=SIZE_BYTES, delegate_lines=GPU))
    take(settings, folder)
    assert "0 runs imported, 1 were there already" in take(settings, folder).text
    put(case, "2.txt", console(params_of(case), size_bytes=SIZE_BYTES, mean_us=4020.0, delegate_lines=GPU))
    assert "1 runs imported, 1 were there already" in take(settings, folder).text
    with Farm(settings) as farm:
        assert len(list(farm.store.runs())) == 2


def test_a_console_text_from_anywhere_tells_its_case_and_a_view_needs_it_named(
    settings: Settings, folder: Path, tmp_path: Path
) -> None:
    cpu = case_folder(folder, "cpu")
    text = tmp_path / "log.txt"
    text.write_text(console(params_of(cpu), size_bytes=SIZE_BYTES))
    take(settings, folder, text)
    shown = tmp_path / "view.txt"
    shown.write_text(view())
    with pytest.raises(UsageError, match="--case"):
        take(settings, folder, shown)
    with pytest.raises(UsageError, match="fits several"):
        take(settings, folder, shown, case="0")
    with pytest.raises(UsageError, match="no case"):
        take(settings, folder, shown, case="nosuch")
    take(settings, folder, shown, case=case_folder(folder).name)
    with Farm(settings) as farm:
        assert [run.case.delegate.value for run in farm.store.runs()] == ["cpu", "gpu"]


def test_a_folder_without_results_or_without_a_manifest_is_told(
    settings: Settings, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="no results yet"):
        take(settings, folder)
    with pytest.raises(UsageError, match=r"manifest\.json"):
        take(settings, tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["cases"][0]["case"].update(threads=1),
        lambda manifest: manifest["cases"][0]["params"].update(num_threads="1"),
        lambda manifest: manifest["cases"][0].update(folder="../elsewhere"),
        lambda manifest: manifest.update(models=[]),
        lambda manifest: manifest["device"].update(serial="half \ud800"),
        lambda manifest: manifest.update(cases=7),
        lambda manifest: manifest.update(schema_version=99),
        lambda manifest: manifest.pop("device"),
    ],
)
def test_a_manifest_that_was_changed_is_refused(
    settings: Settings, folder: Path, change: Callable[[dict[str, object]], object]
) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(UsageError):
        take(settings, folder)


def test_an_app_named_by_its_file_is_known_by_the_file_s_content(
    settings: Settings, write_plan: Callable[..., Path], tmp_path: Path
) -> None:
    ipa = tmp_path / "app.ipa"
    ipa.write_bytes(b"one")
    keys = set()
    for number, content in enumerate((b"one", b"two")):
        ipa.write_bytes(content)
        data = ios.export(settings, write_plan("[cpu]"), tmp_path / f"e{number}", IPhone(app=str(ipa))).data
        assert isinstance(data, dict)
        keys.add(data["cases"][0]["case_key"])
    assert len(keys) == 2
    with pytest.raises(UsageError, match=r"gone\.ipa"):
        ios.export(settings, write_plan("[cpu]"), tmp_path / "e3", IPhone(app="./gone.ipa"))


def test_a_report_shows_the_iphone(settings: Settings, folder: Path) -> None:
    case = case_folder(folder)
    put(case, "1.txt", console(params_of(case), size_bytes=SIZE_BYTES, delegate_lines=GPU))
    take(settings, folder)
    for form in ("text", "markdown", "csv", "json"):
        text = reports.render(settings, (), form=form, out=None, published=False).text
        assert "iPhone XS" in text, form
    shown = reports.render(settings, (), form="html", out=None, published=False).text
    assert "iPhone XS" in Path(shown).read_text("utf-8")
