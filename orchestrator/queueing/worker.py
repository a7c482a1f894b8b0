"""A host's part of the farm: it announces its phones, takes jobs for them, and ends nothing that isn't its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Protocol

from orchestrator.errors import BenchfarmError, StoreError, UsageError
from orchestrator.queueing.newcomers import Newcomers
from orchestrator.queueing.queue import Announced, Claimed, FarmQueue
from orchestrator.records.identity import Serial

#: Times that a job is requeued because it failed on its phone, before it is abandoned.
TRIES_MAX: Final = 10
#: After the first failed try; twice as long after each further one, never more than the other.
_AGAIN_S: Final = 5.0
_AGAIN_MOST_S: Final = 300.0
#: A host's clock may be set while a job waits for its time.
_LATER_MOST_S: Final = 1800.0
#: How bad it is that a delivery ended so, where the job doesn't fail by it.
_LEVELS: Final = {"again": "warning", "failed": "error"}
_UNSEEN: Final = "its host can't look at its phones now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a delivery ended: ``succeeded``, ``failed``, ``aborted``, ``again`` for another try, or ``later``."""

    status: str
    note: str
    #: ``later``: it isn't its time yet, which is no try of the phone.
    wait_s: float = 0.0
    #: ``again``: it is the phone that couldn't be got, or gave up, so that a spare one may take its place at last.
    is_phone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What came of a look at a host's phones."""

    #: None when it couldn't look.
    phones: Mapping[str, Announced] | None
    #: What is wrong with the host, empty for nothing.
    ails: str = ""


class Say(Protocol):
    """Tells people; ``level`` and further keys are for logs that programs read."""

    def __call__(self, text: str, /, *, level: str = "info", **keys: object) -> None:
        """Tell of something that happened."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """What a worker leaves to its caller."""

    #: Does what is open of a job until it is done or the event is set; raises nothing.
    run: Callable[[Claimed, threading.Event], Ended]
    #: Looks at this host's phones, given what is known of them and which of them work and mustn't be disturbed; raises
    #: nothing.
    look: Callable[[Mapping[str, Announced], Collection[str]], Look]
    #: Gives up what is left of a job that somebody cancelled, once it has stopped; raises nothing.
    give_up: Callable[[Claimed], None]
    say: Say


@dataclass(slots=True, kw_only=True)
class _Running:
    claimed: Claimed
    cancelled: threading.Event = field(default_factory=threading.Event)
    #: Somebody cancelled the job, for good.
    called_off: bool = False
    #: The job isn't ours any more: others may have it, and report its end.
    disowned: bool = False
    ended: Ended | None = None


class Worker:
    """One process of a host. Only the thread that runs it talks to the queue about jobs."""

    def __init__(
        self,
        queue: FarmQueue,
        callbacks: Callbacks,
        *,
        host: str,
        benchfarm_version: str,
        dead_after_s: float,
        look_s: float,
        newcomers: Newcomers | None = None,
        host_id: str = "",
    ) -> None:
        """Without ``newcomers`` no spare phone takes the place of one that this host gives up.

        ``host_id`` is this computer's: a worker of the same name that runs on another one keeps the name.
        """
        self._host_id = host_id
        self._newcomers = newcomers
        self._queue = queue
        self._callbacks, self._say = callbacks, callbacks.say
        self._host = host
        self._version = benchfarm_version
        self._dead_after_s = dead_after_s
        self._look_s = look_s
        self._worker_id = 0
        self._stopped = threading.Event()
        #: Something ended or the phones changed: there is no need to wait for the next look.
        self._woken = threading.Event()
        self._has_looked = False
        self._running: dict[Serial, _Running] = {}
        self._phones: Mapping[str, Announced] = {}
        #: The phones as they were when they were last really looked at.
        self._known: Mapping[str, Announced] = {}
        #: What was wrong with this host at the last look.
        self._ails = ""
        self._holds: Mapping[str, str] = {}
        self._heard = 0.0
        #: Since when there was no long time in which this host didn't hear of the others.
        self._in_touch = 0.0
        self._done = 0

    def run(self, *, until_empty: bool) -> int:
        """Work until drained or interrupted (or nothing is left); return how many jobs ended here.

        Raises UsageError when another worker has the name, StoreError.
        """
        self._register()
        # In a thread: a phone or adb server that hangs mustn't make the whole host look dead.
        threading.Thread(target=self._watch_phones, name="phones", daemon=True).start()
        try:
            while not self._step(until_empty):
                self._wait()
        finally:
            self._end()
        return self._done

    def _wait(self) -> None:
        self._woken.wait(self._look_s)
        self._woken.clear()

    def _register(self) -> None:
        """Take the name; raises UsageError while a worker of another computer has it who was heard lately."""
        if since := self._queue.namesake(self._host, besides=self._host_id, heard_within_s=self._dead_after_s):
            raise self._named_alike(since)
        self._worker_id = self._queue.register(self._host, benchfarm_version=self._version, host_id=self._host_id)
        self._heard = self._in_touch = time.monotonic()
        self._say(f"works as {self._host}, number {self._worker_id}")

    def _named_alike(self, since: datetime) -> UsageError:
        text = f"another worker has been working as {self._host!r} since {since.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        hint = f"give each host a name of its own (--name), or wait until it was silent for {self._dead_after_s:g} s"
        return UsageError(text, hint=hint)

    def _step(self, until_empty: bool) -> bool:
        """Look once at everything; whether the worker's work is over."""
        try:
            self._beat()
            for job_id in self._queue.reap(dead_after_s=self._silence_s()):
                self._say(f"job {job_id}: its host died; it waits for another one", level="warning", job=job_id)
            self._report_ended()
            if self._has_looked:
                # Not before: a worker that is started again would take its phones out of the list for a moment.
                self._queue.announce(self._host, self._phones)
            claimed = self._claim_all()
        except StoreError as error:
            self._out_of_touch(error)
            return False
        is_over = bool(self.drained) or (until_empty and self._has_looked and not claimed)
        return not self._running and is_over

    @property
    def drained(self) -> str:
        """What of ``farm`` and ``host:NAME`` is drained, empty for neither: this worker gets no more jobs."""
        return next((scope for scope in ("farm", f"host:{self._host}") if self._holds.get(scope) == "drain"), "")

    def _silence_s(self) -> float | None:
        """Return after what silence others count as dead; None while this host can't tell.

        When a database is back, the first hosts that are too mustn't take the jobs of those that come some seconds
        later.
        """
        has_listened = time.monotonic() - self._in_touch >= self._dead_after_s
        return self._dead_after_s if has_listened else None

    def _beat(self) -> None:
        """Report that this host lives, and learn what others want; raises UsageError when another one has the name."""
        beat = self._queue.beat(self._host, self._worker_id, ails=self._ails)
        if not beat.is_ours:
            # Another worker has taken the name (this host slept, say): what runs here may run elsewhere by now.
            if since := self._queue.namesake(self._host):
                raise self._named_alike(since)
            raise UsageError(f"somebody took {self._host!r} out of the farm", hint="start its worker again")
        now = time.monotonic()
        if now - self._heard > self._dead_after_s / 2:
            self._in_touch = now
        self._heard, self._holds = now, beat.holds
        self._disown({serial for serial, job in self._running.items() if job.claimed.job_id not in beat.held})
        for job in self._running.values():
            if job.claimed.job_id in beat.cancelled:
                job.called_off = True
                job.cancelled.set()
        # Claimed by this thread alone, so none is on its way: it isn't known here, and would keep its phone for ever.
        for job_id in beat.held - {job.claimed.job_id for job in self._running.values()}:
            note = "the claim's answer was lost"
            if self._queue.requeue(self._worker_id, job_id, delay_s=0.0, note=note, is_try=False):
                self._say(f"job {job_id}: {note}; it waits again", level="warning", job=job_id)

    def _disown(self, serials: set[Serial]) -> None:
        for serial in serials:
            job = self._running[serial]
            if not job.disowned and job.ended is None:
                text = f"job {job.claimed.job_id} isn't this host's any more; it is stopped here"
                self._say(text, level="warning", **_about(job.claimed))
                job.disowned = True
                job.cancelled.set()

    def _out_of_touch(self, error: StoreError) -> None:
        self._say(f"{error}; trying again", level="error")
        if time.monotonic() - self._heard > self._dead_after_s * 0.8:
            self._disown(set(self._running))

    def _report_ended(self) -> None:
        for serial, job in list(self._running.items()):
            if job.ended is not None:
                if not job.disowned:
                    self._report(job.claimed, job.ended)
                del self._running[serial]

    def _report(self, claimed: Claimed, ended: Ended) -> None:
        """End a job in the queue, or requeue it."""
        held, note = (self._worker_id, claimed.job_id), ended.note
        if ended.status == "later":
            delay_s = min(_LATER_MOST_S, ended.wait_s)
            is_kept = self._queue.requeue(*held, delay_s=delay_s, note=note, is_try=False)
            text = f"waits {delay_s:.0f} s"
        elif ended.status == "again" and claimed.tries < TRIES_MAX:
            delay_s = min(_AGAIN_MOST_S, _AGAIN_S * 2**claimed.tries)
            is_kept = self._queue.requeue(*held, delay_s=delay_s, note=note)
            text = f"is tried again in {delay_s:.0f} s"
        elif ended.status == "again" and ended.is_phone and self._newcomers is not None:
            is_kept, line = self._newcomers.give_up(*held, note)
            text, self._done = "failed", self._done + is_kept
            if line:
                self._say(line)
        else:
            text = "failed" if ended.status == "again" else ended.status
            is_kept = self._queue.finish(*held, text, note)
            self._done += is_kept
        level = _LEVELS.get(ended.status, "info") if text != "failed" else "error"
        said = f"job {claimed.job_id}: {text if is_kept else 'told already'}: {note}"
        self._say(said, level=level, **_about(claimed))

    def _watch_phones(self) -> None:
        while not self._stopped.is_set():
            busy = list(self._running)
            look = self._callbacks.look(self._known, busy)
            if look.ails and look.ails != self._ails:
                self._say(look.ails, level="error")
            self._ails, found = look.ails, look.phones
            if found is None:
                found = {serial: replace(phone, unusable=_UNSEEN) for serial, phone in self._known.items()}
            else:
                self._known = self._learnt(found, busy)
            if found.keys() != self._phones.keys():
                self._woken.set()
            self._phones, self._has_looked = found, True
            self._stopped.wait(self._look_s)

    def _learnt(self, found: Mapping[str, Announced], busy: Collection[str]) -> Mapping[str, Announced]:
        """Return what is known after a look; a working phone that was away counts as away until its job is over.

        Only then may it be asked what has become of it.
        """
        known = dict(found)
        for serial in busy:
            before = self._known.get(serial)
            if before is not None and serial not in found:
                known[serial] = replace(before, unusable=_UNSEEN)
            elif before is not None and before.unusable:
                known[serial] = before
        return known

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
            for serial, phone in self._phones.items()
            if not phone.unusable and Serial(serial) not in self._running and f"phone:{serial}" not in self._holds
        ]

    def _begin(self, claimed: Claimed) -> None:
        running = _Running(claimed=claimed)
        serial = claimed.serial
        self._say(f"job {claimed.job_id}: begins on {serial}", level="info", **_about(claimed))

        def work() -> None:
            ended = self._callbacks.run(claimed, running.cancelled)
            if ended.status == "aborted" and running.called_off and not running.disowned:
                self._callbacks.give_up(claimed)
            running.ended = ended
            self._woken.set()

        self._running[serial] = running
        threading.Thread(target=work, name=f"job {claimed.job_id}", daemon=True).start()

    def _end(self) -> None:
        """Stop, however often that is asked for: a phone that isn't restored would stay changed."""
        asked_again = False
        while True:
            try:
                if asked_again:
                    self._say("restoring phones; please wait")
                self._stopped.set()
                self._stop()
            except KeyboardInterrupt:
                asked_again = True
            else:
                return

    def _stop(self) -> None:
        """End what runs, phones restored, and let others have it at once; it may be begun again."""
        for job in self._running.values():
            job.cancelled.set()
        while any(job.ended is None for job in self._running.values()):
            self._wait()
            self._live_on()
        try:
            for job in self._running.values():
                if job.ended is not None and job.ended.status == "aborted" and not job.called_off:
                    # Others may go on with it at once.
                    job.ended = replace(job.ended, status="later", note=f"{self._host} was stopped", wait_s=0.0)
            self._report_ended()
            self._queue.unregister(self._host, self._worker_id)
        except BenchfarmError as error:
            self._say(str(error), level="error")

    def _live_on(self) -> None:
        """Report that this host lives yet: restoring phones may take longer than the others wait."""
        try:
            beat = self._queue.beat(self._host, self._worker_id, ails=self._ails)
        except StoreError as error:
            self._out_of_touch(error)
            return
        held = beat.held if beat.is_ours else frozenset()
        self._disown({serial for serial, job in self._running.items() if job.claimed.job_id not in held})


def _about(claimed: Claimed) -> dict[str, object]:
    """Return what identifies a job in logs: its number, its phone, and its campaign."""
    return {"job": claimed.job_id, "serial": claimed.serial, "campaign_id": claimed.campaign_id}
