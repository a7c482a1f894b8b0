"""Flags: learned from --help, and checked before anything runs."""

import pytest

from orchestrator.delegates.specification import FlagFamily
from orchestrator.programs.flags import check_flags, documented_flags, parse_help
from tests.samples.places import NATIVE

HELP = (NATIVE / "help_true.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("help_true", FlagFamily.BENCHMARK_MODEL),
        ("perf_bad_flag_value", FlagFamily.BENCHMARK_MODEL),
    ],
)
def test_documented_tables_agree_with_what_binaries_say(name: str, program: FlagFamily) -> None:
    learned = parse_help((NATIVE / f"{name}.txt").read_text(encoding="utf-8")).flags
    documented = documented_flags(program).flags
    assert learned
    assert {n: (f.kind, f.default) for n, f in learned.items()} == {
        n: (documented[n].kind, documented[n].default) for n in learned
    }


def test_learned_schema_keeps_its_own_flags_and_gains_what_depends_on_what() -> None:
    merged = parse_help(HELP).merged_with(documented_flags(FlagFamily.BENCHMARK_MODEL))
    assert "use_gpu" not in merged.flags
    assert merged.flags["op_profiling_output_mode"].choices == ("stdout", "csv", "proto")
    assert merged.flags["xnnpack_force_fp16"].needs == "use_xnnpack"


@pytest.mark.parametrize(
    ("words", "code", "nearest"),
    [
        (["--num_run=5"], "unknown-flag", "num_runs"),
        (["--use_gpu=true"], "unknown-flag", ""),
        (["--num_threads=3x"], "wrong-type", ""),
        (["--num_runs=1.9"], "wrong-type", ""),
        (["--num_runs="], "wrong-type", ""),
        (["--num_threads=1,2"], "wrong-type", ""),
        (["--num_runs=99999999999"], "wrong-type", ""),
        (["--min_secs=fast"], "wrong-type", ""),
        (["--use_xnnpack=yes"], "wrong-type", ""),
        (["--num_runs=3", "--num_runs=7"], "duplicate-flag", ""),
        (["--use_xnnpack"], "bad-form", ""),
        (["num_runs=3"], "bad-form", ""),
        (["-num_runs=3"], "bad-form", ""),
        (["--enable_op_profiling=true", "--op_profiling_output_mode=prot"], "wrong-value", "proto"),
        (["--xnnpack_force_fp16=true"], "ineffective-flag", "use_xnnpack"),
        (["--delegate_serialize_dir=/x"], "ineffective-flag", "delegate_serialize_token"),
        (["--run_delay=1", "--run_frequency=5"], "ineffective-flag", ""),
    ],
)
def test_each_fault_is_found_and_named(words: list[str], code: str, nearest: str) -> None:
    schema = parse_help(HELP).merged_with(documented_flags(FlagFamily.BENCHMARK_MODEL))
    (fault,) = check_flags(words, schema)
    assert (fault.code, fault.nearest) == (code, nearest)
    assert fault.flag in fault.message


@pytest.mark.parametrize(
    "words",
    [
        ["--graph=a b$(c)", "--num_runs=-5", "--min_secs=.5", "--max_secs=1e2", "--use_xnnpack=0"],
        ["--use_gpu=1", "--gpu_backend=gl", "--gpu_precision_loss_allowed=false"],
        ["--gpu_precision_loss_allowed=true"],
        ["--use_nnapi=true", "--nnapi_accelerator_name=x"],
        [],
    ],
)
def test_flags_that_are_right_have_no_fault(words: list[str]) -> None:
    assert check_flags(words, documented_flags(FlagFamily.BENCHMARK_MODEL)) == ()
