"""A farm's worker: one process on each host, which does the queue's jobs on the phones of that host."""

from __future__ import annotations

import shlex
import socket
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from orchestrator import __version__
from orchestrator.app import time_limits
from orchestrator.app.access import Listening, access_of, address_of
from orchestrator.app.beginning import begin, identify, named_paths, prepare
from orchestrator.app.farm_host import HostPhones
from orchestrator.app.farm_payload import Unpacked, contents_of, unpack
from orchestrator.app.farm_phones import meant
from orchestrator.app.measuring import open_cases, reopen, run_campaign
from orchestrator.app.options import opt
from orchestrator.app.resuming import close_cancelled
from orchestrator.bootstrap import Farm, Settings
from orchestrator.config.declared_programs import lent
from orchestrator.config.farm_documents import read_facts, read_manifest
from orchestrator.config.profiles import KeptInventory
from orchestrator.devices.discovery import KnownPhones
from orchestrator.devices.lease import own_boot
from orchestrator.errors import (
    ArtifactError,
    BenchfarmError,
    DeviceChangedError,
    DeviceError,
    HostStorageError,
    InterruptedByUserError,
    NewerPlanError,
    ProgramInUseError,
    StoreError,
    UsageError,
)
from orchestrator.extras import require_packages
from orchestrator.ports import Device, Observer
from orchestrator.queueing.contents import Contents
from orchestrator.queueing.newcomers import Newcomers
from orchestrator.queueing.queue import Claimed, FarmQueue
from orchestrator.queueing.worker import Callbacks, Ended, Say, Worker
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import DeviceSelection
from orchestrator.tables.escapes import one_line

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: Connections to the queue, at most, of all that a worker does beside its main work.
_CONNECTIONS: Final = 3
#: Seconds between two polls of the queue by default, and their share of --dead-after at most.
_POLL_S: Final = 2.0
_POLL_SHARE: Final = 0.25
#: Seconds between two checks of what isn't a job, and how long the end waits for the last one.
_BESIDE_S: Final = 5.0
_END_S: Final = 10.0
#: How often copies that weren't used for long are deleted.
_CLEANED_S: Final = 24 * 3600.0
#: What another try, here or on another host, may mend.
_PASSING: Final = (DeviceError, StoreError, HostStorageError, ArtifactError)
#: Seconds until a job is tried again that needs a newer benchfarm, or a program that another job declares otherwise.
_UPDATED_S: Final = 600.0
_IN_USE_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRequest:
    """How a worker of a host works."""

    name: Annotated[str, opt("--name", "Name of this host in the farm (default: its network name).")] = ""
    dead_after_s: Annotated[
        float, opt("--dead-after", "Seconds without a heartbeat after which a host counts as dead.", min=2)
    ] = 30.0
    look_s: Annotated[
        float | None,
        opt("--every", "Seconds between two polls of the queue (default: 2, or --dead-after / 4).", min=0.1),
    ] = None
    until_empty: Annotated[bool, opt("--until-empty", "Exit when no job waits for this host.")] = False
    idle_look_s: Annotated[
        float, opt("--idle-every", "Seconds between two checks of an idle phone. 0: no checks.", min=0)
    ] = 180.0
    metrics_port: Annotated[
        int | None, opt("--metrics-port", "Port for Prometheus metrics of this host.", min=0, max=65535)
    ] = None
    metrics_host: Annotated[
        str, opt("--metrics-host", "Address for them. Any other than this computer's own requires a token.")
    ] = "127.0.0.1"
    token_file: Annotated[Path | None, opt("--token-file", "File with the token for them ($BENCHFARM_TOKEN).")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """What a worker did until it ended."""

    host: str
    #: How many of its jobs ended.
    jobs: int
    #: What was drained, so that it ended: ``farm`` or ``host:NAME``; empty for another end.
    drained: str


def work(settings: Settings, request: WorkerRequest, *, tell: Say, observer: Callable[[], Observer]) -> Worked:
    """Do the queue's jobs on this host's phones.

    ``tell`` hears what the worker does, ``observer`` makes one that hears of a job's runs.

    Raises UsageError without PostgreSQL, for polls that would be too rare, for an address that needs a token, or when
    another worker has the name; StoreError, HostStorageError.
    """
    host, most_s = request.name or socket.gethostname(), request.dead_after_s * _POLL_SHARE
    if request.look_s is not None and request.look_s > most_s:
        raise UsageError(
            f"a host heard every {request.look_s:g} s is soon taken for dead when {request.dead_after_s:g} s of silence"
            " do that",
            hint=f"--every {most_s:g} at most, or a longer --dead-after",
        )
    with ExitStack() as stack:
        queue = stack.enter_context(FarmQueue(settings.store, connections=_CONNECTIONS))
        # Its own: whatever the jobs fetch meanwhile, this host is heard.
        own_queue = stack.enter_context(FarmQueue(settings.store, connections=1))

        def say(text: str, /, *, level: str = "info", **keys: object) -> None:
            tell(f"farm: {text}", level=level, host=host, **keys)

        # One store for all: jobs with connections of their own, on fifty hosts, are more than a database takes.
        opened = stack.enter_context(Farm(settings))
        store, inventory, asked = opened.store, KeptInventory(opened.inventory_file), KnownPhones()
        if request.metrics_port is not None:
            where = Listening(host=request.metrics_host, port=request.metrics_port, token_file=request.token_file)
            stack.enter_context(_numbers_served(settings, store, where, say))
        contents = contents_of(settings, queue)

        def open_farm(hears: Observer | None = None) -> Farm:
            return Farm(settings, known=asked, store=store, inventory=inventory, observer=hears)

        def run(claimed: Claimed, cancelled: threading.Event) -> Ended:
            ended = run_job(lambda: open_farm(observer()), contents, claimed, host, cancelled)
            if ended.status != "succeeded":
                # It may have stopped answering, which its server doesn't notice.
                asked.forget(claimed.serial)
            return ended

        def abandon(claimed: Claimed) -> None:
            """Close the campaign of a job that was cancelled; it can be closed later too."""
            try:
                with open_farm() as farm:
                    close_cancelled(farm, [claimed.campaign_id])
            except BenchfarmError as error:
                text = f"job {claimed.job_id}: its campaign stays open, 'benchfarm results close' ends it: {error}"
                say(one_line(text), level="error", job=claimed.job_id, serial=claimed.serial)

        phones = HostPhones(
            open_farm, queue, host, asked=asked, idle_look_s=request.idle_look_s, inventory=inventory, say=say
        )
        newcomers = Newcomers(queue, partial(meant, store))
        worker = Worker(
            own_queue,
            Callbacks(run=run, look=phones.look, give_up=abandon, say=say),
            host=host,
            benchfarm_version=__version__,
            dead_after_s=request.dead_after_s,
            look_s=request.look_s or min(_POLL_S, most_s),
            newcomers=newcomers,
            # The same one until this computer is restarted, and no other computer's.
            host_id=own_boot() or str(uuid.getnode()),
        )

        def clean_copies() -> Sequence[str]:
            contents.clean_copies()
            return ()

        stack.enter_context(repeated("phones that come", newcomers.look, say))
        stack.enter_context(repeated("old copies of files stay", clean_copies, say, every_s=_CLEANED_S))
        done = worker.run(until_empty=request.until_empty)
    return Worked(host=host, jobs=done, drained=worker.drained)


@contextmanager
def _numbers_served(settings: Settings, store: Store, listening: Listening, say: Say) -> Iterator[None]:
    """Serve ``/metrics`` of this host while the context lasts."""
    require_packages("--metrics-port", "prometheus_client")
    from orchestrator.app.gauges import Numbers
    from orchestrator.serve import app as web

    access = access_of(settings, listening)
    with Farm(settings, store=store) as farm, web.listen(listening.host, listening.port) as opened:
        numbers = Numbers(farm, None, is_of_host=True)
        app = web.make_app(lambda path: numbers.page() if path == "metrics" else None, access=access)
        with web.answering(app, opened):
            say(f"numbers for Prometheus: {address_of(opened)}/metrics")
            yield


@contextmanager
def repeated(what: str, check: Callable[[], Sequence[str]], say: Say, *, every_s: float = _BESIDE_S) -> Iterator[None]:
    """Check something again and again while the context lasts, in a thread: a slow database holds up no heartbeat.

    ``check`` returns lines for people; what it raises is a line too, after ``what``. What the check before returned
    isn't said again.
    """
    stopped = threading.Event()

    def checks() -> None:
        said: Sequence[tuple[str, str]] = ()
        while not stopped.is_set():
            try:
                lines = [(line, "info") for line in check()]
            except BenchfarmError as error:
                lines = [(f"{what}: {error}", "error")]
            except Exception as error:  # noqa: BLE001 - the next check may go better
                lines = [(f"{what}: {type(error).__name__}: {error}", "error")]
            for line in lines:
                if line not in said:
                    say(one_line(line[0]), level=line[1])
            said = lines
            stopped.wait(every_s)

    thread = threading.Thread(target=checks, name=what, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(timeout=_END_S)


def run_job(
    open_farm: Callable[[], Farm], contents: Contents, claimed: Claimed, host: str, cancelled: threading.Event
) -> Ended:
    """Do what is open of a job; raises nothing. A phone that this host couldn't restore is named in the note."""
    ended = _run_job(open_farm, contents, claimed, host, cancelled)
    if ended.status == "succeeded":
        return ended
    try:
        with open_farm() as farm, farm.lease.acquire(claimed.serial):
            # By this host's journal: the phone may be out of reach.
            is_changed = claimed.serial in farm.conditioner.unrestored()
    except (BenchfarmError, OSError):
        # Whoever uses it now restores it.
        return ended
    text = f"{ended.note}; its phone isn't restored: benchfarm device restore {shlex.quote(claimed.serial)}"
    return replace(ended, note=one_line(text)) if is_changed else ended


def _run_job(
    open_farm: Callable[[], Farm], contents: Contents, claimed: Claimed, host: str, cancelled: threading.Event
) -> Ended:
    try:
        manifest = read_manifest(claimed.document)
        facts = read_facts(claimed.facts)
        payload = manifest.payload_for(facts)
        with open_farm() as farm, tempfile.TemporaryDirectory(prefix="benchfarm-inputs-") as folder:
            farm.cancelled = cancelled
            # First, for a model's ending may be one that only its program's file tells of.
            with lent([contents.fetch(item.sha256, item.name) for item in payload.programs]):
                unpacked = unpack(farm, contents, manifest.plan, payload, Path(folder))
                return _measure(farm, claimed, facts, unpacked, host)
    except InterruptedByUserError:
        return Ended(status="aborted", note="stopped")
    except _PASSING as error:
        return Ended(status="again", note=_noted(error), is_phone=isinstance(error, DeviceError))
    except ProgramInUseError as error:
        return Ended(status="later", note=_noted(error), wait_s=_IN_USE_S)
    except NewerPlanError as error:
        return Ended(status="later", note=_noted(error), wait_s=_UPDATED_S)
    except BenchfarmError as error:
        return Ended(status="failed", note=_noted(error))
    except Exception as error:  # noqa: BLE001 - one job's fault mustn't end the host's others
        return Ended(status="again", note=one_line(f"{type(error).__name__}: {error}"))


def _noted(error: BenchfarmError) -> str:
    return one_line(f"{error} ({error.hint})" if error.hint else str(error))


def _measure(farm: Farm, job: Claimed, meant: DeviceFacts, unpacked: Unpacked, host: str) -> Ended:
    """Begin or resume a job's campaign; ``meant`` are the facts of the phone that it is for."""
    stored = farm.store.campaign(job.campaign_id)
    plan = replace(unpacked.plan, devices=DeviceSelection(serials=(job.serial,)))
    models = identify(plan)
    devices = farm.open_devices(plan.devices).devices
    _check_same(devices[0][1], meant)
    beginning = prepare(farm, plan, devices, models, unpacked.named, reference=unpacked.reference)
    if stored is None:
        stored = begin(farm, plan, devices, beginning, unpacked.named, campaign_id=job.campaign_id, host=host)
    # The campaign may have begun on another host, where the same contents lie elsewhere.
    files = {**stored.terms.files, **beginning.files, **named_paths(unpacked.named)}
    inputs = str(plan.parity_inputs) if plan.parity_inputs is not None else ""
    ended = _run(farm, replace(stored, terms=replace(stored.terms, files=files, parity_inputs=inputs)))
    return _restored(farm, devices[0][0], ended) if ended.status == "succeeded" else ended


def _check_same(facts: DeviceFacts, wanted: DeviceFacts) -> None:
    """Raise DeviceChangedError for a phone that isn't the one that was meant: serial numbers repeat.

    Its system image may be another one: phones are updated.
    """
    if (facts.manufacturer, facts.model, facts.codename) != (wanted.manufacturer, wanted.model, wanted.codename):
        raise DeviceChangedError(
            f"the phone {facts.serial} here is a {facts.title}, the job is for a {wanted.title} of that serial number"
        )


def _restored(farm: Farm, device: Device, ended: Ended) -> Ended:
    """Return how a job ended whose results are stored: it isn't over as long as its phone isn't as it was before.

    An earlier delivery may have died, or had no disk for its journal, between the last result and that.
    """
    try:
        if farm.conditioner.pending(device):
            with farm.lease.acquire(device.serial):
                farm.conditioner.restore(device)
    except _PASSING as error:
        return Ended(status="again", note=f"{ended.note}; the phone isn't restored yet: {_noted(error)}")
    return ended


def _run(farm: Farm, campaign: Campaign) -> Ended:
    cases = open_cases(farm, campaign)
    if not cases:
        farm.store.set_status(campaign.campaign_id, CampaignStatus.FINISHED, farm.clock.now())
        if not campaign.invocations:
            return Ended(status="succeeded", note="there was no time for any of its cases")
        return _done(farm.store, campaign, "everything was stored already")
    result = run_campaign(farm, reopen(farm, campaign, cases))
    if result.fault is not None:
        raise result.fault
    if result.left:
        reasons = "; ".join(result.lost.values()) or "the phone gave up"
        note = one_line(f"{result.stored} stored, {result.left} left: {reasons}")
        return Ended(status="again", note=note, is_phone=True)
    return _done(farm.store, campaign, f"{result.stored} stored")


def _done(store: Store, campaign: Campaign, note: str) -> Ended:
    """Return how a job ended that did all it could, with what its campaign has no results of."""
    given = store.yields([campaign.campaign_id]).get(campaign.campaign_id)
    cut = time_limits.told(time_limits.stored_left_out(store, [campaign.campaign_id]).get(campaign.campaign_id, []))
    lacking = [text for text in (given.text if given is not None else "", cut) if text]
    return Ended(status="succeeded", note="; ".join([note, *lacking]))
