"""Which of the announced phones can have a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from orchestrator.extensions.farm.phones import usable


def seen(
    serial: str, host: str, *, silent_s: float = 1.0, unusable: str = "", facts: str = "{}"
) -> Mapping[str, Any]:
    return {
        "serial": serial,
        "host": host,
        "facts": facts,
        "unusable": unusable,
        "silent_s": silent_s,
        "state": "",
    }


def test_phones_of_a_host_that_was_not_heard_for_long_are_left_out_with_the_reason() -> None:
    rows = [
        seen("A", "dead", silent_s=30 * 86400.0),
        seen("B", "live"),
        seen("C", "slow", silent_s=60),
    ]
    chosen, left_out = usable(rows, ())
    assert list(chosen) == ["B", "C"]
    assert left_out == {"A": "dead wasn't heard for 720 h 00 min"}


@pytest.mark.parametrize("unusable", ["", "offline"])
def test_a_phone_that_moved_is_the_living_hosts(unusable: str) -> None:
    rows = [seen("A", "dead", silent_s=86400.0), seen("A", "live", unusable=unusable)]
    chosen, left_out = usable(rows, ())
    assert [row["host"] for row in chosen.values()] == ([] if unusable else ["live"])
    assert left_out == ({"A": unusable} if unusable else {})


def test_a_phone_that_is_named_is_what_a_host_knows_of_it() -> None:
    rows = [
        seen("A", "asked", unusable="offline"),
        seen("A", "never", unusable="unauthorized", facts=""),
    ]
    for order in (rows, rows[::-1]):
        chosen, left_out = usable(order, ["A"])
        assert (chosen["A"]["host"], left_out) == ("asked", {})
