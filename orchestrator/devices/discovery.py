"""The phones that an adb server sees; for each unusable one the reason, and what to do."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestrator.devices.adb_server import ALLOW_KEY, TAP_ALLOW, AdbServer, is_tcp
from orchestrator.devices.link import PhoneLink
from orchestrator.devices.probes import parse_serial
from orchestrator.devices.retries import LISTED
from orchestrator.errors import DeviceError, HostStorageError, UsageError
from orchestrator.files import keep_file
from orchestrator.ports import ListedPhone
from orchestrator.processes import map_in_threads
from orchestrator.scripts import ATTEMPTS, Answer

_PROBE_TIMEOUT_S: Final = 8.0
#: Minimum time between two listings of the other sources of devices, for a repeated search.
_SOURCES_S: Final = 15.0

_IDENTITY: Final = {
    "serial": "getprop ro.serialno",
    "booted": "getprop sys.boot_completed",
    "boot": "cat /proc/sys/kernel/random/boot_id",
}
#: The values of sys.boot_completed until a phone has booted.
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
    "connecting": ("the connection is being made", "wait a few seconds and check again"),
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


def parse_devices(text: str) -> list[ListedPhone]:
    """Read ``adb devices -l`` of any version, with or without its headline."""
    phones: list[ListedPhone] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith(("List of devices", "*", "#")):
            continue
        attribute = _ATTRIBUTE.search(line)
        head = (line[: attribute.start()] if attribute else line).strip()
        usb_match = _USB_PATH.search(head)
        head_match = _LINE.match(_USB_PATH.sub("", head))
        if head_match is None:
            continue
        values = {match["key"]: match["value"] for match in _ATTRIBUTE.finditer(line)}
        transport_id = values.get("transport_id", "")
        phones.append(
            ListedPhone(
                address=head_match["transport"],
                state=head_match["state"].strip(),
                transport_id=int(transport_id) if transport_id.isdigit() else None,
                usb=values.get("usb", usb_match["path"] if usb_match else ""),
                product=values.get("product", ""),
                model=values.get("model", "").replace("_", " "),
                codename=values.get("device", ""),
            )
        )
    return phones


class PhoneCache:
    """The last answers of usable phones, so that a measuring phone isn't asked at each listing.

    A server gives a phone another transport id after every reconnection and boot; with the same id
    its answers are still valid. May be used by several threads.
    """

    def __init__(self) -> None:
        #: Server and address -> the phone when it was last usable; without a transport id if it
        #: was offline since.
        self._phones: dict[tuple[str, str], ListedPhone] = {}
        #: Source of devices -> time of its last listing, and its devices then.
        self._sources: dict[str, tuple[float, Sequence[ListedPhone]]] = {}

    def get(self, server: AdbServer, listed: ListedPhone) -> ListedPhone | None:
        """Return the phone's answers on its current connection, or None."""
        cached = self._phones.get((str(server.address), listed.address))
        if cached is None or listed.state != "device" or listed.transport_id is None:
            return None
        return cached if cached.transport_id == listed.transport_id else None

    def of_source(
        self, name: str, list_phones: Callable[[], Sequence[ListedPhone]]
    ) -> Sequence[ListedPhone]:
        """Return the recent listing of a source of devices, else a new one, which may take a second
        of CPU time.
        """
        now_s = time.monotonic()
        if name not in self._sources or now_s - self._sources[name][0] > _SOURCES_S:
            self._sources[name] = now_s, list_phones()
        return self._sources[name][1]

    def keep(self, server: AdbServer, phones: Sequence[ListedPhone]) -> None:
        """Keep these phones of a server in place of its earlier ones, before `choose_transports`.

        A restarted server counts its transport ids from one: its phones are invalidated as soon as
        a listing lacks them, or fails.
        """
        address = str(server.address)
        usable = {(address, phone.address): phone for phone in phones if phone.usable}
        offline = [key for key in self._phones if key[0] == address and key not in usable]
        self._phones |= {
            key: replace(self._phones[key], transport_id=None) for key in offline
        } | usable

    def name(self, server: AdbServer, phone: ListedPhone) -> ListedPhone:
        """Return the phone, with its last known serial number if it couldn't be asked now."""
        cached = self._phones.get((str(server.address), phone.address))
        return phone if phone.serial or cached is None else replace(phone, serial=cached.serial)

    def forget(self, serial: str) -> None:
        """Have a phone asked at the next listing: it may not answer any more."""
        for key, cached in list(self._phones.items()):
            if cached.serial == serial:
                self._phones[key] = replace(cached, transport_id=None)


def list_devices(
    server: AdbServer, *, timeout_s: float = _PROBE_TIMEOUT_S, cache: PhoneCache | None = None
) -> Sequence[ListedPhone]:
    """Return every phone that the server sees; those in state ``device`` are asked for their
    identity, all at once.

    ``cache``: phones that aren't asked as long as their connection lasts; the others are added.

    Raises AdbUnavailableError when the server doesn't answer.
    """
    cache = cache or PhoneCache()
    phones: list[ListedPhone] = []

    def probe(phone: ListedPhone) -> ListedPhone:
        return cache.get(server, phone) or cache.name(
            server, _probe_phone(server, phone, timeout_s)
        )

    try:
        phones = map_in_threads(probe, parse_devices(server.device_list()))
    finally:
        cache.keep(server, phones)
    return choose_transports(phones)


#: The begin of the reason why two phones with one serial number are unusable.
SEVERAL: Final = "several phones call themselves "


def choose_transports(phones: Sequence[ListedPhone]) -> list[ListedPhone]:
    """Choose one of several transports with the same ``ro.serialno``.

    The same boot id means one phone, reached twice: USB goes before TCP. Different boot ids mean
    two phones with one serial number: neither can be used, because their results would be taken
    for one phone's.
    """

    def judged(phone: ListedPhone) -> ListedPhone:
        twins = [other for other in phones if other.usable and other.serial == phone.serial]
        if not phone.usable or len(twins) < 2:
            return phone
        addresses = ", ".join(twin.address for twin in twins)
        if len({twin.boot_id for twin in twins}) > 1:
            advice = "attach only one of them at a time: their results couldn't be told apart"
            boots = ", ".join(twin.boot_id[:8] for twin in twins)
            reason = f"{SEVERAL}{phone.serial}: {addresses} (booted as {boots})"
            return replace(phone, usable=False, reason=reason, advice=advice)
        chosen = min(twins, key=lambda twin: (is_tcp(twin.address), twin.address))
        if phone is chosen:
            return replace(
                phone, reason=f"one phone on several transports ({addresses}): this one is used"
            )
        advice = (
            f"'adb disconnect {shlex.quote(phone.address)}' if it isn't needed"
            if is_tcp(phone.address)
            else ""
        )
        return replace(
            phone,
            usable=False,
            reason=f"the same phone as {chosen.address}, which is used",
            advice=advice,
        )

    return [judged(phone) for phone in phones]


def _probe_phone(server: AdbServer, phone: ListedPhone, timeout_s: float) -> ListedPhone:
    """Return a listed phone with its identity, or the reason why it is unusable."""
    if phone.state != "device":
        reason, advice = explain_state(phone)
        return replace(phone, reason=reason, advice=advice)
    try:
        if "shell_v2" not in server.features(phone.address):
            return replace(
                phone,
                reason="it has Android 6 or older",
                advice="benchfarm needs Android 7 or later",
            )
        answer = _identify_phone(PhoneLink(server, phone.address), timeout_s)
    except DeviceError as error:
        advice = error.hint or "plug it in again, or reboot it"
        reason = f"its state is 'device', but it doesn't answer: {error}"
        return replace(phone, reason=reason, advice=advice, hangs=True)
    phone = replace(
        phone,
        serial=parse_serial(answer.text("serial")) or phone.address,
        boot_id=answer.value("boot"),
    )
    booted = answer.value("booted")
    if booted in NOT_BOOTED:
        return replace(
            phone, reason="it hasn't finished booting", advice="wait a minute and check again"
        )
    if booted != "1":
        reason = f"its properties can't be read: getprop says {booted[:100]!r}"
        return replace(
            phone, reason=reason, advice="reboot it; 'adb shell getprop' shows what it says"
        )
    return replace(phone, usable=True)


def _identify_phone(link: PhoneLink, timeout_s: float) -> Answer:
    """Ask a phone for its identity; retried when the link was lost or the answer is unreadable.

    Raises DeviceError kinds.
    """
    for _ in range(ATTEMPTS):
        answer = LISTED.run(
            lambda: link.ask(_IDENTITY, timeout_s=timeout_s, action="reading its serial number"),
            clock=link.clock,
        )
        serial = answer.text("serial")
        if answer.value("booted") in {"1", *NOT_BOOTED} and (
            parse_serial(serial) or not serial.strip()
        ):
            break
    return answer


def explain_state(phone: ListedPhone) -> tuple[str, str]:
    """Return the reason why a phone in this state is unusable, and what to do."""
    if phone.state.startswith("no permissions"):
        where = f" (USB {phone.usb})" if phone.usb else ""
        return f"this user may not open the USB device{where}: {phone.state}", _UDEV_ADVICE
    unknown = (f"its state is {phone.state!r}", "reboot it, or plug it in again")
    return STATE_NOTES.get(phone.state, unknown)


#: Where adbd listens after 'adb tcpip 5555'.
_USUAL_PORT: Final = 5555
#: How long a phone that is switched off may delay a command.
_JOIN_TIMEOUT_S: Final = 2.0
_LONGEST_FILE_BYTES: Final = 65_536


class NetworkPhones:
    """The remembered addresses, a line each in a file."""

    def __init__(self, folder: Path) -> None:
        """Set the folder; the file is created with the first address."""
        self._path = folder / "network-phones.txt"

    def addresses(self) -> list[str]:
        """Return the addresses in the order in which they were added; other lines are ignored.

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
        if address not in (addresses := self.addresses()):
            self._write([*addresses, address])

    def remove(self, address: str) -> bool:
        """Forget an address; return whether it was remembered. Raises HostStorageError."""
        addresses = self.addresses()
        if address in addresses:
            self._write([item for item in addresses if item != address])
        return address in addresses

    def _write(self, addresses: list[str]) -> None:
        keep_file(self._path, "".join(f"{address}\n" for address in addresses))


def connect_known(server: AdbServer, addresses: Sequence[str]) -> Iterator[tuple[str, DeviceError]]:
    """Connect the phones that a server doesn't list; yield each failed address and its error."""
    listed = {item.address for item in parse_devices(server.device_list())} if addresses else set()
    for address in addresses:
        if address not in listed:
            try:
                server.connect_tcp(address, timeout_s=_JOIN_TIMEOUT_S)
            except DeviceError as error:
                yield address, error


def full_address(text: str) -> str:
    """Return a user's address as ``host:port``; the default port is adb's.

    Raises UsageError.
    """
    address = text.strip()
    if address and not address.rpartition(":")[1]:
        address = f"{address}:{_USUAL_PORT}"
    match = re.fullmatch(r"\S+:([0-9]{1,5})", address)
    if match is None or not 0 < int(match[1]) < 65536 or not address.isprintable():
        raise UsageError(
            f"{text!r} isn't the address of a phone", hint="give HOST:PORT, as the phone shows it"
        )
    return address
