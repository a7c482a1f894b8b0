"""Whether an invocation is run now, and what follows an error."""

from __future__ import annotations

from dataclasses import fields

import pytest

from orchestrator.engine.decisions import (
    Response,
    Situation,
    ending_without_run,
    response_to,
)
from orchestrator.errors import (
    DeviceBusyError,
    DeviceSetAsideError,
    DeviceUnauthorizedError,
    DeviceUnfitError,
    HostStorageError,
    InstallError,
    InterruptedByUserError,
    LinkLostError,
    StoreAwayError,
    UsageError,
)
from orchestrator.ports import Fitness
from orchestrator.records.run import Outcome

#: Each fact that speaks against a run, the strongest first, and the code that it gives the run.
AGAINST = {
    "unused": ("all operators ran on the gpu", "threads-unused"),
    "fitness": (Fitness(reason="too hot", code="battery-hot"), "battery-hot"),
    "needed_s": (61.0, "out-of-time"),
    "failure": ("timed-out: late", "failed-before"),
}


def test_a_run_that_is_not_made_says_the_first_of_all_reasons() -> None:
    assert AGAINST.keys() | {"reserve_s", "remaining_s"} == {
        item.name for item in fields(Situation)
    }
    facts = {name: fact for name, (fact, _) in AGAINST.items()}
    for name, (_, code) in AGAINST.items():
        ending = ending_without_run(Situation(remaining_s=60.0, **facts))  # type: ignore[arg-type]
        assert ending is not None
        assert ending.reason_code == code
        is_open = ending.outcome is Outcome.UNFIT
        assert is_open == (name == "fitness")
        del facts[name]
    assert ending_without_run(Situation(remaining_s=60.0, needed_s=50.0, reserve_s=10.0)) is None


@pytest.mark.parametrize(
    ("error", "response"),
    [
        (StoreAwayError(), Response.STOP_ALL),
        (HostStorageError(), Response.STOP_ALL),
        (InterruptedByUserError(), Response.STOP_ALL),
        (DeviceUnfitError(), Response.PAUSE),
        (DeviceUnauthorizedError(), Response.WAIT),
        (DeviceSetAsideError(), Response.LEAVE),
        (DeviceBusyError(), Response.LEAVE),
        (LinkLostError(), Response.TRY_AGAIN),
        (InstallError(), Response.STORE),
        (UsageError(), Response.STORE),
        (ValueError(), Response.LEAVE),
    ],
)
def test_each_error_has_its_response(error: Exception, response: Response) -> None:
    assert response_to(error) is response
