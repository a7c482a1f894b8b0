"""A case's identities: its key, and the key of its series."""

from dataclasses import replace

from orchestrator.records.case import (
    BuildSha,
    Case,
    DelegateName,
    ModelSha,
    ProcessMode,
    Serial,
    ToolName,
)

CASE = Case(
    serial=Serial("S"),
    model_sha256=ModelSha("a" * 64),
    model_name="m",
    delegate=DelegateName.GPU,
    threads=1,
    tool=ToolName.NATIVE,
    build_sha256=BuildSha("b" * 64),
    files=(("libx.so", "c" * 64),),
)


def test_a_mode_that_was_not_chosen_does_not_change_the_key() -> None:
    assert "mode" not in CASE.to_row()
    assert replace(CASE, mode=ProcessMode.TOP_APP).case_key != CASE.case_key
    assert CASE.process_mode is ProcessMode.SHELL
    assert replace(CASE, tool=ToolName.APK).process_mode is ProcessMode.FOREGROUND


def test_a_series_continues_over_new_contents_and_ends_with_any_other_change() -> None:
    night = replace(
        CASE,
        model_sha256=ModelSha("d" * 64),
        build_sha256=BuildSha("e" * 64),
        files=(("libx.so", "f" * 64),),
    )
    assert night.case_key != CASE.case_key
    assert night.series_key == CASE.series_key
    for other in (replace(CASE, threads=2), replace(CASE, model_name="n"), replace(CASE, files=())):
        assert other.series_key != CASE.series_key


def test_outputs_are_known_by_the_hash_that_stores_have_them_under() -> None:
    plain = replace(CASE, files=())
    flagged = replace(CASE, flags=(("a", "b"),))
    assert plain.outputs_key == "d6c23038b56717c28bb4b42cc1f79f63"
    assert flagged.outputs_key == "3ffcc53adcf0e566c826152f2eab268a"
    assert replace(plain, threads=4, num_runs=7, affinity="f0").outputs_key == plain.outputs_key
