"""Flags and statistics of the fake binaries: the rules of C++ streams, their usage text, and the
forms of a line."""

from __future__ import annotations

import re

import numpy as np
import pytest

from benchfarm_virtual.programs.delegates import ANDROID_FLAGS
from benchfarm_virtual.programs.flags import (
    CPU_FLAGS,
    FlagError,
    parse_flags,
    parse_value,
    usage,
)
from benchfarm_virtual.programs.run_loop import Stat
from tests.samples.places import NATIVE

USAGE_LINE = re.compile(
    r"^\t--(?P<name>[\w-]+)=(?P<default>.*?)\s*\t(?P<type>\w+)\t(?P<need>\w+)\t(?P<help>.*)$", re.M
)


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("-5", -5), ("3x", None), ("1.9", None), ("", None), ("1_0", None), ("abc", None)],
)
def test_integers_are_taken_whole_or_refused(text, value):
    assert parse_value("int32", text) == value


def test_a_refused_value_names_flag_and_argument():
    with pytest.raises(
        FlagError, match=r"^Failed to parse flag 'num_runs' against argv '--num_runs=abc'$"
    ):
        parse_flags(ANDROID_FLAGS, ["--num_runs=abc"])


def test_usage_lists_the_flags_of_the_recorded_program_in_its_order():
    recorded = (NATIVE / "help_bare.txt").read_text()
    real = [(m["name"], m["default"], m["type"]) for m in USAGE_LINE.finditer(recorded)]
    ours = [
        (m["name"], m["default"], m["type"])
        for m in USAGE_LINE.finditer(usage("benchmark_model", CPU_FLAGS))
    ]
    assert ours == real
    # Columns too: the defaults are padded to one width.
    assert (
        len(
            {
                line.index("\t", 1)
                for line in usage("x", CPU_FLAGS).splitlines()
                if line.startswith("\t--")
            }
        )
        == 1
    )


def test_help_goes_to_stderr_and_ends_with_code_1(bench_phone):
    phone = bench_phone()
    for argument in ("--help", "--help=true"):
        run = phone.run(argument)
        assert run.exit_code == 1
        assert run.stdout == "INFO: STARTING!\n"
        assert run.stderr.startswith(
            "ERROR: usage: benchmark_model <flags>\nFlags:\n\t--num_runs=50 "
        )
        assert run.stderr.endswith("\n\nERROR: Benchmarking failed.\n")


def test_verbose_logs_every_parameter_in_the_recorded_order(bench_phone, models):
    phone = bench_phone()
    phone.put("m.tflite", models.BY_NAME["tiny_cnn_float.tflite"]())
    run = phone.run(
        "--graph=m.tflite", "--verbose=true", "--num_runs=1", "--min_secs=0", "--warmup_min_secs=0"
    )
    lines = run.stdout.splitlines()
    assert lines[1:5] == [
        "INFO: Log parameter values verbosely: [1]", "INFO: Min num runs: [1]",
        "INFO: Min runs duration (seconds): [0]",
        "INFO: Max runs duration (seconds): [150]",
    ]  # fmt: skip
    expected = (
        "Use gpu: [0]",
        "GPU backend: []",
        "Use NNAPI: [0]",
        "Index of the last node that could be delegated: [2147483647]",
        "Min warmup runs duration (seconds): [0]",
    )
    for line in expected:
        assert f"INFO: {line}" in lines


def stat_of(*values: int) -> Stat:
    stat = Stat()
    stat.add(np.array(values, dtype=np.int64))
    return stat


def test_statistics_lines_have_the_forms_of_the_real_program():
    assert stat_of().line() == "count=0 p5=0 median=0 p95=0"
    assert stat_of(369).line() == "count=1 curr=369 p5=369 median=369 p95=369"
    assert stat_of(9, 9).line() == "count=2 curr=9(all same) p5=9 median=9 p95=9"
    assert stat_of(2184368, 2367976).line() == (
        "count=2 first=2184368 curr=2367976 min=2184368 max=2367976 avg=2.27617e+06 std=91804 p5=2184368 median=2367976"
        " p95=2367976"
    )
    assert stat_of(400, 377, 399).line() == (
        "count=3 first=400 curr=399 min=377 max=400 avg=392 std=10 p5=377 median=399 p95=400"
    )
