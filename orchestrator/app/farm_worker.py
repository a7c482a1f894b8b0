"""A farm's worker: one process on each host, which does the queue's jobs on the phones of that host."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Final

from orchestrator import __version__
from orchestrator.app.access import Listening, access_of, address_of, require_packages
from orchestrator.app.farm_idle import IdlePhones
from orchestrator.app.farm_job import Shared, inputs_folder, run_job
from orchestrator.app.farm_payload import clean_inputs, contents_of
from orchestrator.app.farm_submitting import make_due, meant
from orchestrator.app.resuming import close_cancelled
from orchestrator.bootstrap import Attached, Farm, Settings
from orchestrator.config.farm_documents import dump, labels_of
from orchestrator.config.profiles import KeptInventory
from orchestrator.devices.discovery import KnownPhones
from orchestrator.devices.lease import own_boot
from orchestrator.errors import BenchfarmError, HostStorageError, StoreError, UsageError
from orchestrator.files import write_whole
from orchestrator.ports import Observer, Store
from orchestrator.queueing.contents import Contents
from orchestrator.queueing.newcomers import GONE_S, Newcomers
from orchestrator.queueing.queue import Announced, Claimed, FarmQueue
from orchestrator.queueing.schedule import Line
from orchestrator.queueing.submissions import IN_QUARANTINE
from orchestrator.queueing.worker import Callbacks, Ended, Look, Say, Worker
from orchestrator.records.identity import Serial
from orchestrator.report.escapes import one_line

#: At the most, to the queue, of all that a worker does beside its main work.
_CONNECTIONS: Final = 3
#: So often a worker looks at its queue when nothing else is said, and of the time of --dead-after at the most.
_LOOK_S: Final = 2.0
_LOOK_SHARE: Final = 0.25
#: So often a worker looks for what isn't a job, and so long it waits for the last look at its end.
_BESIDE_S: Final = 5.0
_END_S: Final = 10.0
#: So often copies that weren't used for long are taken away.
_CLEANED_S: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRequest:
    """How a worker of a host works."""

    #: Name of the host in the farm.
    host: str
    #: Seconds without a heartbeat after which a host counts as dead.
    dead_after_s: float
    #: Seconds between two polls of the queue; None: as often as usual, or as ``dead_after_s`` needs.
    look_s: float | None
    until_empty: bool
    #: Seconds between two checks of an idle phone; 0: none.
    idle_look_s: float
    #: Where numbers for Prometheus are served.
    metrics: Listening | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """What a worker did until it ended."""

    host: str
    #: How many of its jobs ended.
    jobs: int
    #: What was drained, so that it ended: ``farm`` or ``host:NAME``; empty for another end.
    drained: str


def work(settings: Settings, request: WorkerRequest, *, tell: Say, observer: Callable[[], Observer]) -> Worked:
    """Do the queue's jobs on this host's phones, and submit what schedules want.

    ``tell`` hears what the worker does, ``observer`` makes one that hears of a job's runs.

    Raises UsageError without PostgreSQL, for looks that would be too rare, for an address that needs a token, or when
    another worker has the name; StoreError, HostStorageError.
    """
    host = request.host
    every_s = _look_s(request.look_s, request.dead_after_s)
    with ExitStack() as stack:
        queue = stack.enter_context(FarmQueue(settings.store, connections=_CONNECTIONS))
        # Its own: whatever the jobs fetch meanwhile, this host is heard.
        own_queue = stack.enter_context(FarmQueue(settings.store, connections=1))

        def told(text: str, /, *, level: str = "info", **keys: object) -> None:
            tell(f"farm: {text}", level=level, **keys)

        # One for all: jobs with connections of their own, on fifty hosts, are more than a database takes.
        opened = stack.enter_context(Farm(settings))
        store, inventory = opened.store, KeptInventory(opened.inventory_file)
        if request.metrics is not None:
            stack.enter_context(_numbers_served(settings, store, request.metrics, told))
        contents = contents_of(settings, queue)

        asked = KnownPhones()
        shared = Shared(asked=asked, store=store, inventory=inventory, observer=observer)
        idle = IdlePhones(asked, every_s=request.idle_look_s, say=told)

        def run(claimed: Claimed, cancelled: threading.Event) -> Ended:
            ended = run_job(settings, contents, claimed, host, cancelled, shared)
            if ended.status != "succeeded":
                # It may have stopped answering, which its server doesn't notice.
                asked.forget(claimed.serial)
            return ended

        def look(known: Mapping[str, Announced], busy: Collection[str]) -> Look:
            return _look(settings, known, busy, shared, idle, Elsewhere(queue, host), told)

        def give_up(claimed: Claimed) -> None:
            _give_up(settings, store, claimed, callbacks.say)

        callbacks = Callbacks(run=run, look=look, give_up=give_up, say=told)
        newcomers = Newcomers(queue, partial(meant, store))
        worker = Worker(
            own_queue,
            callbacks,
            host=host,
            benchfarm_version=__version__,
            dead_after_s=request.dead_after_s,
            look_s=every_s,
            newcomers=newcomers,
            host_id=host_id(settings.state_folder),
        )
        due = partial(make_due, settings, queue, store, host=host, inventory=inventory)
        stack.enter_context(looked_for("phones that come", newcomers.look, callbacks.say))
        stack.enter_context(looked_for("schedules", due, callbacks.say))
        cleaned = partial(_clean_copies, settings, contents)
        stack.enter_context(looked_for("old copies of files stay", cleaned, callbacks.say, every_s=_CLEANED_S))
        done = worker.run(until_empty=request.until_empty)
    return Worked(host=host, jobs=done, drained=worker.drained)


def _look_s(wanted: float | None, dead_after_s: float) -> float:
    """Return how often a worker looks; raises UsageError for what would let it be taken for dead."""
    most = dead_after_s * _LOOK_SHARE
    if wanted is not None and wanted > most:
        raise UsageError(
            f"a host heard every {wanted:g} s is soon taken for dead when {dead_after_s:g} s of silence do that",
            hint=f"--every {most:g} at most, or a longer --dead-after",
        )
    return wanted or min(_LOOK_S, most)


@contextmanager
def _numbers_served(settings: Settings, store: Store, listening: Listening, say: Say) -> Iterator[None]:
    """Serve ``/metrics`` of this host while the context lasts."""
    require_packages("benchfarm farm worker --metrics-port")
    from orchestrator.app.gauges import Numbers
    from orchestrator.serve import app as web
    from orchestrator.serve.metrics import page

    listening = replace(listening, port_option="--metrics-port", takes_token=False)
    access = access_of(settings, listening)
    where = listening.host, listening.port
    with Farm(settings, store=store) as farm, web.listen(*where, option=listening.port_option) as opened:
        numbers = Numbers(farm, None, is_of_host=True)
        app = web.make_app(web.NoPages(), access=access, more={"metrics": lambda: page(numbers.families())})
        with web.answering(app, opened):
            say(f"numbers for Prometheus: {address_of(opened)}/metrics")
            yield


def _give_up(settings: Settings, store: Store, claimed: Claimed, say: Say) -> None:
    """Close the campaign of a job that was cancelled; it can be closed later too."""
    try:
        campaign_id = claimed.read().campaign_id
        with Farm(settings, store=store) as farm:
            close_cancelled(farm, [campaign_id])
    except BenchfarmError as error:
        text = f"job {claimed.job_id}: its campaign stays open, 'benchfarm results close' ends it: {error}"
        say(one_line(text), level="error", job=claimed.job_id, serial=claimed.serial)


def _clean_copies(settings: Settings, contents: Contents) -> Sequence[str]:
    contents.clean_copies()
    clean_inputs(inputs_folder(settings))
    return ()


class Elsewhere:
    """What other hosts do with phones, as it is at one look; asked for when it is needed."""

    def __init__(self, queue: FarmQueue, host: str) -> None:
        self._queue = queue
        self._host = host

    def usable(self) -> Collection[str]:
        """Return the phones that another host can use; raises StoreError."""
        rows = [row for row in self._queue.phones() if row["host"] != self._host and row["silent_s"] <= GONE_S]
        return {row["serial"] for row in rows if not row["unusable"]}

    def releases(self) -> Collection[str]:
        """Return this host's phones that somebody wants to be released from quarantine, each once."""
        try:
            return self._queue.take_releases(self._host)
        except StoreError:
            return ()

    def busy(self, serials: Collection[str]) -> Collection[str]:
        """Return those of these phones that another host may be measuring: all of them when nobody can say."""
        return self._busy & set(serials) if self._busy is not None else set(serials)

    @cached_property
    def _busy(self) -> frozenset[str] | None:
        try:
            return self._queue.busy_elsewhere(self._host)
        except StoreError:
            return None


def _look(
    settings: Settings,
    known: Mapping[str, Announced],
    busy: Collection[str],
    shared: Shared,
    idle: IdlePhones,
    others: Elsewhere,
    say: Say,
) -> Look:
    """Return this host's phones by serial number; facts are probed when a phone comes, and when it comes back.

    Of ``busy`` ones, and of those that others measure, nothing is probed: it would be measured with what they do.
    A fault of devices.yaml is told too; meanwhile what it said before counts.
    """
    try:
        with Farm(settings, known=shared.asked, inventory=shared.inventory) as farm:

            def in_use(serial: str) -> bool:
                return serial in busy or bool(farm.lease.live_holder(Serial(serial)) or others.busy([serial]))

            idle.have_asked(known, in_use=in_use)
            for serial in others.releases():
                if reason := farm.quarantine.release(Serial(serial)):
                    say(one_line(f"{serial} is released from quarantine, as somebody asked for: {reason}"))
            found: dict[str, Announced] = {}
            phones = farm.attached()
            for attached in phones:
                # One that never said who it is goes by its server's name for it, which over USB is its serial number.
                serial = attached.seen.serial or attached.seen.address
                phone = _announced(farm, attached, Serial(serial), known.get(serial), busy, others, say)
                if not (serial in found and phone.unusable):
                    found[serial] = phone
            away = idle.wake(
                phones,
                used=lambda: {*busy, *farm.lease.live_holders(), *others.busy([*known])},
                elsewhere=others.usable,
                cycle_port=farm.rescuer.cycle_port,
            )
            # Also when its server lists it no more: it mustn't look as if somebody had unplugged it.
            found |= {
                serial: replace(known[serial], unusable=reason) for serial, reason in away.items() if serial in known
            }
            # Read also for a host without phones.
            ails = _fault_told(shared.inventory) if farm.inventory is not None else ""
            return Look(phones=found, ails=ails)
    except BenchfarmError as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - the next look may go better
        reason = f"{type(error).__name__}: {error}"
    return Look(phones=None, ails=one_line(f"its phones can't be looked at: {reason}"))


def _fault_told(inventory: KeptInventory | None) -> str:
    fault = inventory.fault if inventory is not None else ""
    return one_line(f"what devices.yaml said before stays in force: {fault}") if fault else ""


def _announced(
    farm: Farm,
    attached: Attached,
    serial: Serial,
    known: Announced | None,
    busy: Collection[str],
    others: Elsewhere,
    say: Say,
) -> Announced:
    """Return what is told of a phone; one of which nothing is known can't be used, for a reason."""
    unusable = "" if attached.seen.usable else attached.seen.reason
    if not unusable and (kept_out := farm.quarantine.reason(serial)):
        unusable = f"{IN_QUARANTINE}{kept_out}"
    is_back = known is None or bool(known.unusable)
    facts = known.facts if known is not None else ""
    if is_back and not unusable and serial not in busy:
        user = farm.lease.live_holder(serial) or ("another host" if others.busy([serial]) else "")
        if not user:
            try:
                facts = dump(farm.open_phone(attached)[1])
            except BenchfarmError as error:
                # One phone that doesn't answer mustn't hide the others.
                unusable = one_line(str(error))
                if known is None or known.unusable != unusable:
                    say(one_line(f"{serial} can't be looked at: {error}"), level="error", serial=serial)
        elif not facts:
            unusable = f"in use by {user}"
    return Announced(facts=facts, unusable=unusable, labels=_labels(farm, serial))


def _labels(farm: Farm, serial: Serial) -> str:
    labels = farm.inventory.get(serial)
    return json.dumps(labels_of(labels)) if labels is not None else ""


def host_id(state_folder: Path) -> str:
    """Return what no other computer has, the same one until this one is restarted; raises HostStorageError."""
    kept = state_folder / "farm-host"
    try:
        if not kept.exists():
            write_whole(kept, secrets.token_hex(16))
        own = kept.read_text("utf-8")
    except OSError as error:
        raise HostStorageError(f"{error.filename or kept}: {error.strerror}") from error
    # Computers that are copies of each other differ by it.
    return f"{own} {own_boot()}".strip()


@contextmanager
def looked_for(
    what: str, look: Callable[[], Sequence[str | Line]], say: Say, *, every_s: float = _BESIDE_S
) -> Iterator[None]:
    """Look again and again while the context lasts, in a thread of its own: a slow database holds up no heartbeat.

    ``look`` returns lines for people; what it raises is a line too, after ``what``. What was said by the look before
    isn't said again.
    """
    stopped = threading.Event()

    def looks() -> None:
        said: Sequence[Line] = ()
        while not stopped.is_set():
            try:
                lines = [item if isinstance(item, Line) else Line(item) for item in look()]
            except BenchfarmError as error:
                lines = [Line(f"{what}: {error}", level="error")]
            except Exception as error:  # noqa: BLE001 - the next look may go better
                lines = [Line(f"{what}: {type(error).__name__}: {error}", level="error")]
            for line in lines:
                if line not in said:
                    say(one_line(line.text), level=line.level, schedule=line.schedule)
            said = lines
            stopped.wait(every_s)

    thread = threading.Thread(target=looks, name=what, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(timeout=_END_S)
