"""The devices' turns in a campaign: each in a thread, under its lease, rescued when it is lost, restored at the end."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from orchestrator.clock import Deadline
from orchestrator.engine.events import DeviceFinished, DeviceNote
from orchestrator.engine.workload import Services
from orchestrator.errors import (
    AdbUnavailableError,
    BenchfarmError,
    DeviceBusyError,
    DeviceChangedError,
    DeviceError,
    DeviceSetAsideError,
    DeviceUnauthorizedError,
    DeviceUnfitError,
    HostStorageError,
    InterruptedByUserError,
    NoDeviceError,
    StoreError,
)
from orchestrator.ports import Device
from orchestrator.records.device import DeviceKind
from orchestrator.records.identity import Serial

if TYPE_CHECKING:
    from orchestrator.devices.books import QuarantineFolder
    from orchestrator.devices.lease import FileLease
    from orchestrator.devices.recovery import LadderRescuer
    from orchestrator.engine.campaign import DevicePool
    from orchestrator.engine.device_queue import DeviceQueue

#: After this many returns with nothing measured in between, a device is kept out.
RETURNS_MAX: Final = 3
#: How often restoring a device is tried when its connection fails, each time after this long to answer again: a phone
#: that is gone must not hold the others' end.
_RESTORES_MAX: Final = 3
_RESTORE_READY_S: Final = 20.0
#: How long a device that somebody else uses is waited for: a look at it takes a moment.
_LEASE_WAIT_S: Final = 5.0
#: How long a device that didn't become fit is left alone.
_UNFIT_PAUSE_S: Final = 300.0
#: How often a waiting thread checks whether all was cancelled; also lets the interpreter handle signals.
_POLL_S: Final = 0.5
#: Pauses between the searches for a spare device, each twice the one before.
_SHORTEST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 10.0

#: Nothing could be kept of any device, or nobody wants it any more.
_ENDS_ALL: Final = (StoreError, HostStorageError, InterruptedByUserError)


class Turns:
    """Gives every device its turn, all at once."""

    def __init__(
        self,
        services: Services,
        lease: FileLease,
        *,
        rescuer: LadderRescuer | None = None,
        quarantine: QuarantineFolder | None = None,
        unfit_pause_s: float = _UNFIT_PAUSE_S,
    ) -> None:
        """Without a rescuer, a device that is lost is abandoned at once."""
        self._services = services
        self._cancelled = services.cancelled
        self._lease = lease
        self._rescuer = rescuer
        self._quarantine = quarantine
        self._unfit_pause_s = unfit_pause_s
        #: Lost devices, with the spare ones that take their places.
        self._replaced: dict[Serial, Serial] = {}
        #: Held during a search: a lost device's own thread and that of a spare one that can't begin may both ask.
        self._replacing = threading.RLock()
        #: Devices that work, or are about to; one that is waited for isn't among them. Notified when one ends.
        self._working: set[Serial] = set()
        self._work = threading.Condition()
        #: Errors that no device is to blame for, and that ended the part of one all the same.
        self._faults: list[Exception] = []

    def run(self, devices: Sequence[Device], pool: DevicePool) -> Sequence[Exception]:
        """Do the work of the devices that a campaign begins with, and of those that come or take a lost one's place.

        Returns the errors that are no device's and ended the part of one; ``pool.lost`` gets the devices that were
        abandoned. Raises the first of any: StoreError, HostStorageError, InterruptedByUserError, KeyboardInterrupt.
        """
        self._pool = pool
        # This computer drives the phones: measured at the same time, its figures would be adb's.
        for is_host in (False, True):
            now = [device for device in devices if (device.kind is DeviceKind.HOST) is is_host]
            self._working = {device.serial for device in now}
            self._run_threads(now, may_join=not is_host)
        return self._faults

    def _run_threads(self, devices: Sequence[Device], *, may_join: bool) -> None:
        """Give each device its turn in a thread, also those that come meanwhile, and wait for all.

        A turn that raises cancels the others, which end at their next step; the first error is raised when all have
        ended. So is Ctrl-C: however often it is pressed, the devices are restored first.
        """
        errors: list[BaseException] = []
        running: list[threading.Event] = []
        interrupt: KeyboardInterrupt | None = None
        waiting = [(device, False) for device in devices]
        # Not by Thread.join: interrupted by a signal, Python 3.11's join takes a thread that still runs for ended.
        while True:
            try:
                while waiting and interrupt is None:
                    running.append(self._start(*waiting.pop(0), errors))
                still = next((ended for ended in running if not ended.is_set()), None)
                if still is not None:
                    still.wait(_POLL_S)
                # Asked after the last one's end, too: it may have left something to others.
                if may_join and not self._cancelled.is_set():
                    try:
                        waiting += [(device, True) for device in self._pool.newcomers()]
                    except Exception as error:  # noqa: BLE001 - what runs restores its devices first
                        errors.append(error)
                        self._cancelled.set()
                if still is None and (not waiting or interrupt is not None):
                    break
            except KeyboardInterrupt as error:
                interrupt = error
                self._cancelled.set()
        if interrupt is not None:
            raise interrupt
        if errors:
            raise errors[0]

    def _start(self, device: Device, is_new: bool, errors: list[BaseException]) -> threading.Event:
        ended = threading.Event()
        self._is_working(device.serial, True)

        def guarded() -> None:
            try:
                self._turn(device, is_new=is_new)
            except BaseException as error:  # noqa: BLE001 - carried to the calling thread
                errors.append(error)
                self._cancelled.set()
            finally:
                ended.set()

        threading.Thread(target=guarded, name=str(device.serial), daemon=True).start()
        return ended

    def _turn(self, device: Device, *, is_new: bool) -> None:
        reason, is_in, places = "", not is_new, list[Serial]()
        works: list[DeviceQueue] = []
        try:
            with self._lease.acquire(device.serial, wait_s=_LEASE_WAIT_S):
                is_in = True
                try:
                    self._until_done(device, works)
                finally:
                    self._restore(device)
        except _ENDS_ALL:
            raise
        except Exception as error:  # noqa: BLE001 - the others go on; a fault of ours is returned at the end
            reason = self._reason(device, error)
            if is_in:
                self._pool.lost[device.serial] = reason
                places = [device.serial]
            else:
                self._note(device, f"doesn't join: {reason}")
                # A lost device that isn't abandoned yet looks for another one itself.
                places = [serial for serial in self._give_back(device.serial) if serial in self._pool.lost]
            # While this one still counts as working, so that those who wait for others don't stop in between.
            places = [serial for serial in places if not self._is_replaced(serial)]
            # One that is busy, unfit or away may do tomorrow. One whose reference workload moved measures something
            # else than before.
            if is_in and isinstance(error, DeviceSetAsideError):
                self._keep_out(device, _text(device, error))
        finally:
            self._is_working(device.serial, False)
            if is_in:
                self._tell_finished(device, works, reason)
        # One that is in use now may be free later.
        pause_s = _SHORTEST_PAUSE_S
        while places and self._pool.has_spares and self._others_work(pause_s):
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)
            places = [serial for serial in places if not self._is_replaced(serial)]

    def _tell_finished(self, device: Device, works: Sequence[DeviceQueue], reason: str) -> None:
        try:
            left = (works[-1] if works else self._pool.begin(device)).left()
        except _ENDS_ALL:
            raise
        except Exception as error:  # noqa: BLE001 - a fault there is one device's, too
            self._reason(device, error)
        else:
            self._services.observer.on_event(DeviceFinished(serial=device.serial, left=left, reason=reason))

    def _reason(self, device: Device, error: Exception) -> str:
        """Return why a device's part has ended; an error that isn't the device's is reported and kept until the end."""
        if isinstance(error, DeviceError):
            return _text(device, error)
        is_ours = not isinstance(error, BenchfarmError)
        reason = f"a fault in benchfarm itself: {type(error).__name__}: {error}" if is_ours else str(error)
        self._faults.append(error)
        self._note(device, f"is abandoned: {reason}", is_problem=True)
        return reason

    def _until_done(self, device: Device, works: list[DeviceQueue]) -> None:
        """Work until nothing is open; a device that was lost and comes back resumes where it was."""
        fruitless, done_before = 0, -1
        while True:
            # Read under the lease: nobody else adds to it now.
            work = self._pool.begin(device)
            works[:] = [work]
            try:
                work.run()
            except DeviceUnfitError as error:
                if not self._is_asked_again(device, error):
                    raise
            except DeviceError as error:
                done = work.done()
                fruitless = fruitless + 1 if done == done_before else 0
                done_before = done
                if fruitless >= RETURNS_MAX:
                    text = f"it was lost {fruitless + 1} times with nothing measured in between: {error}"
                    self._keep_out(device, text)
                    raise
                if not _may_return(error) or not self._is_back(device, error):
                    raise
            else:
                return

    def _is_back(self, device: Device, error: DeviceError) -> bool:
        """Wait for a device that was lost as long as others work: it costs nothing then."""
        if self._rescuer is None or self._cancelled.is_set():
            return False
        text = f"lost: {_text(device, error)}; what it left waits for its return"
        self._note(device, text, is_problem=True, is_away=True)
        self._is_working(device.serial, False)
        is_back = self._rescuer.rescue(
            device,
            keep_waiting=lambda: not self._is_replaced(device.serial) and bool(self._working),
            may_reboot=self._pool.campaign.terms.may_reboot,
            on_note=lambda text: self._note(device, text),
            cancelled=self._cancelled,
        )
        if is_back:
            self._is_working(device.serial, True)
            self._note(device, "is back", is_away=False)
        return is_back

    def _is_asked_again(self, device: Device, error: DeviceUnfitError) -> bool:
        """Leave a device that isn't fit alone for a while, restored as it was; False when no other works any more."""
        self._is_working(device.serial, False)
        if not self._others_work(0.0):
            return False
        self._note(
            device, f"{_text(device, error)}; it is asked again while others work", is_problem=True, is_away=True
        )
        self._restore(device)
        deadline, pause_s = Deadline(self._unfit_pause_s), _SHORTEST_PAUSE_S
        while not deadline.expired:
            if self._is_replaced(device.serial) or not self._others_work(min(pause_s, deadline.remaining_s)):
                return False
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)
        self._is_working(device.serial, True)
        self._note(device, "is asked again", is_away=False)
        return True

    def _others_work(self, within_s: float) -> bool:
        """Wait this long; False as soon as no device works any more or all is cancelled."""
        deadline = Deadline(within_s)
        with self._work:
            while self._working and not self._cancelled.is_set():
                if deadline.expired:
                    return True
                self._work.wait(min(_POLL_S, deadline.remaining_s))
        return False

    def _is_replaced(self, serial: Serial) -> bool:
        with self._replacing:
            if serial not in self._replaced and (spare := self._pool.replace_lost(serial, self._is_free)) is not None:
                self._replaced[serial] = spare
            return serial in self._replaced

    def _give_back(self, spare: Serial) -> list[Serial]:
        """Return the lost devices whose places a spare one took that couldn't begin: they have none any more."""
        with self._replacing:
            places = [serial for serial, chosen in self._replaced.items() if chosen == spare]
            for serial in places:
                del self._replaced[serial]
            return places

    def _is_free(self, serial: Serial) -> bool:
        try:
            with self._lease.acquire(serial):
                return True
        except BenchfarmError:
            return False

    def _is_working(self, serial: Serial, is_so: bool) -> None:
        with self._work:
            if is_so:
                self._working.add(serial)
            else:
                self._working.discard(serial)
                self._work.notify_all()

    def _keep_out(self, device: Device, reason: str) -> None:
        if self._quarantine is not None:
            self._quarantine.put(device.serial, reason)
            text = f"is in quarantine; 'benchfarm device release {device.serial}' ends it"
            self._note(device, text, is_problem=True)

    def _restore(self, device: Device) -> None:
        """Undo what was changed; what can't be undone now stays in the journal and is named."""
        for attempt in range(1, _RESTORES_MAX + 1):
            try:
                if attempt > 1:
                    device.wait_until_ready(timeout_s=_RESTORE_READY_S)
                self._services.conditioner.restore(
                    device, on_note=lambda text: self._note(device, text, is_problem=True)
                )
            except BenchfarmError as error:
                if attempt < _RESTORES_MAX and isinstance(error, DeviceError) and _may_return(error):
                    continue
                if device.serial in self._services.conditioner.unrestored():
                    text = f"could not be restored ({error}); 'benchfarm device restore {device.serial}' tries again"
                    self._note(device, text, is_problem=True)
                elif not isinstance(error, DeviceBusyError):
                    # Nothing of ours is changed there; the next command that uses the phone ends what still runs.
                    text = f"could not be released ({error}); its note there expires by itself"
                    self._note(device, text, is_problem=True)
            return

    def _note(self, device: Device, text: str, *, is_problem: bool = False, is_away: bool | None = None) -> None:
        self._services.observer.on_event(
            DeviceNote(serial=device.serial, text=text, is_problem=is_problem, is_away=is_away)
        )


def _text(device: Device, error: DeviceError) -> str:
    return str(error).removeprefix(f"{device.serial}: ")


def _may_return(error: DeviceError) -> bool:
    """Whether waiting may help: the connection to the device is lost, or another one is in its place."""
    if isinstance(error, DeviceBusyError):
        return False
    return error.transient or isinstance(
        error, DeviceChangedError | DeviceUnauthorizedError | AdbUnavailableError | NoDeviceError
    )
