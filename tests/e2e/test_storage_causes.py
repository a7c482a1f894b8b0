"""A phone whose storage can't be written says so in each run's reason, whatever failed first
because of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Lab

FULL = ("device-storage", "there is no space left on the phone", "free some space")
REFUSED = ("folder-refused", "the phone's shell user may not write there", "ls -ld /data/local/tmp")


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (("no-space", "subject=/data/local/tmp/benchfarm/*"), FULL),
        (("no-space", "bytes=300", "subject=/data/local/tmp/benchfarm/*"), FULL),
        (("no-space", "subject=*/runs/*"), FULL),
        (("permission-denied", "subject=/data/local/tmp/benchfarm/*"), REFUSED),
        (("permission-denied", "subject=*/runs/*"), REFUSED),
    ],
    ids=lambda value: " ".join(value),
)
def test_the_cause_is_told_and_what_to_do(
    lab: Lab, plan_file: Callable[..., Path], fault: tuple[str, ...], told: tuple[str, str, str]
) -> None:
    serial = lab.serials[0]
    lab.fault(serial, *fault)
    runs = lab.cli("run", plan_file((serial,), invocations=1), "--json").json["runs"]
    failed = [(run["reason_code"], run["reason"]) for run in runs if run["outcome"] == "failed"]
    assert failed
    code, cause, hint = told
    assert all(found == code and cause in reason and hint in reason for found, reason in failed), (
        failed
    )
