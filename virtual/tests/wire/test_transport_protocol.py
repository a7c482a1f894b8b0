"""The protocol byte by byte: what no real adb server would send, and what only an old one does."""

import socket
import struct

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.hashes import SHA1

MAX_BYTES = 1024 * 1024


@pytest.fixture(scope="module")
def key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture
def phone(key, make_lab, tmp_path, encode_public_key):
    path = tmp_path / "adbkey.pub"
    path.write_text(encode_public_key(key))
    return make_lab(keys=[path]).add("pixel-3")


class RawHost:
    """The host's side of the protocol, by hand."""

    def __init__(self, phone, *, version=0x01000001, max_bytes=MAX_BYTES):
        self.sock = socket.create_connection(("127.0.0.1", phone.port), timeout=60)
        self.version = version
        self.send(b"CNXN", version, max_bytes, b"host::features=shell_v2\0")

    def send(self, command, arg0, arg1, payload=b"", *, checksum=None):
        word = int.from_bytes(command, "little")
        total = sum(payload) & 0xFFFFFFFF if checksum is None else checksum
        head = struct.pack("<6I", word, arg0, arg1, len(payload), total, word ^ 0xFFFFFFFF)
        self.sock.sendall(head + payload)

    def receive(self):
        head = self._exactly(24)
        word, arg0, arg1, length, total, _ = struct.unpack("<6I", head)
        payload = self._exactly(length)
        if self.version < 0x01000001:
            assert sum(payload) & 0xFFFFFFFF == total
        return word.to_bytes(4, "little"), arg0, arg1, payload

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self.sock.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def prove(self, key):
        command, kind, _, token = self.receive()
        assert (command, kind, len(token)) == (b"AUTH", 1, 20)
        self.send(b"AUTH", 2, 0, key.sign(token, PKCS1v15(), Prehashed(SHA1())))
        return self.receive()

    def run(self, service, local_id=1):
        """Open a service and return all that it writes, with one OKAY for each packet."""
        self.send(b"OPEN", local_id, 0, service + b"\0")
        output, sizes, remote_id = b"", [], 0
        while True:
            command, remote, local, payload = self.receive()
            assert local == local_id
            if command == b"OKAY":
                remote_id = remote
            elif command == b"WRTE":
                assert remote == remote_id
                output += payload
                sizes.append(len(payload))
                self.send(b"OKAY", local_id, remote_id)
            elif command == b"CLSE":
                return output, sizes


def test_a_server_gets_packets_as_small_as_it_asks_for(phone, key):
    host = RawHost(phone, max_bytes=4096)
    host.prove(key)
    output, sizes = host.run(b"exec:dd if=/dev/zero bs=100000 count=1")
    assert output == bytes(100_000)
    assert max(sizes) <= 4096


def test_packets_are_as_large_as_both_sides_take(phone, key):
    host = RawHost(phone)
    host.prove(key)
    output, sizes = host.run(b"exec:dd if=/dev/zero bs=9000000 count=1")
    assert len(output) == 9_000_000
    assert max(sizes) <= MAX_BYTES


def test_phone_waits_for_the_okay_before_it_writes_more(phone, key):
    host = RawHost(phone)
    host.prove(key)
    host.send(b"OPEN", 1, 0, b"exec:dd if=/dev/zero bs=3000000 count=1\0")
    assert host.receive()[0] == b"OKAY"
    command, remote_id, _, payload = host.receive()
    assert command == b"WRTE"
    # Another stream's answer comes next: nothing more of the first one is under way.
    host.send(b"OPEN", 2, 0, b"no-such-service:\0")
    assert host.receive()[:3] == (b"CLSE", 0, 2)
    size_bytes = len(payload)
    while size_bytes < 3_000_000:
        host.send(b"OKAY", 1, remote_id)
        command, _, local_id, payload = host.receive()
        assert (command, local_id) == (b"WRTE", 1)
        size_bytes += len(payload)
    assert size_bytes == 3_000_000
