"""What --build means on every command: a tool's program, or that of the only tool."""

import pytest

from orchestrator.config.plan_keys import builds_of
from orchestrator.errors import UsageError


@pytest.mark.parametrize(
    ("texts", "tools", "expected"),
    [
        ((), (), {}),
        (("prog",), (), {"native": "prog"}),
        (("prog",), ("apk",), {"apk": "prog"}),
        (("native=prog@12ab",), (), {"native": "prog@12ab"}),
        (("native=./a=b",), ("native",), {"native": "./a=b"}),
        (("./a=b/prog",), ("native",), {"native": "./a=b/prog"}),
        (("native=x", "apk=y"), ("native", "apk"), {"native": "x", "apk": "y"}),
        (("native=x", "x"), (), {"native": "x"}),
    ],
)
def test_a_build_is_that_of_its_tool(texts, tools, expected):
    assert builds_of(texts, tools) == expected


@pytest.mark.parametrize(
    ("texts", "tools", "message"),
    [
        (("prog",), ("native", "apk"), "'prog' doesn't say which of native, apk it is for"),
        (("natif=prog",), (), "'natif' isn't a tool"),
        (("native=",), (), "names no program"),
        (("native=x", "native=y"), (), "names two programs for native: x and y"),
        (("native=x",), ("apk",), "is for native, and --tool says apk"),
    ],
)
def test_a_build_that_is_of_no_tool_in_use_is_refused(texts, tools, message):
    with pytest.raises(UsageError, match=message):
        builds_of(texts, tools)
