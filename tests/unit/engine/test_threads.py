"""Jobs of devices that are there, and of those that come while others work."""

import threading

import pytest

from orchestrator.engine.threads import Job, ThreadExecutor

DEADLINE_S = 30.0


def test_jobs_that_come_while_another_runs_are_done_and_waited_for() -> None:
    ended: list[str] = []
    came = threading.Event()
    waiting: list[list[Job]] = [[("second", lambda: ended.append("second"))]]

    def first() -> None:
        assert came.wait(DEADLINE_S)
        ended.append("first")

    def more() -> list[Job]:
        came.set()
        return waiting.pop() if waiting else []

    ThreadExecutor(threading.Event()).run([("first", first)], more=more)
    assert sorted(ended) == ["first", "second"]


def test_a_job_that_comes_with_the_last_ones_end_is_done_too() -> None:
    ended: list[str] = []

    def job(name: str) -> Job:
        return name, lambda: ended.append(name)

    rest = [job("b"), job("c")]
    ThreadExecutor(threading.Event()).run([job("a")], more=lambda: [rest.pop(0)] if rest else [])
    assert ended == ["a", "b", "c"]


def test_nothing_more_begins_once_all_is_cancelled() -> None:
    cancelled = threading.Event()
    ended: list[str] = []

    def more() -> list[Job]:
        cancelled.set()
        return []

    def first() -> None:
        assert cancelled.wait(DEADLINE_S)

    executor = ThreadExecutor(cancelled)
    executor.run([("a", first)], more=more)
    executor.run([("b", lambda: ended.append("b"))], more=lambda: [("c", lambda: ended.append("c"))])
    assert ended == ["b"]


def test_an_error_while_asking_for_more_ends_the_others_and_is_raised() -> None:
    cancelled = threading.Event()

    def more() -> list[Job]:
        raise ValueError("broken")

    def waits() -> None:
        assert cancelled.wait(DEADLINE_S)

    with pytest.raises(ValueError, match="broken"):
        ThreadExecutor(cancelled).run([("a", waits)], more=more)
    assert cancelled.is_set()
