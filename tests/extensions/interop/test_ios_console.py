"""``benchfarm import``: results that others measured, as judged runs of a named phone."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.app.requests import ImportRequest
from orchestrator.app.workspace import Workspace
from orchestrator.cli import reports, stored
from orchestrator.cli.output import CommandResult
from orchestrator.engine.reread import Review
from orchestrator.errors import StoreError, UsageError
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.device import DeviceKind
from orchestrator.records.verdict import Quality
from orchestrator.settings import Settings
from tests.samples.iphone_output import FULL, PARTIAL, console
from tests.samples.places import MODELS
from tests.samples.records import settings_in

MODEL = min(MODELS.glob("*float*.tflite"))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path / "home")


@pytest.fixture
def take(settings: Settings, tmp_path: Path) -> Callable[..., CommandResult]:
    """Import texts, each from a file of its own."""

    def run(
        *texts: str, device: str = "LAB-7", profile: str = "", models: tuple[Path, ...] = (MODEL,)
    ) -> CommandResult:
        files = []
        for number, text in enumerate(texts):
            path = tmp_path / f"given-{number}.txt"
            path.write_text(text)
            files.append(path)
        request = ImportRequest(
            files=files,
            device=device,
            profile=profile,
            models=[*models],
            app="TensorFlow 2.17",
            name="lab",
        )
        return reports.import_results(settings, request)

    return run


RESULT_LINE = (
    "Inference timings in us: Init: 5685, First inference: 18535, Warmup (avg): 14462.3, "
    "Inference (avg): 14575.2\n"
)


def iphone_console(
    *, mean_us: float = 4000.0, lines: str = "", size_bytes: int = 0, **params: str
) -> str:
    given = {"graph": "net.tflite", "num_threads": "2", "num_runs": "50", "min_secs": "1", **params}
    size = size_bytes or MODEL.stat().st_size
    return console(
        given, size_bytes=size, mean_us=mean_us, delegate_lines=lines and f"INFO: {lines}\n"
    )


def test_an_import_that_was_cut_off_leaves_nothing_to_resume_and_is_gone_on_with(
    settings: Settings, take: Callable[..., CommandResult]
) -> None:
    text = "".join(
        iphone_console(use_xnnpack="false", mean_us=mean_us) for mean_us in (5000.0, 5100.0, 5200.0)
    )
    with Workspace(settings) as workspace:
        assert list(workspace.store.runs()) == []
    with sqlite3.connect(settings.store) as connection:
        full = "WHEN (SELECT count(*) FROM runs) = 1 BEGIN SELECT RAISE(ABORT, 'full'); END"
        connection.execute(f"CREATE TRIGGER full BEFORE INSERT ON runs {full}")
    with pytest.raises(StoreError):
        take(text)
    with sqlite3.connect(settings.store) as connection:
        connection.execute("DROP TRIGGER full")
    with Workspace(settings) as workspace:
        assert len(list(workspace.store.runs())) == 1
        assert {campaign.status for campaign in workspace.store.campaigns()} == {
            CampaignStatus.FINISHED
        }
    rest = take(text)
    assert isinstance(rest.data, dict)
    assert (rest.data["imported"], rest.data["known"]) == (2, 1)


def test_console_texts_of_the_ios_app_are_judged_runs_of_the_iphone(
    settings: Settings, take: Callable[..., CommandResult]
) -> None:
    full, partial = FULL.format(name="GPU"), PARTIAL.format(name="COREML")
    text = (
        iphone_console(use_gpu="true", lines=full)
        + iphone_console(use_gpu="true", lines=full, mean_us=5000.0, gpu_wait_type="aggressive")
        + iphone_console(use_coreml="true", lines=partial)
        + iphone_console(use_coreml="true")
        + iphone_console(use_xnnpack="false")
        + iphone_console(report_peak_memory_footprint="true")
    )
    result = take(text, profile="iphone-xs")
    assert result.exit_code == 1
    assert "times are no latency" in result.text
    with Workspace(settings) as workspace:
        runs = list(workspace.store.runs())
        facts = workspace.store.devices()[runs[0].case.serial]
    assert (facts.model, facts.kind, facts.is_virtual) == ("Apple iPhone XS", DeviceKind.IOS, False)
    assert [
        (run.case.delegate.value, run.case.threads, run.latency_us, run.reason_code) for run in runs
    ] == [
        ("gpu", 2, 4000.0, ""),
        ("gpu", 2, 5000.0, ""),
        ("coreml", 2, 4000.0, ""),
        ("coreml", 2, None, "delegate-fell-back"),
        ("cpu", 2, 4000.0, ""),
    ]
    assert [run.case.model_name for run in runs] == [MODEL.stem] * 5
    assert [dict(run.case.flags) for run in runs[:2]] == [
        {},
        {"GPU delegate wait type": "aggressive"},
    ]
    assert runs[0].verdict.quality is Quality.TRUSTED
    assert "iPhone XS" in result.text
    assert stored.reparse(settings, ()).data == Review(reviewed=5, changed=())
    again = take(text).data
    assert isinstance(again, dict)
    assert (again["imported"], again["known"]) == (0, 5)


@pytest.mark.parametrize(
    ("text", "options", "word"),
    [
        ("hello", {}, "no figure of a benchmark program is in it"),
        (iphone_console(size_bytes=315_688), {}, "0.315688 MB"),
        (iphone_console(), {"profile": "nosuch"}, "nosuch"),
        (iphone_console(), {"device": " "}, "--serial"),
        (iphone_console(), {"device": "half \udc80"}, "--serial"),
    ],
)
def test_what_can_not_be_stored_is_refused_and_nothing_is(
    settings: Settings,
    take: Callable[..., CommandResult],
    text: str,
    options: dict[str, str],
    word: str,
) -> None:
    with pytest.raises(UsageError) as caught:
        take(iphone_console(use_gpu="true"), text, **options)
    assert word in str(caught.value)
    with Workspace(settings) as workspace:
        assert list(workspace.store.campaigns()) == []


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e400", "soon"])
def test_a_run_whose_parameters_can_not_be_is_left_out_and_told(
    settings: Settings, take: Callable[..., CommandResult], seconds: str
) -> None:
    odd = iphone_console().replace("duration (seconds): [1]", f"duration (seconds): [{seconds}]", 1)
    result = take(odd + iphone_console(mean_us=5000.0))
    assert result.exit_code == 1
    assert "run 1: a parameter that it echoes can't be read" in result.text
    with Workspace(settings) as workspace:
        (run,) = workspace.store.runs()
    assert run.latency_us == 5000.0


@pytest.mark.parametrize(("threads", "known"), [("3", 3), ("-1", -1), ("--4", -1)])
def test_a_command_above_an_output_without_parameters_tells_model_and_threads(
    settings: Settings, take: Callable[..., CommandResult], threads: str, known: int
) -> None:
    command = f"$ ./benchmark_model --graph=net.tflite --num_threads={threads}\nSTARTING!\n"
    take(command + RESULT_LINE, device="", models=())
    with Workspace(settings) as workspace:
        (run,) = workspace.store.runs()
    assert (run.case.model_name, run.case.threads) == ("net", known)
