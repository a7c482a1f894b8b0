"""Flags: learned from --help, and checked before anything runs."""

import pytest

from orchestrator.delegates import FlagFamily
from orchestrator.programs.flags import documented_flags, parse_help, schema_faults
from tests.conftest import golden_texts
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


def test_each_fault_is_found_and_named() -> None:
    schema = parse_help(HELP).merged_with(documented_flags(FlagFamily.BENCHMARK_MODEL))

    def fault_of(words: str) -> str:
        (fault,) = schema_faults(dict(word[2:].split("=", 1) for word in words.split()), schema)
        assert fault.flag in fault.message
        return f"{fault.code}: {fault.message}"

    golden_texts("faults.flags.txt", fault_of)


@pytest.mark.parametrize(
    "flags",
    [
        {"graph": "a b$(c)", "num_runs": "-5", "min_secs": ".5", "max_secs": "1e2"},
        {"use_gpu": "1", "gpu_backend": "gl", "gpu_precision_loss_allowed": "false"},
        # At its default.
        {"gpu_precision_loss_allowed": "true"},
    ],
)
def test_flags_that_are_right_have_no_fault(flags: dict[str, str]) -> None:
    assert schema_faults(flags, documented_flags(FlagFamily.BENCHMARK_MODEL)) == ()
