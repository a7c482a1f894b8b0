"""Virtual phones in this process, and who may talk to them."""

from __future__ import annotations

import itertools
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from benchfarm_virtual.auth import load_public_keys
from benchfarm_virtual.errors import DeviceError, UsageError
from benchfarm_virtual.phone import Phone
from benchfarm_virtual.spec import PhoneSpec


class VirtualPhones(AbstractContextManager["VirtualPhones"]):
    """Runs virtual phones in this process; a context manager that switches them off at its end.

    ``with VirtualPhones(adb_public_keys=[home / ".android/adbkey.pub"]) as phones:
    phones.add("pixel-3").address``
    """

    def __init__(
        self, *, adb_public_keys: Iterable[Path], time_factor: float = 1.0, seed: int = 1
    ) -> None:
        """Start without a phone.

        ``time_factor`` is how many seconds pass for the phones in one real second. Raises
        UsageError when a key file can't be read.
        """
        if not time_factor > 0:
            raise UsageError(f"the time factor must be more than 0, not {time_factor:g}")
        self.time_factor = time_factor
        self.seed = seed
        self._keys: Sequence[RSAPublicKey] = load_public_keys(adb_public_keys)
        self._lock = threading.RLock()
        self._phones: dict[str, Phone] = {}
        self._numbers = itertools.count(1)

    @property
    def phones(self) -> Mapping[str, Phone]:
        """The phones by serial number, in the order they were added."""
        with self._lock:
            return dict(self._phones)

    def add(self, profile: str, *, serial: str = "", **settings: Any) -> Phone:  # noqa: ANN401
        """Switch a phone on and return it; its settings are those of PhoneSpec.

        See :meth:`add_spec` for errors.
        """
        serial = serial or f"VIRTUAL{next(self._numbers):04d}"
        return self.add_spec(PhoneSpec(profile=profile, serial=serial, **settings))

    def add_spec(self, spec: PhoneSpec) -> Phone:
        """Switch a phone on and return it.

        Raises UsageError when there is such a serial number already or no such profile, DeviceError
        when the port is taken.
        """
        with self._lock:
            if spec.serial in self.phones:
                raise UsageError(f"there is a virtual phone {spec.serial} already")
            # Each phone has noise of its own, the same one every time.
            seed = zlib.crc32(f"{self.seed} {spec.serial}".encode())
            phone = Phone(
                spec,
                allowed_keys=self._keys,
                seed=seed,
                time_factor=self.time_factor,
            )
            try:
                phone.start()
            except OSError as fault:
                phone.close()
                raise DeviceError(
                    f"{spec.serial}: the virtual phone can't listen on port {spec.port}: {fault.strerror}"
                ) from None
            self._phones[spec.serial] = phone
            return phone

    def remove(self, serial: str) -> None:
        """Switch a phone off; raise UsageError as :meth:`get` does."""
        phone = self.get(serial)
        with self._lock:
            self._phones.pop(phone.serial, None)
        phone.close()

    def get(self, serial: str) -> Phone:
        """Return a phone by its serial number or its address; raise UsageError when there is none."""
        for phone in self.phones.values():
            if serial in (phone.serial, phone.address):
                return phone
        raise UsageError(
            f"there is no virtual phone {serial!r}; there are: {', '.join(self.phones) or 'none'}"
        )

    def close(self) -> None:
        """Switch all phones off."""
        for phone in self.phones.values():
            phone.close()
        with self._lock:
            self._phones.clear()

    def __exit__(self, *_: object) -> None:
        self.close()
