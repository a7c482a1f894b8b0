from dataclasses import replace

import pytest

from orchestrator.errors import ArtifactError, DeviceError, HostStorageError, kinds_below
from orchestrator.records.case import SkippedCase, ToolName
from orchestrator.records.failures import FAILURES
from orchestrator.records.run import DelegateEvidence, DelegateTruth
from orchestrator.report.render import matrix_tables
from orchestrator.report.tables import lines_of, matrix_table
from orchestrator.tables.labels import ShortNames, configuration_labels, truth_words, unique_labels
from orchestrator.tables.table import NOTHING, Form, column_decimals
from tests.samples.sample_lab import PIXEL_3, PIXEL_4, case, lab_of, series


@pytest.mark.parametrize(
    ("values", "decimals"),
    [
        ([6.45, 486.0], 2),
        ([23.9, 56.0], 1),
        ([0.94, 61.0], 2),
        ([0.021], 3),
        ([], 1),
        ([0.0, 120.0], 1),
        ([1e-7], 4),
    ],
)
def test_column_gets_the_decimals_that_its_smallest_figure_needs(values, decimals):
    assert column_decimals(values) == decimals


def test_every_delegate_truth_has_words():
    assert all(truth_words(DelegateEvidence(truth=truth)) for truth in DelegateTruth)


def test_every_error_that_can_end_an_invocation_has_a_next_step():
    codes = {
        kind().code
        for parent in (DeviceError, ArtifactError, HostStorageError)
        for kind in kinds_below(parent)
    }
    assert codes - {"device"} <= set(FAILURES)


def test_identity_that_tells_phones_apart_at_its_end_is_shown_whole():
    serials = ("adb-8A1Y0ABCD-x1._adb-tls-connect._tcp", "adb-8A1Y0ABCD-x2._adb-tls-connect._tcp")
    labels = unique_labels(dict.fromkeys(serials, "Pixel 3"))
    assert labels == {serial: f"Pixel 3 ({serial})" for serial in serials}


#: Beside each other: one case, and one that differs in a single field, for each field of a case's
#: key that no configuration shows.
FINE = [
    {"files": (("lib.so", "a" * 64),)},
    {"files": (("lib.so", "b" * 64),)},
    {"affinity": "all"},
    {"num_runs": 51},
    {"min_secs": 2.0},
    {"max_secs": 20.0},
    {"warmup_runs": 2},
    {"warmup_min_secs": 0.25},
    {"build_sha256": "c" * 64},
    {"model_name": "renamed.tflite"},
    {"threads": -1},
    {"threads": 0},
    {"flags": (("a", "1, b=2"),)},
    {"flags": (("a", "1"), ("b", "2"))},
]


def test_no_two_cases_of_a_model_on_a_device_share_a_label():
    cases = [
        replace(case(device), **other) for device in (PIXEL_3, PIXEL_4) for other in [{}, *FINE]
    ]
    labels = configuration_labels(cases, {})
    places = [(owner.serial, labels[owner.case_key]) for owner in cases]
    assert len(set(places)) == len(places) == 2 * (1 + len(FINE))
    # One column over devices.
    assert len(set(labels.values())) == 1 + len(FINE) + 2 * 2


def test_rebuilt_library_has_a_column_of_its_own_in_the_matrix():
    before, after = (case(files=(("lib.so", digit * 64),)) for digit in "ab")
    data = lab_of([*series(before, 9_000), *series(after, 7_000)]).data()
    (table,) = matrix_tables(data)
    (line,) = table.listed
    shown = [cell.latency_us for cell in line.cells.values()]
    assert sorted(shown) == pytest.approx([7_000, 9_000], rel=0.05)


@pytest.mark.parametrize("threads", [4, 1])
def test_a_pass_that_a_case_lacks_takes_the_place_of_no_figure_in_the_matrix(threads):
    own = case()
    without = SkippedCase.of(own, "pass-not-in-tool", "pass memory: 'litert' has no flags for it")
    elsewhere = case(PIXEL_4, flags=(("a", "1"),))
    runs = [*series(case(threads=threads), 9_000), *series(elsewhere, 7_000)]
    data = lab_of(runs, skipped=(without,)).data()
    (table,) = matrix_tables(data)
    (line,) = (line for line in table.listed if line.device.serial == own.serial)
    _, figure, other = table.of(Form.HTML)
    assert figure.figures([line]) == [pytest.approx(9, rel=0.05)]
    # Nor does it where another phone has other flags.
    assert other.cells([line]) == [NOTHING]


def test_the_matrix_of_a_language_model_has_its_speeds_under_their_unit():
    decode = {"tool": ToolName.LITERT_LM, "flags": (("figure", "decode"),)}
    data = lab_of(series(case(**decode), 40_000)).data()
    (table,) = matrix_tables(data)
    _, speed = table.of(Form.HTML)
    assert (speed.title, speed.cells(table.listed)) == ("xnnpack tokens/s", ["25.0"])
    assert speed.figures(table.listed) == [pytest.approx(25, rel=0.01)]
    # Programs get the time of a token, as of all cases.
    (exported,) = (column for column in table.of(Form.CSV) if column.name.endswith("median_us"))
    assert exported.data(table.listed[0]) == pytest.approx(40_000, rel=0.01)


def test_a_column_of_speeds_and_times_has_the_unit_of_each_in_its_cell():
    decode = case(tool=ToolName.LITERT_LM, flags=(("figure", "decode"),))
    data = lab_of([*series(decode, 40_000), *series(case(), 9_000)]).data()
    names = ShortNames({row.configuration: "cpu" for row in data.results}, note="")
    lines = [line for row in data.results for line in lines_of([row], (), names)]
    _, shared = matrix_table("matrix", "Figures", lines, ["cpu"], 2).of(Form.HTML)
    assert shared.title == "cpu"
    assert sorted(shared.cells(lines)) == ["25.0 tokens/s", "9.00 ms"]
    for line in lines:
        _, alone = matrix_table("matrix", "Figures", [line], ["cpu"], 2).of(Form.HTML)
        assert f"{alone.cells([line])[0]} {alone.unit}" == shared.cells([line])[0]
