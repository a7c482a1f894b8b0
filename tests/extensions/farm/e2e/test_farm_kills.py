"""Hosts of a farm killed again and again, asleep and awake, their database away: nothing lost,
nothing doubled.

``make fault-matrix`` kills more than 50 times and has the database away for a minute twice; without
FAULT_MATRIX=all it is a few.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.samples.farm_hosts import (
    DEAD_AFTER_S,
    FarmOfHosts,
    Host,
    changes,
    stored,
)

WHOLE = os.environ.get("FAULT_MATRIX") == "all"
#: Of each submission: a job at which ten hosts died isn't begun again.
KILLS = 9 if WHOLE else 3
ROUNDS, AWAY_S = (6, 60.0) if WHOLE else (1, 5.0)
#: Of each of four cases.
INVOCATIONS = 12 if WHOLE else 4


@pytest.mark.timeout(3600 if WHOLE else 280)
def test_whatever_happens_to_two_hosts_of_one_phone_and_their_database_each_result_is_stored_once(
    two_hosts: FarmOfHosts, plan_file: Callable[..., Path]
) -> None:
    farm = two_hosts
    chance = random.Random(KILLS)
    before = {host.serial: changes(host) for host in farm.hosts}
    # The second host reaches the first one's phone as well as its own.
    farm.two.adb_server = farm.one.virtual_server()
    farm.until_announced(*farm.hosts)
    phones = tuple(host.serial for host in farm.hosts)
    farm.until(
        lambda: {(row["host"], row["serial"]) for row in farm.queue.phones()} > {("two", phones[0])}
    )
    for number in range(ROUNDS):
        one_round(
            farm, plan_file(phones, invocations=INVOCATIONS, min_secs=2), chance, before, number
        )


def one_round(
    farm: FarmOfHosts, plan: Path, chance: random.Random, before: dict[str, str], turn: int
) -> None:
    """Kill hosts while they do a submission; in each third round one sleeps, and the database is
    away.
    """
    name, phones = f"kills-{secrets.token_hex(2)}", tuple(host.serial for host in farm.hosts)
    farm.one("farm", "submit", plan, "--name", name)
    jobs = farm.jobs(name)
    assert [job["serial"] for job in jobs] == sorted(phones)

    def results() -> int:
        return sum(stored(farm.one.url, job["campaign_id"]).total() for job in jobs)

    def is_over() -> bool:
        return all(job["status"] == "done" for job in farm.jobs(name))

    def sleep(host: Host) -> None:
        """Stop a host for longer than the others wait for it, and let it go on."""
        host.worker.send_signal(signal.SIGSTOP)
        time.sleep(DEAD_AFTER_S + 2)
        host.worker.send_signal(signal.SIGCONT)

    for number in range(KILLS):
        _ = farm.one.worker, farm.two.worker
        known = results()
        farm.until(lambda known=known: results() > known or is_over())
        if number == KILLS // 3 and turn % 3 == 0:
            sleep(chance.choice(farm.hosts))
        elif number == KILLS // 3 + 1 and turn % 3 == 0:
            farm.database.server.stop("immediate")
            time.sleep(AWAY_S)
            farm.database.server.start()
            farm.until(lambda: bool(farm.jobs(name)))
        chance.choice(farm.hosts).kill()
    _ = farm.one.worker, farm.two.worker
    farm.until_ended(name)
    farm.expect_no_loss(name, 4 * INVOCATIONS, before)
