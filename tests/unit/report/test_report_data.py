import json
import re
from dataclasses import replace

import pytest

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.records.campaign import CampaignStatus, Terms
from orchestrator.records.case import BuildSha, DelegateName, Pass, SkippedCase, ToolName
from orchestrator.records.plan import StoppingRule
from orchestrator.records.run import OUT_OF_TIME, DelegateTruth, Outcome
from orchestrator.records.verdict import Finding, ParityVerdict, Quality, Severity
from orchestrator.report.advice import collect_advice
from orchestrator.report.evidence import evidence_of
from orchestrator.report.exports import to_markdown
from orchestrator.report.render import render_html
from orchestrator.report.tables import render_text_table
from orchestrator.report.winners import fastest_table
from orchestrator.tables.renderers import as_text
from orchestrator.tables.results import exported_table
from orchestrator.tables.rows import BestMark
from tests.samples.extensions import needs_extension
from tests.samples.sample_lab import (
    CPU_ROWS,
    FELL_BACK,
    HOST,
    LATER,
    MOBILENET,
    PIXEL_3,
    PIXEL_4,
    REAL_PIXEL,
    campaign_of,
    case,
    lab_of,
    model_of,
    parity,
    profile,
    run,
    series,
)

UNSTEADY = Finding(code="unsteady", severity=Severity.WARNING, message="they spread")


def exported(row):
    return exported_table([row]).record(row)


def data_of(*runs, **other):
    devices = other.pop("devices", (PIXEL_3, PIXEL_4, HOST))
    return lab_of(runs, *devices, **other).data()


def by_configuration(data):
    return {row.configuration: row for row in data.results}


@pytest.mark.parametrize(
    "unfit",
    [
        FELL_BACK,
        {"truth": DelegateTruth.NONE},
        {"truth": DelegateTruth.FLAG_IGNORED},
        {"truth": DelegateTruth.WRONG_BACKEND},
        {"truth": DelegateTruth.UNKNOWN},
        {"quality": Quality.REJECTED},
        {"quality": Quality.SUSPECT},
    ],
)
def test_faster_figure_that_isnt_to_be_trusted_is_never_best(unfit):
    data = data_of(
        *series(case(delegate=DelegateName.GPU, threads=1), 1_000, **unfit),
        *series(case(threads=1), 40_000),
        *series(case(threads=4), 20_000),
    )
    rows = by_configuration(data)
    gpu = rows["gpu, 1 thread, native"]
    assert gpu.best is BestMark.NONE
    assert gpu.why_not_clean != "clean"
    assert gpu.speed_up is None
    assert rows["xnnpack, 4 threads, native"].best is BestMark.BEST


def test_a_clean_figure_of_an_unknown_place_is_called_not_confirmed_and_never_clean():
    data = data_of(*series(case(), 20_000, truth=DelegateTruth.UNKNOWN))
    assert data.results[0].quality_word == "clean"
    assert data.results[0].why_not_clean == "not confirmed"
    (warning,) = [text for text in data.headline.warnings if "show where" in text]
    assert ": not confirmed. The output doesn't show where the operators ran" in warning
    assert "--verbose" not in warning


def test_delegate_that_took_no_operator_is_not_called_one_that_fell_back():
    none = series(
        case(delegate=DelegateName.HEXAGON), 9_000, truth=DelegateTruth.NONE, outcome=Outcome.FAILED
    )
    text = render_text_table(data_of(*none, *series(case(threads=4), 20_000)))
    assert "took no operator: CPU" in text
    assert "fell back" not in text


def test_there_is_no_speed_up_when_the_fastest_cpu_figure_isnt_trusted():
    data = data_of(
        *series(case(threads=1), 40_000),
        *series(case(threads=4), 20_000, quality=Quality.SUSPECT),
        *series(case(delegate=DelegateName.GPU, threads=1), 5_000),
    )
    assert all(row.speed_up is None for row in data.results)


def test_numbers_of_a_virtual_phone_are_virtual_even_if_its_facts_are_lost():
    lab = lab_of(series(case(), 10_000))
    data = lab.data(devices={})
    assert data.results[0].is_virtual
    assert data.devices[0].is_virtual
    assert data.devices[0].title.endswith("(virtual)")
    assert data.has_virtual


def test_headline_never_sets_a_virtual_phone_against_a_real_device():
    data = data_of(*series(case(PIXEL_3), 1_000), *series(case(HOST, tool=ToolName.LITERT), 9_000))
    virtual, real = sorted(data.headline.answers)
    assert "workstation" in real
    assert "virtual" not in real
    assert "(virtual)" in virtual


@needs_extension("energy")
def test_headline_says_what_not_to_trust_of_passes_with_figures_of_their_own():
    clean = series(case(), 1_000)
    blocks = [
        run(case(), 0, 1_000, run_pass=Pass("energy"), quality=Quality.SUSPECT),
        run(case(), 1, run_pass=Pass.COLD, quality=Quality.SUSPECT, findings=(UNSTEADY,)),
    ]
    assert data_of(*clean).headline.warnings == ()
    energy, cold = data_of(*clean, *blocks).headline.warnings
    assert energy.endswith(": suspect in the pass energy.")
    assert ": suspect in the pass cold (unsteady). Close what runs" in cold


def test_what_to_do_is_said_once_where_the_reason_says_it():
    full = "no space left on the phone (free some space on the phone)"
    ended = {"outcome": Outcome.FAILED, "reason_code": "device-storage", "reason": full}
    (problem,) = data_of(run(case(), 0, None, **ended)).headline.warnings
    assert problem.lower().count("free some space") == 1


def test_a_suspect_figure_is_explained_by_what_was_noticed_about_its_own_invocations():
    skipped = Finding(code="not-completed", severity=Severity.ERROR, message="skipped")
    other = run(
        case(),
        0,
        None,
        run_pass=Pass.PARITY,
        outcome=Outcome.SKIPPED,
        quality=Quality.REJECTED,
        findings=(skipped,),
    )
    data = data_of(*series(case(), 1_000, quality=Quality.SUSPECT, findings=(UNSTEADY,)), other)
    text = " ".join(render_text_table(data).split())
    assert "xnnpack on Google Pixel 3 (virtual): suspect (unsteady). Close what runs" in text


def test_a_suspect_figure_without_findings_of_its_own_says_what_else_is_the_matter():
    drifting = data_of(*series(case(), 1_000), parity(case(), ParityVerdict.DRIFT, 0.02))
    failed = [
        run(
            case(),
            number,
            None,
            outcome=Outcome.FAILED,
            quality=Quality.REJECTED,
            reason_code="crashed",
        )
        for number in range(5, 9)
    ]
    rare = data_of(*series(case(), 1_000, count=2), *failed)
    assert ": outputs differ: largest difference 0.02" in drifting.headline.warnings[0]
    assert ": suspect (2 of 6 invocations usable)" in rare.headline.warnings[0]
    # What gave no result is told as that, whatever its outputs were.
    both = data_of(*failed, parity(case(), ParityVerdict.WRONG, 0.8)).headline.warnings[0]
    assert "failed (crashed)" in both
    assert "outputs" not in both


def left_out(owner, number, code, reason="left out"):
    record = run(
        owner, number, None, outcome=Outcome.SKIPPED, quality=Quality.REJECTED, reason_code=code
    )
    return replace(record, reason=reason)


def test_outputs_that_are_known_are_not_those_of_a_case_that_only_failed():
    gpu = case(delegate=DelegateName.GPU, threads=1)
    failing = replace(gpu, threads=4)
    broken = [
        run(failing, number, None, outcome=outcome, quality=Quality.REJECTED, reason_code="crashed")
        for number, outcome in enumerate((Outcome.FAILED, Outcome.TIMED_OUT, Outcome.ABORTED))
    ]
    data = data_of(*series(gpu, 1_000), parity(gpu, ParityVerdict.SAME, 0.001), *broken)
    shown = {row.case.threads: exported(row) for row in data.results}
    assert (shown[1]["outputs"], shown[4]["outputs"]) == ("checked", None)
    assert shown[4]["outputs_error"] is None
    # An earlier campaign compared them; in the newest one the case failed.
    crash = {"outcome": Outcome.FAILED, "quality": Quality.REJECTED, "reason_code": "crashed"}
    newest = run(gpu, 0, None, campaign_id=LATER, **crash)
    (row,) = data_of(parity(gpu, ParityVerdict.SAME, 0.001), newest).results
    assert (exported(row)["outputs"], exported(row)["outputs_error"]) == (None, None)
    # Only the outputs were compared since it crashed.
    later = replace(parity(gpu, ParityVerdict.SAME, 0.001), campaign_id=LATER)
    (row,) = data_of(run(gpu, 0, None, **crash), later).results
    assert exported(row)["outputs"] == "checked"


def test_a_case_whose_threads_are_unused_is_none_of_those_that_were_abandoned():
    gpu = case(delegate=DelegateName.GPU, threads=1)
    unused = replace(gpu, threads=4)
    data = data_of(
        *series(gpu, 1_000),
        left_out(unused, 0, "threads-unused"),
        *(left_out(unused, number, "abandoned") for number in range(1, 4)),
    )
    text = render_text_table(data)
    assert "4 threads" not in text
    assert "abandoned" not in text
    assert collect_advice(data).cases == 1


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("interrupted", "1 campaign not finished."),
        ("running", "1 campaign not finished."),
        ("closed", "1 campaign closed with runs left out."),
        ("finished", ""),
    ],
)
def test_a_report_says_how_far_a_campaign_is_and_counts_what_ran(status, said):
    runs = [*series(case(), 1_000), *(left_out(case(), n, "abandoned") for n in range(5, 8))]
    data = data_of(*runs, status=CampaignStatus(status))
    assert data.headline.scope.startswith("1 case (8 invocations, 3 of them left out) of 1 model")
    text = render_text_table(data)
    assert said in text
    assert ("1 campaign" in text) is bool(said)
    assert said in data.headline.scope


def test_what_there_was_no_time_for_is_told_unless_another_night_measured_it():
    late = [
        SkippedCase.of(case(threads=threads), OUT_OF_TIME, "no time") for threads in (1, 2, 2, 4)
    ]
    lab = lab_of(series(case(threads=4), 9_000), skipped=late[:3])
    headline = lab.data().headline
    assert headline.no_time == "Out of time: 3 cases left out."
    assert headline.no_time in to_markdown(lab.data())
    above, _, _ = render_html(lab.data(), title="").partition("<details")
    assert headline.no_time in above
    older = replace(lab.campaigns[0], campaign_id=LATER, skipped=tuple(late[2:]))
    lab.campaigns = (replace(lab.campaigns[0], skipped=()), older)
    assert lab.data().headline.no_time == "Out of time: 1 case left out."


NO_ROOM = "INSTALL_FAILED_INSUFFICIENT_STORAGE"


def test_each_kind_of_problem_is_told_with_its_reason_and_what_was_skipped_is_none():
    gpu = case(delegate=DelegateName.GPU)
    runs = [
        run(
            replace(gpu, threads=threads),
            0,
            None,
            outcome=Outcome.SKIPPED if threads == 1 else Outcome.FAILED,
            quality=Quality.REJECTED,
            reason_code="out-of-time" if threads == 1 else "op-failed",
            reason=f"node {threads} (main).",
        )
        for threads in range(1, 12)
    ]
    told = data_of(*runs).headline.warnings
    assert not any("main).." in line for line in told)
    assert [re.findall(r"node \d+", line) for line in told] == [[f"node {n}"] for n in range(2, 12)]
    failed = run(
        gpu, 0, None, outcome=Outcome.TIMED_OUT, quality=Quality.REJECTED, reason_code="timed-out"
    )
    (said,) = data_of(failed).headline.warnings
    assert ": timed out. Raise the timeout" in said
    (said,) = data_of(
        replace(failed, reason_code="install-failed", reason=NO_ROOM)
    ).headline.warnings
    assert said.endswith(f"{NO_ROOM}. Free some space on the phone.")


@pytest.mark.parametrize(
    ("verdict", "shown", "kept_as_evidence"),
    [
        (ParityVerdict.SAME, r" 1\.00 .* only one checked", False),
        (ParityVerdict.DRIFT, r" 1\.00 .* differ \(0\.02\) suspect", False),
        (ParityVerdict.WRONG, r" ---  rejected \(outputs wrong\)", True),
    ],
)
def test_a_figure_stays_in_the_table_unless_its_outputs_are_wrong(verdict, shown, kept_as_evidence):
    data = data_of(*series(case(), 1_000), parity(case(), verdict, 0.02))
    (row,) = data.results
    assert re.search(rf"^ .*xnnpack .*{shown}$", render_text_table(data), re.MULTILINE)
    assert (exported(row)["not_a_result_us"] == 1_000) is kept_as_evidence
    (evidence,) = evidence_of(data.results)
    assert ("<del>1.00 ms</del> (rejected)" in json.dumps(evidence)) is kept_as_evidence


def test_a_name_of_two_lines_is_spelt_alike_everywhere():
    several = (model_of("new\nline"), MOBILENET)
    cases = [case(model=model) for model in several]
    runs = [run for one in cases for run in (*series(one, 1_000), profile(one, CPU_ROWS))]
    data = data_of(*runs, models=several)
    for text in (render_text_table(data, 200), as_text(fastest_table(data.contests))):
        assert "new\\nline" in text
        assert not re.search(r"new(?!\\nline)", text)


def test_headline_warns_of_figures_of_different_modes_side_by_side():
    shell, app = case(REAL_PIXEL), case(REAL_PIXEL, tool=ToolName.APK)
    mixed = data_of(
        *series(shell, 1_000), *series(app, 1_050), devices=(REAL_PIXEL,)
    ).headline.warnings
    assert any(
        "different modes (foreground, shell)" in text and "ab tool:apk tool:native" in text
        for text in mixed
    )
    assert data_of(*series(shell, 1_000), devices=(REAL_PIXEL,)).headline.warnings == ()


def test_configuration_stays_one_column_over_devices_with_their_own_builds():
    data = data_of(
        *series(case(PIXEL_3), 1_000),
        *series(replace(case(PIXEL_4), build_sha256=BuildSha("e" * 64)), 1_000),
    )
    assert {row.configuration for row in data.results} == {"xnnpack, 4 threads, native"}


def test_start_figures_come_from_the_invocations_that_count():
    owner = case()
    bad = run(owner, 5, 10_000.0, quality=Quality.REJECTED)
    bad = replace(bad, report=replace(bad.report, init_us=9e9))
    assert data_of(*series(owner, 10_000), bad).results[0].init_us == 12_500.0


def test_finding_of_several_invocations_is_told_once_with_its_count():
    warning = Finding(code="throttled", severity=Severity.WARNING, message="hot")
    data = data_of(*series(case(REAL_PIXEL), 1_000, 3, findings=(warning,)), devices=(REAL_PIXEL,))
    (finding,) = data.results[0].finding_counts
    assert (finding.finding.code, finding.count) == ("throttled", 3)
    assert finding.next_step


def test_output_is_asked_for_where_it_may_be_shown_and_for_all_cases_at_once():
    silent = [
        run(
            case(threads=1), number, None, outcome=Outcome.FAILED, quality=Quality.REJECTED, log=b""
        )
        for number in (5, 6)
    ]
    spoke = run(
        case(threads=1),
        7,
        None,
        outcome=Outcome.FAILED,
        quality=Quality.REJECTED,
        log=b"it broke\n",
    )
    lab = lab_of(
        [*series(case(), 1_000, 4), *series(case(threads=1), 1_000, 4), *silent, spoke], PIXEL_3
    )
    asked = []

    def outputs(run_ids):
        asked.append(set(run_ids))
        return lab.outputs(run_ids)

    data = lab.data(outputs=outputs)

    first = lab.runs[0].run_id
    assert asked == [{first, silent[0].run_id}, {silent[1].run_id}, {spoke.run_id}]
    shown = {run_id: log.text for row in data.results for run_id, (log, _) in row.logs.items()}
    assert set(shown) == {first, spoke.run_id}
    assert shown[spoke.run_id] == "it broke\n"


def test_devices_and_builds_that_no_case_names_are_left_out():
    data = data_of(*series(case(HOST, tool=ToolName.LITERT), 1_000))
    assert [device.label for device in data.devices] == ["workstation"]
    assert [build.name for build in data.builds] == ["litert-benchmark"]


def test_failure_code_of_a_program_tells_the_step_that_its_reader_knows():
    lab = lab_of(
        [
            run(
                case(),
                0,
                None,
                outcome=Outcome.FAILED,
                reason_code="wrong-abi",
                quality=Quality.REJECTED,
            )
        ]
    )
    data = lab.data()
    assert data.results[0].next_step.startswith("Choose the build for the phone's ABI")


def test_a_case_without_a_timing_pass_is_neither_missing_nor_doubtful():
    data = data_of(*(run(case(), number, run_pass=Pass.SUSTAINED) for number in range(3)))
    assert data.results[0].status is CaseStatus.UNTIMED
    assert data.headline.trust.startswith("No latency was requested")
    assert data.headline.warnings == ()


def test_a_case_whose_timing_was_planned_and_not_done_is_missing():
    lab = lab_of([run(case(), 0, run_pass=Pass.SUSTAINED)])
    planned = campaign_of([*lab.runs, run(case(), 0)])
    data = lab.data(campaigns=(planned,))
    assert data.results[0].status is CaseStatus.NOT_RUN
    assert "resume" in data.results[0].next_step
    assert "not run" in data.headline.warnings[0]


def test_a_clean_figure_that_is_not_precise_says_so_wherever_it_stands():
    wide = [
        run(case(PIXEL_3), number, latency)
        for number, latency in enumerate((20_000, 26_000, 31_000), 1)
    ]
    single = series(case(PIXEL_4), 23_900, 1)
    for runs, device, worth, told in (
        (wide, PIXEL_3, "clean, not precise", "(1 not precise, ±"),
        (single, PIXEL_4, "clean, one process", "(1 of one process"),
    ):
        data = data_of(*runs, devices=(device,))
        (row,) = data.results
        assert row.is_judged
        assert not exported(row)["is_precise"]
        text = render_text_table(data)
        assert f"1 of 1 result clean {told}" in data.headline.trust
        assert re.search(r"(±[\d.]+ % .* not checked|---.* one process)$", text, re.MULTILINE)
        assert f"| {worth} |" in to_markdown(data)
        assert worth in render_html(data, title="t")
        assert "trusted" not in text


def test_the_plan_says_how_precise_a_figure_is_to_be():
    runs = series(case(PIXEL_3), 23_900)
    goals = {0.001: False, 0.02: True}
    for goal, is_precise in goals.items():
        terms = Terms(stopping=StoppingRule(first=5, most=5, half_width=goal))
        planned = replace(campaign_of(runs, terms=terms))
        data = lab_of(runs, PIXEL_3).data(campaigns=(planned,))
        assert [row.is_precise for row in data.results] == [is_precise]


def test_folders_of_a_computer_stand_in_no_report_and_those_of_a_phone_do():
    said = b"Graph: [/home/ann/m.tflite]\n"
    command = "/home/ann/python --graph=/home/ann/m.tflite"
    own, phones = case(HOST, tool=ToolName.LITERT), case(PIXEL_3)
    data = data_of(*(replace(run(owner, log=said), command=command) for owner in (own, phones)))
    told = {
        row.device.serial: (row.command, row.logs[row.runs[0].run_id][0].text.strip())
        for row in data.results
    }
    assert told["host"] == (".../python --graph=.../m.tflite", "Graph: [.../m.tflite]")
    assert told[PIXEL_3.serial] == (command, said.decode().strip())


def test_invocations_without_a_result_are_counted_in_all_cases_and_those_not_begun_in_none() -> (
    None
):
    broken, half = case(delegate=DelegateName.GPU, threads=1), case()
    failed = {"outcome": Outcome.FAILED, "reason_code": "segfault", "quality": Quality.REJECTED}
    unfit = {"outcome": Outcome.UNFIT, "reason_code": "too-hot", "quality": Quality.REJECTED}
    runs = [
        *(run(broken, number, None, **failed) for number in range(3)),  # type: ignore[arg-type]
        *series(half, 10_000, 4),
        run(half, 4, None, **failed),  # type: ignore[arg-type]
        run(half, 5, None, **unfit),  # type: ignore[arg-type]
    ]
    data = data_of(*runs)
    assert "4 of 8 invocations that ran gave no result." in data.headline.trust
    notes = " ".join(fastest_table(data.contests).notes)
    assert "4 invocations gave no result (segfault): see the report." in notes
