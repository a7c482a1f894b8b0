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
from orchestrator.cli.farm_submitting import choose_phones
from orchestrator.cli.result import one_line
from orchestrator.config.farm_documents import dump, read_plan
from orchestrator.engine.night import bounded
from orchestrator.errors import BenchfarmError
from orchestrator.queueing.messages import PhoneJob
from orchestrator.queueing.queue import FarmQueue
from orchestrator.queueing.schedule import Schedule, Schedules
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial

if TYPE_CHECKING:
    from collections.abc import Iterator

#: So often a worker looks whether something is due; a schedule's times are whole minutes.
LOOK_S: Final = 5.0


def kind_of(facts: DeviceFacts) -> str:
    """Return what phones have in common that the same builds run on."""
    return f"{facts.abis[0] if facts.abis else ''} {'virtual' if facts.is_virtual else 'real'}"


def submit_scheduled(farm: Farm, queue: FarmQueue, schedule: Schedule, submission: str, moment: datetime) -> str:
    """Queue a schedule's plan for the phones that are announced now, once for a submission's name.

    Raises:
        NoDeviceError: no phone fits.
        BenchfarmError: the plan can't be read any more.
    """
    if jobs := queue.jobs(submission):
        return f"{len(jobs)} jobs, queued before its worker died"
    plan = read_plan(schedule.plan)
    limited, opens_at = bounded(plan, moment)
    # A window that opens later is waited for by the jobs; one that is open ends for all of them at the same moment.
    plan = limited if opens_at <= moment else plan
    chosen, left_out = choose_phones(farm, queue, plan.devices)
    document = dump(replace(plan, devices=type(plan.devices)()))
    parcels: Mapping[str, dict[str, object]] = json.loads(schedule.parcels)
    made, files = [], {}
    for facts in chosen:
        own = parcels.get(facts.serial) or parcels.get(kind_of(facts)) or parcels.get("", {})
        parcel = str(own.get("parcel", ""))
        made.append(PhoneJob(submission=submission, serial=Serial(facts.serial), plan=document, parcel=parcel))
        named = own.get("files", [])
        files[str(facts.serial)] = [str(item) for item in named] if isinstance(named, list) else []
    queue.submit(made, plan_name=schedule.plan_name, priority=schedule.priority, files=files)
    further = f"; not meant: {', '.join(sorted(left_out))}" if left_out else ""
    return f"{len(made)} jobs, for {', '.join(job.serial for job in made)}{further}"


@contextmanager
def schedules_kept(settings: Settings, queue: FarmQueue, *, host: str, say: Callable[[str], None]) -> Iterator[None]:
    """Make what is due while the context lasts, in a thread of its own: a slow database holds up no heartbeat."""
    stopped = threading.Event()
    said = ""

    def keep() -> None:
        nonlocal said
        while not stopped.is_set():
            text = ""
            try:
                with Farm(settings) as farm:
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
