"""The devices' turns in a campaign: each under its lease, got back when it was lost, restored at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, MutableMapping, Sequence
from typing import Final, Protocol

from orchestrator.clock import Deadline
from orchestrator.engine.events import DeviceFinished, DeviceNote
from orchestrator.engine.threads import ThreadExecutor
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
from orchestrator.ports import Device, Lease, Quarantine, Rescuer
from orchestrator.records.device import DeviceKind
from orchestrator.records.identity import Serial


def quarantine_reason(error: DeviceError) -> str:
    """Return why a device that ended so is kept out; empty when it may simply be tried again.

    A device that is busy, unfit or away says nothing about its next night. One whose reference workload moved and
    didn't come back measures something else than before.
    """
    return str(error).removeprefix(f"{error.serial}: ") if isinstance(error, DeviceSetAsideError) else ""


#: After so many returns with nothing measured in between, a device is kept out.
RETURNS_MAX: Final = 3
#: So often a device is restored when the way to it fails meanwhile.
RESTORES_MAX: Final = 3
#: ... after it has had so long to answer again: a phone that is gone mustn't hold the others' end.
_RESTORE_READY_S: Final = 20.0
#: A device that somebody else uses is waited for so long: a look at it takes a moment.
_LEASE_WAIT_S: Final = 5.0
#: One that didn't become fit is left alone for so long before it is asked again.
_UNFIT_PAUSE_S: Final = 300.0
#: How often one that waits for others looks whether all was cancelled.
_LOOK_S: Final = 0.5
#: After so long another device is asked for again in the place of a lost one; each time later, up to the longest.
_SHORTEST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 10.0


#: Has another device measure what a lost one was to and returns it, None for none now; only one that is free by the
#: second argument. Asked again when that one couldn't begin.
ReplaceLost = Callable[[Serial, Callable[[Serial], bool]], Serial | None]


class Work(Protocol):
    """What one device has to do in a campaign; made again for each attempt, from what is stored."""

    def run(self) -> None:
        """Do what is open; raises DeviceError kinds, StoreError, HostStorageError, InterruptedByUserError."""
        ...

    def left(self) -> int:
        """Return how many invocations aren't stored at the least."""
        ...

    def done(self) -> int:
        """Return how much is measured; it grows with everything that needn't be measured again."""
        ...


class Turns:
    """Gives every device its turn, all at once."""

    def __init__(
        self,
        services: Services,
        lease: Lease,
        *,
        rescuer: Rescuer | None = None,
        quarantine: Quarantine | None = None,
        unfit_pause_s: float = _UNFIT_PAUSE_S,
    ) -> None:
        """Without a rescuer, a device that is lost is abandoned at once.

        ``unfit_pause_s``: one that didn't become fit is asked again after so long, while others work.
        """
        self._services = services
        self._lease = lease
        self._threads = ThreadExecutor(services.cancelled)
        self._rescuer = rescuer
        self._quarantine = quarantine
        self._unfit_pause_s = unfit_pause_s
        self._may_reboot = False
        self._replace_lost: ReplaceLost | None = None
        #: Lost devices, with the spare ones that take their places.
        self._replaced: dict[Serial, Serial] = {}
        #: Held while one is looked for: a lost device's own thread and that of one that can't begin may both ask.
        self._replacing = threading.RLock()
        #: Devices that work, or are about to; one that is waited for isn't among them.
        self._working: set[Serial] = set()
        #: Notified when one of them ends.
        self._work = threading.Condition()
        #: What no device is to blame for, and what ended the part of one all the same.
        self._faults: list[Exception] = []

    def run(
        self,
        turns: Sequence[tuple[Device, Callable[[], Work]]],
        lost: MutableMapping[Serial, str],
        *,
        may_reboot: bool = False,
        newcomers: Callable[[], Sequence[tuple[Device, Callable[[], Work]]]] | None = None,
        replace_lost: ReplaceLost | None = None,
    ) -> Sequence[Exception]:
        """Do all devices' work; ``lost`` gets those that were abandoned, with the reason.

        ``newcomers`` is asked for devices that have come since; one that somebody else uses doesn't join.
        ``replace_lost`` is told of a device that can't be got back for now, or is abandoned, and how to know whether a
        spare one is free; with one, the lost one isn't waited for. Without one it is told again while others work.

        A fault of another kind ends one device's part as if it were lost; these faults are returned.

        Raises the first error of any: StoreError, HostStorageError, InterruptedByUserError, KeyboardInterrupt.
        """
        self._may_reboot = may_reboot
        self._replace_lost = replace_lost

        def come() -> list[tuple[str, Callable[[], None]]]:
            new = newcomers() if newcomers is not None else ()
            for device, _ in new:
                self._is_working(device.serial, True)
            return [(str(device.serial), self._turn(device, begin, lost, is_new=True)) for device, begin in new]

        # This computer drives the phones: measured at the same time, its figures would be adb's.
        for is_host in (False, True):
            now = [(device, begin) for device, begin in turns if (device.kind is DeviceKind.HOST) is is_host]
            self._working = {device.serial for device, _ in now}
            self._threads.run(
                [(str(device.serial), self._turn(device, begin, lost)) for device, begin in now],
                more=None if is_host or newcomers is None else come,
            )
        return self._faults

    def _turn(
        self, device: Device, begin: Callable[[], Work], lost: MutableMapping[Serial, str], *, is_new: bool = False
    ) -> Callable[[], None]:
        last: Work | None = None

        def begin_again() -> Work:
            nonlocal last
            last = begin()
            return last

        def turn() -> None:
            reason, is_in = "", not is_new
            open_places: Sequence[Serial] = ()
            try:
                with self._lease.acquire(device.serial, wait_s=_LEASE_WAIT_S):
                    is_in = True
                    try:
                        self._until_done(device, begin_again)
                    finally:
                        self._restore(device)
            except (StoreError, HostStorageError, InterruptedByUserError):
                # Nothing could be kept of any device, or nobody wants it any more.
                raise
            except Exception as error:  # noqa: BLE001 - the others go on; a fault of ours is returned at the end
                reason = self._reason(device, error)
                if not is_in:
                    self._note(device, f"doesn't join: {reason}")
                    # One that isn't given up yet looks for another one itself.
                    places = [serial for serial in self._give_back(device.serial) if serial in lost]
                else:
                    lost[device.serial] = reason
                    places = [device.serial]
                # While this one still counts as working, so that those who wait for others don't stop in between.
                open_places = [serial for serial in places if not self._is_replaced(serial)]
                if is_in and isinstance(error, DeviceError):
                    self._keep_out(device, quarantine_reason(error))
            finally:
                self._is_working(device.serial, False)
                if is_in:
                    self._tell_finished(device, lambda: last or begin(), reason)
            self._fill(open_places)

        return turn

    def _tell_finished(self, device: Device, work: Callable[[], Work], reason: str) -> None:
        try:
            finished = DeviceFinished(serial=device.serial, left=work().left(), reason=reason)
        except (StoreError, HostStorageError):
            raise
        except Exception as error:  # noqa: BLE001 - a fault there is one device's, too
            self._reason(device, error)
        else:
            self._services.observer.on_event(finished)

    def _reason(self, device: Device, error: Exception) -> str:
        """Return why a device's part has ended; what isn't the device's is told and kept until the end."""
        if isinstance(error, DeviceError):
            return str(error).removeprefix(f"{device.serial}: ")
        is_ours = not isinstance(error, BenchfarmError)
        reason = f"a fault in benchfarm itself: {type(error).__name__}: {error}" if is_ours else str(error)
        self._faults.append(error)
        self._note(device, f"is abandoned: {reason}", is_problem=True)
        return reason

    def _until_done(self, device: Device, begin: Callable[[], Work]) -> None:
        """Work until nothing is open; a device that was lost and comes back goes on where it was."""
        fruitless, done_before = 0, -1
        while True:
            # Read under the lease: nobody else adds to it now.
            work = begin()
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
        if self._rescuer is None or self._services.cancelled.is_set():
            return False
        text = str(error).removeprefix(f"{device.serial}: ")
        self._note(device, f"lost: {text}; what it left waits for its return", is_problem=True, is_away=True)
        self._is_working(device.serial, False)
        is_back = self._rescuer.rescue(
            device,
            keep_waiting=lambda: not self._is_replaced(device.serial) and bool(self._working),
            may_reboot=self._may_reboot,
            on_note=lambda text: self._note(device, text),
            cancelled=self._services.cancelled,
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
        text = str(error).removeprefix(f"{device.serial}: ")
        self._note(device, f"{text}; it is asked again while others work", is_problem=True, is_away=True)
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
        """Wait so long; False as soon as no device works any more or all is cancelled."""
        deadline = Deadline(within_s)
        with self._work:
            while self._working and not self._services.cancelled.is_set():
                if deadline.expired:
                    return True
                self._work.wait(min(_LOOK_S, deadline.remaining_s))
        return False

    def _is_replaced(self, serial: Serial) -> bool:
        with self._replacing:
            if self._replace_lost is not None and serial not in self._replaced:
                spare = self._replace_lost(serial, self._is_free)
                if spare is not None:
                    self._replaced[serial] = spare
            return serial in self._replaced

    def _give_back(self, spare: Serial) -> list[Serial]:
        """Return the lost devices whose places one took that couldn't begin: they have no spare device any more."""
        with self._replacing:
            places = [serial for serial, chosen in self._replaced.items() if chosen == spare]
            for serial in places:
                del self._replaced[serial]
            return places

    def _fill(self, places: Sequence[Serial]) -> None:
        """Look for devices in the places of lost ones while others work: one that is in use now may be free later."""
        pause_s = _SHORTEST_PAUSE_S
        while places and self._replace_lost is not None and self._others_work(pause_s):
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)
            places = [serial for serial in places if not self._is_replaced(serial)]

    def _is_free(self, serial: Serial) -> bool:
        """Whether nobody else uses a device: one that couldn't join is of no use."""
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
        if reason and self._quarantine is not None:
            self._quarantine.put(device.serial, reason)
            text = f"is in quarantine; 'benchfarm device release {device.serial}' ends it"
            self._note(device, text, is_problem=True)

    def _restore(self, device: Device) -> None:
        """Undo what was changed; what can't be undone now stays in the journal and is named."""
        for attempt in range(1, RESTORES_MAX + 1):
            try:
                if attempt > 1:
                    device.wait_until_ready(timeout_s=_RESTORE_READY_S)
                self._services.conditioner.restore(
                    device, on_note=lambda text: self._note(device, text, is_problem=True)
                )
            except BenchfarmError as error:
                if attempt < RESTORES_MAX and isinstance(error, DeviceError) and _may_return(error):
                    continue
                if device.serial in self._services.conditioner.unrestored():
                    text = f"could not be restored ({error}); 'benchfarm device restore {device.serial}' tries again"
                    self._note(device, text, is_problem=True)
                elif not isinstance(error, DeviceBusyError):
                    # Nothing of ours is changed there; what still runs is ended by whoever uses the phone next.
                    self._note(
                        device, f"could not be released ({error}); its note there expires by itself", is_problem=True
                    )
            return

    def _note(self, device: Device, text: str, *, is_problem: bool = False, is_away: bool | None = None) -> None:
        self._services.observer.on_event(
            DeviceNote(serial=device.serial, text=text, is_problem=is_problem, is_away=is_away)
        )


def _may_return(error: DeviceError) -> bool:
    """Whether waiting may help: the way to the device is lost, or another one is in its place."""
    if isinstance(error, DeviceBusyError):
        return False
    return error.transient or isinstance(
        error, DeviceChangedError | DeviceUnauthorizedError | AdbUnavailableError | NoDeviceError
    )
