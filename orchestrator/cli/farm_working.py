"""``benchfarm farm worker``: one process on each host, which does the queue's jobs on the phones of that host."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator import __version__
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.farm_job import Ended, run_job
from orchestrator.cli.result import CommandResult, one_line
from orchestrator.config.farm_documents import dump
from orchestrator.errors import BenchfarmError, DeviceError, StoreError
from orchestrator.queueing.queue import Claimed, FarmQueue
from orchestrator.records.identity import Serial

#: So often a job is put back before it is given up.
TRIES_MAX: Final = 10
#: After the first failed try; twice as long after each further one, never more than the other.
_AGAIN_S: Final = 5.0
_AGAIN_MOST_S: Final = 300.0


@dataclass(slots=True, kw_only=True)
class _Running:
    claimed: Claimed
    cancelled: threading.Event = field(default_factory=threading.Event)
    #: The job isn't ours any more: others may have it, and its end is theirs to tell.
    disowned: bool = False
    thread: threading.Thread | None = None
    ended: Ended | None = None


class Worker:
    """A host's part of the farm. Only its main thread talks to the queue about jobs."""

    def __init__(self, settings: Settings, queue: FarmQueue, *, host: str, dead_after_s: float, look_s: float) -> None:
        self._settings = settings
        self._queue = queue
        self._host = host
        self._dead_after_s = dead_after_s
        self._look_s = look_s
        self._worker_id = 0
        self._stopped = threading.Event()
        self._has_looked = False
        self._running: dict[Serial, _Running] = {}
        #: Phones as announced: serial -> facts as a document, and why it can't be used.
        self._phones: dict[str, tuple[str, str]] = {}
        self._holds: Mapping[str, str] = {}
        self._heard = 0.0
        self._done = 0

    def run(self, *, until_empty: bool) -> int:
        """Work until drained or interrupted (or nothing is left); return how many jobs ended here."""
        self._register()
        # Of its own: a phone or adb server that hangs mustn't make the whole host look dead.
        threading.Thread(target=self._watch_phones, name="phones", daemon=True).start()
        try:
            while not self._step(until_empty):
                time.sleep(self._look_s)
        finally:
            self._stopped.set()
            self._stop()
        return self._done

    def _register(self) -> None:
        self._worker_id = self._queue.register(self._host, benchfarm_version=__version__)
        self._heard = time.monotonic()
        self._say(f"works as {self._host}, number {self._worker_id}")

    def _step(self, until_empty: bool) -> bool:
        """Look once at everything; whether the worker's work is over."""
        try:
            if not self._beat():
                return False
            for job_id in self._queue.reap(dead_after_s=self._dead_after_s):
                self._say(f"job {job_id}: its host died; it waits for another one")
            self._tell_ended()
            self._queue.announce(self._host, self._phones)
            claimed = self._claim_all()
        except StoreError as error:
            self._out_of_touch(error)
            return False
        is_drained = "drain" in {self._holds.get("farm"), self._holds.get(f"host:{self._host}")}
        return not self._running and (is_drained or (until_empty and self._has_looked and not claimed))

    def _beat(self) -> bool:
        beat = self._queue.beat(self._host, self._worker_id)
        if not beat.is_ours:
            # Thought dead (this host slept, say): what ran here may run elsewhere by now.
            self._disown(set(self._running))
            if self._running:
                self._collect()
                return False
            self._register()
            return False
        self._heard, self._holds = time.monotonic(), beat.holds
        self._disown({serial for serial, job in self._running.items() if job.claimed.job_id not in beat.held})
        for job in self._running.values():
            if job.claimed.job_id in beat.cancelled:
                job.cancelled.set()
        return True

    def _disown(self, serials: set[Serial]) -> None:
        for serial in serials:
            job = self._running[serial]
            if not job.disowned and job.ended is None:
                self._say(f"job {job.claimed.job_id} isn't this host's any more; it is stopped here")
                job.disowned = True
                job.cancelled.set()

    def _out_of_touch(self, error: StoreError) -> None:
        self._say(f"{one_line(str(error))}; trying again")
        if time.monotonic() - self._heard > self._dead_after_s * 0.8:
            self._disown(set(self._running))

    def _tell_ended(self) -> None:
        for serial, job in [(serial, job) for serial, job in self._running.items() if job.ended is not None]:
            if not job.disowned:
                self._tell(job)
            del self._running[serial]

    def _collect(self) -> None:
        for serial in [serial for serial, job in self._running.items() if job.ended is not None]:
            del self._running[serial]

    def _tell(self, job: _Running) -> None:
        ended, claimed = job.ended, job.claimed
        assert ended is not None, "only jobs that ended are told of"
        if ended.status == "again" and claimed.attempts < TRIES_MAX:
            delay_s = min(_AGAIN_MOST_S, _AGAIN_S * 2**claimed.attempts)
            is_kept = self._queue.put_back(self._worker_id, claimed.job_id, delay_s=delay_s, note=ended.note)
            text = f"is tried again in {delay_s:.0f} s"
        else:
            status = "failed" if ended.status == "again" else ended.status
            is_kept = self._queue.finish(self._worker_id, claimed.job_id, status, ended.note)
            text, self._done = status, self._done + is_kept
        self._say(f"job {claimed.job_id}: {text if is_kept else 'told by another host'}: {ended.note}")

    def _watch_phones(self) -> None:
        while not self._stopped.is_set():
            self._look_at_phones()
            self._stopped.wait(self._look_s)

    def _look_at_phones(self) -> None:
        try:
            with Farm(self._settings) as farm:
                found: dict[str, tuple[str, str]] = {}
                for attached in farm.attached():
                    serial, unusable = attached.seen.serial, "" if attached.seen.usable else attached.seen.reason
                    unusable = unusable or farm.quarantine.reason(Serial(serial))
                    if not serial or (serial in found and unusable):
                        continue
                    facts = self._phones.get(serial, ("", ""))[0]
                    if not unusable and not facts:
                        facts = dump(farm.open_phone(attached)[1])
                    if facts:
                        found[serial] = (facts, unusable)
        except DeviceError as error:
            self._say(f"the phones can't be looked at: {one_line(str(error))}")
            found = {}
        except Exception as error:  # noqa: BLE001 - the next look may go better
            self._say(f"the phones can't be looked at: {one_line(f'{type(error).__name__}: {error}')}")
            found = {}
        self._phones, self._has_looked = found, True

    def _claim_all(self) -> bool:
        any_claimed = False
        while serials := self._free():
            claimed = self._queue.claim(self._host, self._worker_id, serials)
            if claimed is None:
                break
            any_claimed = True
            self._begin(claimed)
        return any_claimed

    def _free(self) -> list[str]:
        """Return the phones that may get a job now."""
        if {"farm", f"host:{self._host}"} & self._holds.keys():
            return []
        return [
            serial
            for serial, (_, unusable) in self._phones.items()
            if not unusable and Serial(serial) not in self._running and f"phone:{serial}" not in self._holds
        ]

    def _begin(self, claimed: Claimed) -> None:
        running = _Running(claimed=claimed)
        serial = Serial(str(claimed.message.get("serial")))
        self._say(f"job {claimed.job_id}: begins on {serial}")

        def work() -> None:
            running.ended = run_job(self._settings, self._queue, claimed, self._host, running.cancelled)

        running.thread = threading.Thread(target=work, name=f"job {claimed.job_id}", daemon=True)
        self._running[serial] = running
        running.thread.start()

    def _stop(self) -> None:
        """End what runs, phones put back, and let others have it at once."""
        for job in self._running.values():
            job.cancelled.set()
        while any(job.ended is None for job in self._running.values()):
            time.sleep(0.05)
        try:
            for job in self._running.values():
                if job.ended is not None and job.ended.status == "aborted" and not job.disowned:
                    self._queue.put_back(
                        self._worker_id, job.claimed.job_id, delay_s=0.0, note=f"{self._host} was stopped"
                    )
                elif not job.disowned:
                    self._tell(job)
            self._queue.unregister(self._host, self._worker_id)
        except BenchfarmError as error:
            self._say(one_line(str(error)))

    def _say(self, text: str) -> None:
        print(f"farm: {text}", file=sys.stderr, flush=True)


def work(settings: Settings, *, host: str, dead_after_s: float, look_s: float, until_empty: bool) -> CommandResult:
    """Do the queue's jobs on this host's phones; raises UsageError without PostgreSQL, StoreError."""
    with FarmQueue(settings.store) as queue:
        worker = Worker(settings, queue, host=host, dead_after_s=dead_after_s, look_s=look_s)
        done = worker.run(until_empty=until_empty)
    return CommandResult(text=f"{done} jobs ended on {host}", data={"host": host, "jobs": done})
