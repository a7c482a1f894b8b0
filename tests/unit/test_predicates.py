"""Claims about devices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.records.device import (
    FIELDS,
    CpuCluster,
    Labels,
    parse_predicate,
)
from tests.conftest import golden_texts
from tests.samples.records import facts_of

PIXEL = facts_of(
    "8A1X0",
    manufacturer="Google",
    model="Pixel 8",
    codename="shiba",
    os_version="14",
    sdk=34,
    soc="Tensor G3",
    platform="zuma",
    abis=("arm64-v8a",),
    clusters=(
        CpuCluster(cpus=(0, 1, 2, 3), min_khz=1, max_khz=2),
        CpuCluster(cpus=(4,), min_khz=1, max_khz=3),
    ),
    memory_bytes=8_000_000_000,
    profile="pixel-8",
    properties={"ro.board.platform": "zuma", "ro.empty": ""},
)
UNKNOWN = facts_of("x", is_virtual=True)


def judged(text, facts=PIXEL):
    return all(claim.holds(facts, Labels()) for claim in parse_predicate(text))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("android >= 13", True),
        ("android = 14", True),
        ("android = 14.1", False),
        ("android < 9", False),
        ("sdk >= 34 and sdk <= 34", True),
        ('soc = "tensor*"', True),
        ("soc = 'Tensor G?'", True),
        ("soc = sm8*", False),
        ("soc != sm8*", True),
        ("abi = arm64-v8a", True),
        ("abi = armeabi-v7a", False),
        ("abi != armeabi-v7a", True),
        ("virtual = false", True),
        ("virtual", False),
        ("not virtual", True),
        ("cores = 5", True),
        ("memory >= 6 GB", True),
        ("memory >= 8 GiB and not virtual", False),
        ("memory < 9e9", True),
        ("manufacturer = google AND profile = pixel-8", True),
        ("ro.board.platform = zuma", True),
        ("ro.board.platform != zuma", False),
        ("ro.empty = ''", True),
        ("serial = 8A1X0", True),
        ("kind = android", True),
        ('model = "Rock and Roll" and sdk = 34', False),
        ("codename != s-and-b and sdk = 34", True),
        ("ro.and.x = 'a' and sdk = 34", False),
    ],
)
def test_claim_is_judged_by_the_facts(text, holds):
    assert judged(text) is holds


@pytest.mark.parametrize(
    "fact",
    [
        "android >= 1",
        "sdk > 0",
        "soc = *",
        "abi = *",
        "cores > 0",
        "memory > 0",
        "model = *",
        "ro.x = *",
        "codename != x",
    ],
)
def test_a_claim_about_what_is_not_known_does_not_hold(fact):
    assert not judged(fact, UNKNOWN)


def test_fault_names_the_claim_and_what_is_wrong():
    def fault_of(text):
        with pytest.raises(UsageError) as refused:
            parse_predicate(text.strip("'"))
        return f"{refused.value}; {refused.value.hint}".removesuffix("; ")

    golden_texts("faults.rules.txt", fault_of)
    with pytest.raises(UsageError, match="longer than 1000"):
        parse_predicate("sdk > 3 and " * 200)


def test_any_fact_can_be_asked_for():
    for name, field in FIELDS.items():
        value = {"number": "1", "version": "1", "bytes": "1", "truth": "true"}.get(field.kind, "x")
        assert isinstance(judged(f"{name} = {value}"), bool)


@given(st.text(alphabet=st.sampled_from("sdk soc=<>!()'\"andornt 13*[.\\\n"), max_size=60))
def test_any_text_is_judged_or_refused_with_a_usage_error(text):
    try:
        assert judged(text) in {True, False}
    except UsageError:
        pass
