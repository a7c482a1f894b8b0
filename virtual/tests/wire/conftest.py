"""Every test of the transport runs with both adb servers."""

from __future__ import annotations

import base64
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from benchfarm_virtual.control import stop_phones

if TYPE_CHECKING:
    from benchfarm_virtual.phone import Phone
    from benchfarm_virtual.phones import VirtualPhones


@dataclass(slots=True)
class Link:
    """A virtual phone, and the adb command speaking to it."""

    server: object
    phones: VirtualPhones
    phone: Phone

    def adb(
        self, *args: str | Path, stdin: bytes = b"", timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[bytes]:
        return self.server.run("-s", self.phone.address, *args, stdin=stdin, timeout_s=timeout_s)  # type: ignore[attr-defined]

    def popen(self, *args: str | Path) -> subprocess.Popen[bytes]:
        return self.server.popen("-s", self.phone.address, *args)  # type: ignore[attr-defined]

    @property
    def state(self) -> str:
        return self.server.states().get(self.phone.address, "")  # type: ignore[attr-defined]

    def connect(self, state: str = "device") -> None:
        self.server.connect(self.phone.address, state)  # type: ignore[attr-defined]

    def shell(self, command: str) -> str:
        result = self.adb("shell", command)
        assert result.returncode == 0, result
        return result.stdout.decode()


@pytest.fixture(params=["adb_server", "old_adb_server"], ids=["adb36", "adb29"])
def server(request: pytest.FixtureRequest) -> object:
    return request.getfixturevalue(request.param)


@pytest.fixture
def make_link(
    server: object, make_lab: Callable[..., VirtualPhones]
) -> Iterator[Callable[..., Link]]:
    """Make a phone and connect the server to it: ``make_link(profile, legacy=...,
    time_factor=...)``."""
    links: list[Link] = []

    def make(
        profile: str = "pixel-3",
        *,
        time_factor: float = 10.0,
        connect: bool = True,
        **settings: object,
    ) -> Link:
        phones = make_lab(server, time_factor=time_factor)
        link = Link(server, phones, phones.add(profile, **settings))  # type: ignore[arg-type]
        links.append(link)
        if connect:
            link.connect()
        return link

    yield make
    for link in links:
        server.run("disconnect", link.phone.address)  # type: ignore[attr-defined]


@pytest.fixture
def link(make_link: Callable[..., Link]) -> Link:
    return make_link()


@pytest.fixture(scope="session")
def encode_public_key() -> Callable[[rsa.RSAPrivateKey], str]:
    """Write a private key's public half as adb does (the fields that a reader needs)."""

    def encode(key: rsa.RSAPrivateKey) -> str:
        numbers = key.public_key().public_numbers()
        modulus = numbers.n.to_bytes(256, "little")
        blob = struct.pack("<II", 64, 0) + modulus + bytes(256) + struct.pack("<I", numbers.e)
        return base64.b64encode(blob).decode() + " someone@somewhere\n"

    return encode


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    """The folder of a process of virtual phones, which has ended afterwards."""
    yield tmp_path / "state"
    stop_phones(tmp_path / "state")
