"""No text makes the reader fail."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import OutputParseError
from orchestrator.extensions.interop.cli import describe, to_public
from orchestrator.extensions.interop.texts.output import parse_text
from orchestrator.reading.report import parse_run
from tests.samples.places import NATIVE
from tests.samples.tools import raw_of

SEEDS = [
    (NATIVE / f"{name}.txt").read_bytes()
    for name in ("default_float_025_128", "gpu_partial", "perf_none", "prof_stdout_mode_explicit", "err_flex_op",
                 "ext_dummy_conv", "peak_memory", "prof_unwritable_file", "prof_proto_nofile")
]  # fmt: skip
PROTOS = [path.read_bytes() for path in sorted((NATIVE / "files").glob("*.pb"))]
WORDS = [
    b"9" * 5000,
    b"1e999",
    b"nan",
    b"-5",
    b"\0\xff",
    b"\r\n",
    "\u0663\u0664".encode(),
    b"count=",
    b"=== x ===",
    b"\t",
]
QUIET = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def damaged(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A real output with some of its bytes changed, taken out, doubled or replaced by nasty ones."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.integers(0, 3)):
            case 0:
                data[place : place + 1] = draw(st.binary(max_size=3))
            case 1:
                del data[place : place + draw(st.integers(0, 60))]
            case 2:
                data[place:place] = draw(st.sampled_from(WORDS))
            case _:
                other = draw(st.sampled_from(seeds))
                start = draw(st.integers(0, len(other)))
                data[place:place] = other[start : start + 200]
    return bytes(data)


@pytest.mark.slow
@QUIET
@given(damaged(SEEDS) | st.binary(max_size=300))
def test_no_text_raises_anything_but_the_parse_error(data: bytes) -> None:
    try:
        reports = parse_text(data)
    except OutputParseError:
        return
    for report in reports:
        json.dumps(to_public(report), allow_nan=False)
        describe(report)


@pytest.mark.slow
@QUIET
@given(
    damaged(SEEDS), damaged(SEEDS), damaged(PROTOS), damaged(PROTOS), damaged(PROTOS),
    st.sampled_from([None, 0, 1, 124, 127, 134, 137, -9, 255]), st.booleans(),
    st.sampled_from(["", "cpu", "gpu", "external"]),
)  # fmt: skip
def test_reading_an_invocation_never_fails(
    stdout: bytes, logcat: bytes, result: bytes, runtime: bytes, profile: bytes, exit_code: int | None,
    timed_out: bool, requested: str,
) -> None:  # fmt: skip
    report = parse_run(
        raw_of(
            stdout,
            stderr=stdout[:300],
            logcat=logcat,
            exit_code=exit_code,
            timed_out=timed_out,
            result_pb=result,
            runtime_info_pb=runtime,
            op_profile_pb=profile,
        ),
        requested=requested,
    )
    json.dumps(to_public(report), allow_nan=False)
