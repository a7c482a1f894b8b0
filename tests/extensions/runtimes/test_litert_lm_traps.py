"""What of LiteRT-LM's output mustn't be taken on trust, as the tool reads one process of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.delegates import FlagFamily
from orchestrator.extensions.interop.texts.output import parse_text
from orchestrator.extensions.runtimes.litert_lm import (
    _USUAL_REPETITIONS,
    LitertLmTool,
    _host_command,
    _phone_command,
)
from orchestrator.programs.flags import FlagBook, documented_flags
from orchestrator.records.case import Build, BuildSha, DelegateName, Pass, Serial, ToolName
from orchestrator.records.device import DeviceKind
from orchestrator.records.model import REPETITIONS, TOKENS
from orchestrator.records.run import ToolReport
from tests.extensions.interop.texts.test_litert_lm import CREATED, HEAD, NODES, RULE, block
from tests.samples import sample_lab
from tests.samples.tools import raw_of, request_of
from tests.samples.wire import field

FLAGS = {"prefill_tokens": "32", "decode_tokens": "16", "max_num_tokens": "128"}
COMMAND = "./litert_lm_advanced_main --num_iterations=3 --metric_proto_file_path=/run/metrics.pb"
THREE = (
    block((32, "3ms"), (16, "2ms"))
    + block((32, "1600us"), (16, "1ms"))
    + block((32, "1600us"), (16, "1040us"))
)


def metrics(*repetitions: tuple[int, int], decoded: int = 16, peak: bytes = b"") -> bytes:
    return b"".join(
        field(
            1,
            field(1, field(1, 32) + field(2, 16))
            + field(2, field(1, b"Init Total") + field(2, 580_100))
            + field(4, field(1, prefill_us) + field(2, 32))
            + field(5, field(1, decode_us) + field(2, decoded))
            + peak,
        )
        for prefill_us, decode_us in repetitions
    )


WRITTEN = metrics((3000, 2000), (1600, 1000), (1600, 1040))


def parsed(
    text: str,
    phase: str = "decode",
    *,
    written: bytes = WRITTEN,
    code: int = 0,
    delegate: str = "xnnpack",
) -> ToolReport:
    case = sample_lab.case(
        tool=ToolName.LITERT_LM,
        delegate=DelegateName(delegate),
        flags=(*FLAGS.items(), ("figure", phase)),
    )
    raw = raw_of(
        command=COMMAND,
        exit_code=code,
        stderr=text.encode(),
        **({"metrics_pb": written} if written else {}),
    )
    return LitertLmTool().parse(raw, case)


def test_what_failed_on_one_stream_is_no_result_by_the_other_one() -> None:
    case = sample_lab.case(tool=ToolName.LITERT_LM, flags=(*FLAGS.items(), ("figure", "decode")))
    too_long = (
        "Input token ids are too long. Exceeding the maximum number of tokens allowed: 600 >= 512\n"
    )
    raw = raw_of(
        command=COMMAND,
        exit_code=0,
        stdout=too_long.encode(),
        stderr=f"I0000 x litert_lm_lib.cc:133] Model path: /a.litertlm\n{CREATED}{THREE}".encode(),
    )
    report = LitertLmTool().parse(raw, case)
    assert (report.outcome, report.failure_code) == ("failed", "context-too-small")


@pytest.mark.parametrize(
    ("backend", "actual"),
    [("cpu_artisan", "xnnpack"), ("gpu_artisan", "gpu"), ("google_tensor_artisan", "npu")],
)
def test_kernels_of_its_own_are_of_the_hardware_that_they_run_on(backend: str, actual: str) -> None:
    head = "I0000 00:00:1777020481.329016    6587 litert_lm_lib.cc:133] "
    reports = parse_text(f"{head}Model path: /a.litertlm\n{head}Choose backend: {backend}\n{THREE}")
    assert {report.delegate.requested for report in reports} == {actual}


def test_metrics_stand_in_where_the_text_has_no_results() -> None:
    peaks = metrics((3000, 2000)) + WRITTEN
    report = parsed(CREATED, written=peaks)
    assert (report.outcome, report.init_us) == ("ok", 580_100)
    assert report.inference is not None
    # The first of four warms up.
    assert report.inference.count == 3 * 16


def command(kind: DeviceKind, *, cores: str = "big", **flags: str) -> str:
    given = (*(FLAGS | flags).items(), ("figure", "decode"))
    case = sample_lab.case(tool=ToolName.LITERT_LM, delegate=DelegateName.XNNPACK, flags=given)
    case = replace(case, affinity=cores)
    request = request_of(case, kind=kind, model_path="/m/q.litertlm", program_path="/p/litert")
    return (
        _phone_command(request, "/run", set())
        if kind is DeviceKind.ANDROID
        else _host_command(request, "/run")
    )


def test_the_command_repeats_once_a_process_as_a_repetition_that_failed_only_lowers_its_mean() -> (
    None
):
    """What it prints of the start is the first measured run's, which a process
    before made warm.

    The command's own warm-up runs on another engine, or since 0.19 on the same one: it is never
    used.
    """
    said = command(DeviceKind.HOST)
    assert " --runs 1 " in said
    assert " --cache no " in said
    filling, _, measured = said.partition(" > /dev/null 2>&1; ")
    assert filling.removeprefix("{ ") == measured.removesuffix("; }")
    assert " --skip-warmup " in measured
    # The user's own settings say nothing.
    assert " --config /dev/null " in said
    cold = command(DeviceKind.HOST, cache="cold")
    assert " --cache disk " in cold
    assert cold.count(" benchmark ") == cold.count(" --skip-warmup ") == 1
    # Both processes are kept to the cores that a plan names.
    assert command(DeviceKind.HOST, cores="3").count("taskset 3 /p/litert ") == 2


def test_a_phones_program_is_asked_so_that_no_error_is_lost_and_nothing_is_raised() -> None:
    """Messages one at a time; no priority that an app lacks.

    The log isn't thinned out.
    """
    words = command(DeviceKind.ANDROID).split()
    assert {
        "--async=false",
        "--boost_performance=disabled",
        "--min_log_severity=0",
        "--benchmark=true",
    } <= {*words}
    assert not [
        word
        for word in words
        if word.startswith(("--multi_turns", "--enable_profiling", "--report_peak"))
    ]
    assert words[-2:] == ["<", "/dev/null"]
    # Older builds lack these two, and end at a flag that they lack.
    assert {"--boost_performance=disabled", "--metric_proto_file_path=/run/metrics.pb"} <= {*words}


def test_the_first_token_is_derived_and_the_first_repetition_warms_up() -> None:
    """The prompt's time and a mean token; one init for all repetitions."""
    report = parsed(CREATED + NODES + THREE)
    assert report.extra["derived_first_token_us"] == pytest.approx(1600 + 1040 / 16)
    assert not [
        name for name in report.extra if "first_token" in name and not name.startswith("derived_")
    ]
    assert (report.init_us, report.warmup_mean_us) == (
        pytest.approx(580_100),
        pytest.approx(2000 / 16),
    )
    # Memory isn't looked at while time is measured.
    assert report.peak_memory_mib is None


@pytest.mark.parametrize(
    ("text", "written", "said"),
    [
        (THREE, b"", "metrics.pb, which the program writes at its end, is missing"),
        (THREE, b"\x0a\xff\xff", "metrics.pb, which the program writes at its end, is missing"),
        (THREE, metrics((3000, 2000)), "3 repetitions were printed, metrics.pb has 1"),
        (
            block((32, "1ms"), (16, "1ms")),
            metrics((1000, 1000)),
            "1 of 3 repetitions are in the results",
        ),
        # Decoding stops at the context's end, and no word says so.
        (
            THREE.replace("Processed 16 tokens", "Processed 9 tokens"),
            WRITTEN,
            "decode was of 9 tokens, 16 were requested",
        ),
        (
            CREATED,
            metrics((3000, 2000), (1600, 1000), (1600, 1000), decoded=9),
            "decode was of 9 tokens, 16 were",
        ),
    ],
)
def test_what_is_missing_or_short_is_told(text: str, written: bytes, said: str) -> None:
    report = parsed(CREATED + NODES + text, written=written)
    assert report.outcome == "ok"
    assert any(told.startswith(said) for told in report.disagreements), report.disagreements


def test_a_repetition_without_an_answer_isnt_left_out_in_silence() -> None:
    empty = THREE.replace(
        "    Decode Turn 1: Processed 16 tokens in 1ms duration.\n",
        "    No decode turns recorded.\n",
    )
    report = parsed(CREATED + NODES + empty)
    assert "1 of 3 repetitions have no decode" in report.disagreements
    # Nor is the only one taken for a warm-up because the model's answer looks like another.
    answer = "BenchmarkInfo:\nDecode Turn 1: Processed 9 tokens in 9ms duration.\n"
    report = parsed(CREATED + NODES + answer + block((32, "3ms"), (16, "2ms")), written=b"")
    assert report.inference_mean_us == 125


def test_a_block_without_turns_is_no_result_whatever_the_exit_code() -> None:
    """An error that reaches only an empty callback leaves a block of nothing, and exit code 0."""
    nothing = (
        f"{HEAD}BenchmarkInfo:\n  Init Phases (1):\n    - Init Total: 5.00 ms\n{RULE}  Time to first token: 0.00 s\n"
        f"{RULE}  Prefill Turns (Total 0 turns):\n    No prefill turns recorded.\n{RULE}    No decode turns recorded.\n"
    )
    for phase in ("prefill", "decode"):
        report = parsed(CREATED + nothing, phase, written=b"")
        assert (report.outcome, report.failure_code, report.inference_mean_us) == (
            "failed",
            "no-inferences",
            None,
        )


def test_a_program_that_the_linker_stops_lacks_a_library() -> None:
    said = (
        'CANNOT LINK EXECUTABLE "./litert_lm_advanced_main": library "libGemmaModelConstraintProvider.so" not found: '
        "needed by main executable\n"
    )
    report = parsed(said, written=b"", code=1)
    assert (report.outcome, report.failure_code) == ("failed", "missing-library")
    assert "libGemmaModelConstraintProvider.so" in report.failure_reason


@pytest.mark.parametrize(
    ("said", "code", "failure"),
    [
        ("E0000 x.cc:1] Failed to run litert_lm: INVALID_ARGUMENT: Input token ids are too long. Exceeding 1 >= 1\n", 3,
         "context-too-small"),
        ("E0000 x.cc:1] Failed to run litert_lm: INTERNAL: something\n", 13, "benchmark-failed"),
        ("Invalid magic number or failed to read: x\n", 3, "model-corrupt"),
        ("", 137, "killed"),
    ],
)  # fmt: skip
def test_exit_codes_and_sentences_name_the_failure(said: str, code: int, failure: str) -> None:
    report = parsed(said, written=b"", code=code)
    assert report.outcome != "ok"
    assert failure in report.failure_code, report.failure_code


def test_memory_is_the_processs_last_high_water_mark() -> None:
    one, two = (metrics((3000, 2000), peak=field(11, count)) for count in (1, 2))
    assert parsed(CREATED, written=one + two + WRITTEN).peak_memory_mib is None
    text = (
        THREE
        + "Peak system ram usage: 812.50MB.\nPeak DMA-BUF hardware usage: 96.25 MB (3 unique buffers)\n"
    )
    report = parsed(CREATED + NODES + text)
    assert (report.peak_memory_mib, report.extra["dmabuf_memory_mib"]) == (812.5, 96.25)


def faults(
    delegate: DelegateName = DelegateName.XNNPACK, serial: str = "S", **flags: str
) -> list[tuple[str, str]]:
    case = sample_lab.case(
        tool=ToolName.LITERT_LM,
        delegate=delegate,
        flags=((*(FLAGS | flags).items(), ("figure", "decode"))),
    )
    build = Build(name="b", tool=ToolName.LITERT_LM, sha256=BuildSha("b" * 64), abi="arm64-v8a")
    case = replace(case, serial=Serial(serial))
    found = FlagBook(Path("nowhere")).faults(build, case, Pass.TIMING)
    return [(item.flag, item.code) for item in found]


def test_the_numbers_of_tokens_that_are_used_are_those_that_are_documented() -> None:
    known = documented_flags(FlagFamily.LITERT_LM).flags
    assert {name: known[name].default for name in TOKENS} == TOKENS
    assert known[REPETITIONS].default == _USUAL_REPETITIONS


def test_flags_that_change_what_is_measured_are_refused() -> None:
    assert faults(cache="cold") == []
    for name, values in {
        "cache": ("warm",),
        "multi_turns": ("true",),
        "decode_tokens": ("0", "1.5", "1000001"),
        "conv_type": ("int4",),
        "force_f32": ("yes",),
        "prefill_chunk_size": ("0", "-2"),
        "prefill_batch_sizes": ("128,", "128;512", "0"),
    }.items():
        for value in values:
            assert {flag for flag, _ in faults(**{name: value})} == {name}


ENGINE = {
    "force_f32": "true",
    "conv_type": "int8",
    "sampler_backend": "cpu",
    "prefill_batch_sizes": "128,512",
    "enable_ynnpack": "true",
    "prefill_chunk_size": "128",
}
GPU = {"convert_weights_on_gpu": "false"}
NPU = {
    "use_hw_masking_for_npu": "false",
    "use_hw_cache_update_for_npu": "false",
    "use_hw_ple_for_npu": "false",
}


def test_the_engines_flags_go_to_the_filling_process_and_to_the_measured_one_of_a_phone() -> None:
    assert faults(**ENGINE) == []
    filling, _, measured = command(DeviceKind.ANDROID, cache="disk", **ENGINE, **GPU).partition(
        " > /dev/null 2>&1; "
    )
    for name, value in {**ENGINE, **GPU}.items():
        assert f"--{name}={value}" in filling.split()
        assert f"--{name}={value}" in measured.split()
    assert not [name for name in (*ENGINE, *GPU, *NPU) if name in command(DeviceKind.ANDROID)]


def test_a_flag_of_another_backend_does_nothing_and_one_of_this_computer_is_refused() -> None:
    delegates = DelegateName.GPU, DelegateName.NPU
    for flags, own in ((GPU, delegates[0]), (NPU, delegates[1])):
        for name, value in flags.items():
            assert faults(own, **{name: value}) == []
            assert faults(**{name: value}) == [(name, "ineffective-flag")]
    for name, value in {**ENGINE, "num_iterations": "3"}.items():
        assert faults(serial="host", **{name: value}) == [(name, "wrong-value")]
    ahead = {"speculative_decoding": "on"}
    assert faults(serial="host", **ahead) == []
    assert faults(**ahead) == [(*ahead, "wrong-value")]
    assert "--speculative-decoding on" in command(DeviceKind.HOST, **ahead)
