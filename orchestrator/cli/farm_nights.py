"""What a worker does for schedules: it submits what is due, for the phones that are announced then."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.farm_newcomers import kept_for_newcomers, opened
from orchestrator.cli.farm_parcel import needed_by
from orchestrator.cli.farm_phones import choose_phones
from orchestrator.cli.result import one_line
from orchestrator.config.farm_documents import dump, read_plan
from orchestrator.errors import BenchfarmError
from orchestrator.ports import Store
from orchestrator.queueing.messages import PhoneJob
from orchestrator.queueing.queue import FarmQueue
from orchestrator.queueing.schedule import Schedule, Schedules
from orchestrator.records.identity import Serial

if TYPE_CHECKING:
    from collections.abc import Iterator

#: So often a worker looks whether something is due; a schedule's times are whole minutes.
LOOK_S: Final = 5.0


def submit_scheduled(farm: Farm, queue: FarmQueue, schedule: Schedule, submission: str, moment: datetime) -> str:
    """Queue a schedule's plan for the phones that are announced now, once for a submission's name.

    Raises:
        NoDeviceError: no phone fits.
        BenchfarmError: the plan can't be read any more.
    """
    if jobs := queue.jobs(submission):
        return f"{len(jobs)} jobs, queued before its worker died"
    plan = read_plan(schedule.plan)
    plan = opened(plan, moment)
    chosen, left_out = choose_phones(farm, queue, plan.devices)
    document = dump(replace(plan, devices=type(plan.devices)()))
    parcels: Mapping[str, dict[str, object]] = json.loads(schedule.parcels)
    made, files = [], {}
    for facts in chosen:
        parcel, files[str(facts.serial)] = needed_by(parcels, facts)
        made.append(PhoneJob(submission=submission, serial=Serial(facts.serial), plan=document, parcel=parcel))
    kept = kept_for_newcomers(
        submission,
        plan,
        parcels,
        chosen,
        inventory=farm.inventory,
        priority=schedule.priority,
        now=moment,
    )
    queue.submit(made, plan_name=schedule.plan_name, priority=schedule.priority, files=files, kept=kept)
    further = f"; not meant: {', '.join(sorted(left_out))}" if left_out else ""
    return f"{len(made)} jobs, for {', '.join(job.serial for job in made)}{further}"


@contextmanager
def schedules_kept(
    settings: Settings, queue: FarmQueue, store: Store, *, host: str, say: Callable[[str], None]
) -> Iterator[None]:
    """Make what is due while the context lasts, in a thread of its own: a slow database holds up no heartbeat."""
    stopped = threading.Event()
    said = ""

    def keep() -> None:
        nonlocal said
        while not stopped.is_set():
            text = ""
            try:
                with Farm(settings, store=store) as farm:
                    for line in Schedules(queue).make_due(
                        lambda schedule, name, moment: submit_scheduled(farm, queue, schedule, name, moment), host=host
                    ):
                        text = one_line(line)
                        if text != said:
                            say(text)
            except BenchfarmError as error:
                text = one_line(f"schedules: {error}")
                if text != said:
                    say(text)
            except Exception as error:  # noqa: BLE001 - the next look may go better
                text = one_line(f"schedules: {type(error).__name__}: {error}")
                if text != said:
                    say(text)
            said = text
            stopped.wait(LOOK_S)

    thread = threading.Thread(target=keep, name="schedules", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(timeout=10)
