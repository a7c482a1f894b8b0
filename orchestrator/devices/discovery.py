"""Which phones an adb server sees, and for each one that can't be used: why not, and what to do."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from orchestrator.devices.adb_server import ALLOW_KEY, TAP_ALLOW, AdbServer, is_tcp
from orchestrator.devices.link import PhoneLink
from orchestrator.devices.probes import parse_serial
from orchestrator.errors import DeviceError, HostStorageError, LinkLostError, UsageError
from orchestrator.files import keep_file
from orchestrator.ports import Seen
from orchestrator.scripts import ATTEMPTS, Answer

_PROBE_TIMEOUT_S: Final = 8.0
#: Who looks for phones on and on asks the other sources of devices after so long.
_SOURCES_S: Final = 15.0
#: So many phones are asked, opened or restored at once; each is one connection to the server.
_PHONES_AT_ONCE: Final = 32
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_WHO: Final = {
    "serial": "getprop ro.serialno",
    "booted": "getprop sys.boot_completed",
    "boot": "cat /proc/sys/kernel/random/boot_id",
}
#: What sys.boot_completed is until a phone has booted.
NOT_BOOTED: Final = frozenset({"", "0"})

_ATTRIBUTE: Final = re.compile(
    r"\s(?P<key>usb|product|model|device|features|transport_id):(?P<value>\S*)"
)
#: macOS and libusb print a USB path without a key in front.
_USB_PATH: Final = re.compile(r"\s+(?P<path>\d+-[\d.]+)$")
#: A name may hold blanks: mDNS calls a second phone of one name ``adb-X
#: (2)._adb-tls-connect._tcp``.
_LINE: Final = re.compile(
    r"^(?P<transport>\(no serial number\)|\S.*?)\s+(?P<state>no permissions.*|\S+)$"
)

#: State -> (why it can't be used, what to do).
STATE_NOTES: Final[Mapping[str, tuple[str, str]]] = {
    "unauthorized": ("the phone doesn't know this computer's key", ALLOW_KEY),
    "authorizing": ("the phone is being asked to let this computer in", TAP_ALLOW),
    "connecting": ("the connection is being made", "wait a few seconds and look again"),
    "offline": (
        "the phone doesn't answer adb",
        "plug it in again (or 'adb disconnect' and 'adb connect' it); if that doesn't help, reboot it",
    ),
    "recovery": (
        "the phone is in recovery mode",
        "choose 'Reboot system now' on its screen, or 'adb reboot'",
    ),
}
_UDEV_ADVICE: Final = (
    "install udev rules for Android (Debian, Ubuntu: apt-get install android-sdk-platform-tools-common), or one with "
    "the idVendor that lsusb shows in /etc/udev/rules.d/51-android.rules: "
    'SUBSYSTEM=="usb", ATTR{idVendor}=="18d1", MODE="0660", GROUP="plugdev"; then: sudo usermod -aG plugdev $USER, '
    "sudo udevadm control --reload, log in again, plug the phone in again"
)


def parse_devices(text: str) -> list[Seen]:
    """Read ``adb devices -l`` of any version, with or without its headline; nobody was asked yet."""
    found: list[Seen] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith(("List of devices", "*", "#")):
            continue
        first = _ATTRIBUTE.search(line)
        head = (line[: first.start()] if first else line).strip()
        bare = _USB_PATH.search(head)
        named = _LINE.match(_USB_PATH.sub("", head))
        if named is None:
            continue
        values = {match["key"]: match["value"] for match in _ATTRIBUTE.finditer(line)}
        number = values.get("transport_id", "")
        found.append(
            Seen(
                address=named["transport"],
                state=named["state"].strip(),
                transport_id=int(number) if number.isdigit() else None,
                usb=values.get("usb", bare["path"] if bare else ""),
                product=values.get("product", ""),
                model=values.get("model", "").replace("_", " "),
                codename=values.get("device", ""),
            )
        )
    return found


class KnownPhones:
    """What usable phones told when they were asked, so that one that measures isn't asked again at
    each look.

    A server gives a phone another number after every reconnection and boot; one that kept its
    number has nothing new to tell. May be used by several threads.
    """

    def __init__(self) -> None:
        #: Server and its name for a phone -> what that told last when it could be used; without a
        #: number when it was away since.
        self._told: dict[tuple[str, str], Seen] = {}
        #: Source of devices -> when it was last asked, and what it said.
        self._of_sources: dict[str, tuple[float, Sequence[Seen]]] = {}

    def get(self, server: AdbServer, listed: Seen) -> Seen | None:
        """Return what a phone told on the very connection that it has now."""
        told = self._told.get((str(server.address), listed.address))
        if told is None or listed.state != "device" or listed.transport_id is None:
            return None
        return told if told.transport_id == listed.transport_id else None

    def of_source(self, name: str, look: Callable[[], Sequence[Seen]]) -> Sequence[Seen]:
        """Return what a source of devices said a moment ago, else by a look, which may take a
        second of this computer's.
        """
        now_s = time.monotonic()
        if name not in self._of_sources or now_s - self._of_sources[name][0] > _SOURCES_S:
            self._of_sources[name] = now_s, look()
        return self._of_sources[name][1]

    def keep(self, server: AdbServer, seen: Sequence[Seen]) -> None:
        """Know these phones of a server, and no others of it any more; they are as told, not as
        judged beside others.

        A server that was restarted counts from one again: what was known of it is forgotten as soon
        as it is seen without its phones, or can't be asked.
        """
        address = str(server.address)
        fresh = {(address, one.address): one for one in seen if one.usable}
        away = [key for key in self._told if key[0] == address and key not in fresh]
        self._told |= {key: replace(self._told[key], transport_id=None) for key in away} | fresh

    def name(self, server: AdbServer, seen: Seen) -> Seen:
        """Return what was seen of a phone, by the serial number that it told last when it can't be
        asked.
        """
        told = self._told.get((str(server.address), seen.address))
        return seen if seen.serial or told is None else replace(seen, serial=told.serial)

    def forget(self, serial: str) -> None:
        """Have a phone asked at the next look: it may not answer any more."""
        for key, told in list(self._told.items()):
            if told.serial == serial:
                self._told[key] = replace(told, transport_id=None)


def all_at_once(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Return what came of each phone, in their order: one that hangs mustn't hold the others up."""
    with ThreadPoolExecutor(max_workers=max(1, min(_PHONES_AT_ONCE, len(items)))) as pool:
        return list(pool.map(work, items))


def list_devices(
    server: AdbServer, *, timeout_s: float = _PROBE_TIMEOUT_S, known: KnownPhones | None = None
) -> Sequence[Seen]:
    """Return every phone that the server sees; those in state ``device`` are asked who they are,
    all at once.

    ``known``: phones that aren't asked as long as their connection lasts; it learns of the others.

    Raises AdbUnavailableError when the server doesn't answer.
    """
    asked = known or KnownPhones()
    seen: list[Seen] = []

    def look(one: Seen) -> Seen:
        return asked.get(server, one) or asked.name(server, _look_at(server, one, timeout_s))

    try:
        seen = all_at_once(look, parse_devices(server.device_list()))
    finally:
        asked.keep(server, seen)
    return judge_twins(seen)


#: How the reason begins for which neither of two phones of one serial number can be used.
SEVERAL: Final = "several phones call themselves "


def judge_twins(seen: Sequence[Seen]) -> list[Seen]:
    """Settle which of several transports with one ``ro.serialno`` is used.

    The same boot id says that it is one phone, reached twice: USB goes before TCP. Different boot
    ids are two phones that call themselves the same: neither can be used, because their results
    would be taken for one phone's.
    """

    def judged(one: Seen) -> Seen:
        twins = [other for other in seen if other.usable and other.serial == one.serial]
        if not one.usable or len(twins) < 2:
            return one
        others = ", ".join(twin.address for twin in twins)
        if len({twin.boot_id for twin in twins}) > 1:
            advice = "attach only one of them at a time: their results couldn't be told apart"
            boots = ", ".join(twin.boot_id[:8] for twin in twins)
            reason = f"{SEVERAL}{one.serial}: {others} (booted as {boots})"
            return replace(one, usable=False, reason=reason, advice=advice)
        chosen = min(twins, key=lambda twin: (is_tcp(twin.address), twin.address))
        if one is chosen:
            return replace(
                one, reason=f"one phone on several transports ({others}): this one is used"
            )
        advice = (
            f"'adb disconnect {shlex.quote(one.address)}' if it isn't needed"
            if is_tcp(one.address)
            else ""
        )
        return replace(
            one,
            usable=False,
            reason=f"the same phone as {chosen.address}, which is used",
            advice=advice,
        )

    return [judged(one) for one in seen]


def _look_at(server: AdbServer, seen: Seen, timeout_s: float) -> Seen:
    """Return a listed phone with what it says of itself, or why it can't be used."""
    if seen.state != "device":
        reason, advice = explain_state(seen)
        return replace(seen, reason=reason, advice=advice)
    try:
        if "shell_v2" not in server.features(seen.address):
            return replace(
                seen,
                reason="it has Android 6 or older",
                advice="benchfarm needs Android 7 or later",
            )
        answer = _ask_who(PhoneLink(server, seen.address), timeout_s)
    except DeviceError as error:
        advice = error.hint or "plug it in again, or reboot it"
        reason = f"its state is 'device', but it doesn't answer: {error}"
        return replace(seen, reason=reason, advice=advice, hangs=True)
    seen = replace(
        seen,
        serial=parse_serial(answer.text("serial")) or seen.address,
        boot_id=answer.value("boot"),
    )
    booted = answer.value("booted")
    if booted in NOT_BOOTED:
        return replace(
            seen, reason="it hasn't finished booting", advice="wait a minute and look again"
        )
    if booted != "1":
        reason = f"its properties can't be read: getprop says {booted[:100]!r}"
        return replace(
            seen, reason=reason, advice="reboot it; 'adb shell getprop' shows what it says"
        )
    return replace(seen, usable=True)


def _ask_who(link: PhoneLink, timeout_s: float) -> Answer:
    """Ask a phone who it is, again where the way to it was closed or it couldn't say.

    Raises DeviceError kinds.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            answer = link.ask(_WHO, timeout_s=timeout_s, what="asking who it is")
        except LinkLostError:
            if attempt == ATTEMPTS:
                raise
        else:
            serial = answer.text("serial")
            is_readable = answer.value("booted") in {"1", *NOT_BOOTED} and (
                parse_serial(serial) or not serial.strip()
            )
            if is_readable or attempt == ATTEMPTS:
                break
    return answer


def explain_state(seen: Seen) -> tuple[str, str]:
    """Return why a phone in this state can't be used, and what to do."""
    if seen.state.startswith("no permissions"):
        where = f" (USB {seen.usb})" if seen.usb else ""
        return f"this user may not open the USB device{where}: {seen.state}", _UDEV_ADVICE
    unknown = (f"its state is {seen.state!r}", "reboot it, or plug it in again")
    return STATE_NOTES.get(seen.state, unknown)


#: Where adbd listens after 'adb tcpip 5555'.
_USUAL_PORT: Final = 5555
#: How long a phone that is switched off may delay a command.
_JOIN_TIMEOUT_S: Final = 2.0
_LONGEST_FILE_BYTES: Final = 65_536


class NetworkPhones:
    """The remembered addresses, a line each in a file."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; the file is made with the first address."""
        self._path = folder / "network-phones.txt"

    def addresses(self) -> list[str]:
        """Return the addresses in the order in which they were added; what isn't one is ignored.

        Raises HostStorageError.
        """
        try:
            with self._path.open("rb") as file:
                text = file.read(_LONGEST_FILE_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise HostStorageError(f"{self._path} can't be read: {error}") from error
        return [line for line in text.splitlines() if is_tcp(line) and " " not in line]

    def add(self, address: str) -> None:
        """Remember an address; raises HostStorageError."""
        if address not in (known := self.addresses()):
            self._write([*known, address])

    def remove(self, address: str) -> bool:
        """Forget an address; return whether it was remembered. Raises HostStorageError."""
        known = self.addresses()
        if address in known:
            self._write([item for item in known if item != address])
        return address in known

    def _write(self, addresses: list[str]) -> None:
        keep_file(self._path, "".join(f"{address}\n" for address in addresses))


def join(server: AdbServer, addresses: Sequence[str]) -> Iterator[tuple[str, DeviceError]]:
    """Connect the phones that a server doesn't know; yield those that can't be, and why."""
    known = {item.address for item in parse_devices(server.device_list())} if addresses else set()
    for address in addresses:
        if address not in known:
            try:
                server.connect_tcp(address, timeout_s=_JOIN_TIMEOUT_S)
            except DeviceError as error:
                yield address, error


def full_address(text: str) -> str:
    """Return ``host:port`` of what a user writes; adb's usual port where none is given.

    Raises UsageError.
    """
    address = text.strip()
    if address and not address.rpartition(":")[1]:
        address = f"{address}:{_USUAL_PORT}"
    if not is_tcp(address) or any(c.isspace() or not c.isprintable() for c in address):
        raise UsageError(
            f"{text!r} isn't the address of a phone", hint="give HOST:PORT, as the phone shows it"
        )
    return address
