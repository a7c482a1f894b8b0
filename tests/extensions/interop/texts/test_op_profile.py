"""Operator tables of every form and year."""

import pytest

from orchestrator.extensions.interop.texts.output import parse_text
from orchestrator.reading.profile import decode_op_profile
from orchestrator.records.run import DelegateTruth, ToolReport
from tests.samples.places import NATIVE

FILES = NATIVE / "files"


def read(name: str) -> ToolReport:
    (report,) = parse_text((FILES / name).read_bytes())
    return report


def test_text_csv_and_proto_of_one_model_name_the_same_operators() -> None:
    proto = decode_op_profile((FILES / "op_prof.pb").read_bytes())
    forms = [read("op_prof.txt").operators, read("op_prof.csv").operators, proto.operators]
    names = [[(row.phase, row.node_type, row.run_order) for row in form] for form in forms]
    assert names[0] == names[1] == names[2]
    assert len(names[0]) == 35


def test_commas_in_node_types_of_a_csv_file_don_t_shift_the_columns() -> None:
    rows = read("op_prof_xnnpack.csv").operators
    row = next(row for row in rows if row.node_type == "Convolution (NHWC, F32) IGEMM")
    assert row.name == "Delegate/Convolution (NHWC, F32) IGEMM:0"
    assert row.times_called == 1
    assert row.mean_us == pytest.approx(31.3286)


def test_initialisation_and_running_are_told_apart() -> None:
    profile = read("op_prof_xnnpack.csv")
    assert {row.node_type for row in profile.operators if row.phase == "init"} == {
        "ModifyGraphWithDelegate",
        "AllocateTensors",
    }
    assert [block.phase for block in profile.profile_blocks] == ["init", "run"]
    assert profile.profile_blocks[1].timings is not None
    assert profile.profile_blocks[1].timings.count == 2325


def test_each_subgraph_is_a_block_of_its_own() -> None:
    (report,) = parse_text((NATIVE / "prof_stdout_while.txt").read_bytes())
    running = [row for row in report.operators if row.phase == "run"]
    assert {row.block for row in running} == {"main", "while_cond", "while_body"}
    less = next(row for row in running if row.node_type == "LESS")
    assert (less.block, less.times_called) == ("while_cond", 11)
    assert [block.nodes_executed for block in report.profile_blocks if block.phase == "run"] == [
        1,
        2,
        4,
    ]


def test_proto_in_text_form_in_the_log_is_read() -> None:
    (report,) = parse_text((NATIVE / "prof_proto_nofile.txt").read_bytes())
    assert [row.node_type for row in report.operators][:2] == ["AllocateTensors", "CONV_2D"]


def test_tables_of_2019_padded_with_spaces_and_with_a_start_column_are_read() -> None:
    lines = [
        "============================== Run Order ==============================",
        "    [node type]    [start]   [first]  [avg ms]     [%]   [cdf%]  [mem KB]  [times called]  [Name]",
        "        CONV_2D      0.000     5.567     7.237  6.297%   6.297%     0.000               1  [Mobile/Conv]",
    ]
    (profile,) = parse_text("\n".join(lines) + "\n")
    assert profile.profile_blocks[0].has_start_column
    assert (profile.operators[0].mean_us, profile.operators[0].name) == (7237.0, "[Mobile/Conv]")


def test_row_that_was_cut_off_is_left_out() -> None:
    whole = (FILES / "op_prof.txt").read_bytes()
    place = whole.index(b"DEPTHWISE_CONV_2D") + 60
    assert len(parse_text(whole[:place])[0].operators) == 2


def test_cycles_of_a_hexagon_profile_are_not_called_times() -> None:
    table = (
        "============================== Run Order ==============================\n"
        "\t[node type]\t[first]\t[avg ms]\t[%]\t[cdf%]\t[mem KB]\t[times called]\t[Name]\n"
        "\t{0}\t8.000\t7.500\t100.0%\t100.0%\t0.000\t1\t{0}:0\n\n"
        "Timings (microseconds): count=1 curr=5\nMemory (bytes): count=0\n1 nodes observed\n"
    )
    text = "INFO: STARTING!\nINFO: Graph: [m.tflite]\nINFO: Hexagon profiling: [1]\n"
    text += "INFO: Operator-wise Profiling Info for Regular Benchmark Runs:\n" + table.format(
        "TfLiteHexagonDelegate"
    )
    text += "Delegate internal: \n" + table.format("DelegateOpInvoke")
    (report,) = parse_text(text)
    assert [(row.node_type, row.mean_us, row.unit) for row in report.operators] == [
        ("TfLiteHexagonDelegate", 7500.0, "us"),
        ("DelegateOpInvoke", 7500.0, "cycles"),
    ]


def test_table_that_is_cut_off_doesn_t_tell_where_the_model_ran() -> None:
    table = (
        "Operator-wise Profiling Info for Regular Benchmark Runs:\n"
        "============================== Run Order ==============================\n"
        "\t[node type]\t[first]\t[avg ms]\t[%]\t[cdf%]\t[mem KB]\t[times called]\t[Name]\n"
        "\tTfLiteNnapiDelegate\t8.000\t7.500\t80.0%\t80.0%\t0.000\t1\t[a]:0\n"
    )
    rest = "\tSOFTMAX\t1.000\t1.500\t20.0%\t100.0%\t0.000\t1\t[b]:1\n\nTimings (microseconds): count=1 curr=5\n"
    assert parse_text(table)[0].delegate.truth is DelegateTruth.UNKNOWN
    assert parse_text(table + rest)[0].delegate.truth is DelegateTruth.PARTIAL
