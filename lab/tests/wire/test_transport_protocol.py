"""The protocol byte by byte: what no real adb server would send, and what only an old one does."""

import random
import socket
import struct

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.hashes import SHA1
from hypothesis import given
from hypothesis import strategies as st

from benchfarm_lab.wire import HEADER, Packet, PacketReader, WireError, header_for

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


def test_banner_names_the_phone_and_its_features(phone, key):
    command, version, max_bytes, banner = RawHost(phone).prove(key)
    assert (command, version, max_bytes) == (b"CNXN", 0x01000001, MAX_BYTES)
    assert banner.startswith(b"device::ro.product.name=blueline;ro.product.model=Pixel 3;ro.product.device=blueline;")
    assert b"features=shell_v2,cmd" in banner


def test_old_server_gets_checksums_and_small_packets(phone, key):
    host = RawHost(phone, version=0x01000000, max_bytes=4096)
    assert host.prove(key)[1] == 0x01000000
    output, sizes = host.run(b"exec:head -c 100000 /dev/zero")
    assert output == bytes(100_000)
    assert max(sizes) <= 4096


def test_wrong_checksum_from_an_old_server_ends_the_connection(phone, key):
    host = RawHost(phone, version=0x01000000)
    host.prove(key)
    host.send(b"OPEN", 1, 0, b"shell:echo x\0", checksum=1)
    with pytest.raises((EOFError, ConnectionError)):
        host.receive()


def test_packets_are_as_large_as_both_sides_take(phone, key):
    host = RawHost(phone)
    host.prove(key)
    output, sizes = host.run(b"exec:head -c 9000000 /dev/zero")
    assert len(output) == 9_000_000
    assert max(sizes) <= MAX_BYTES


def test_signature_by_another_key_is_answered_by_a_new_token(phone, key):
    host = RawHost(phone)
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    command, kind, _, token = host.prove(stranger)
    assert (command, kind, len(token)) == (b"AUTH", 1, 20)
    host.send(b"AUTH", 2, 0, key.sign(token, PKCS1v15(), Prehashed(SHA1())))
    assert host.receive()[0] == b"CNXN"


def test_old_signature_is_no_proof_for_a_new_token(phone, key):
    first = RawHost(phone)
    _, _, _, token = first.receive()
    signature = key.sign(token, PKCS1v15(), Prehashed(SHA1()))
    second = RawHost(phone)
    second.receive()
    second.send(b"AUTH", 2, 0, signature)
    assert second.receive()[:2] == (b"AUTH", 1)


def test_nothing_can_be_opened_before_the_key_is_proved(phone, key):
    host = RawHost(phone)
    host.send(b"OPEN", 1, 0, b"shell:echo in\0")
    host.send(b"AUTH", 3, 0, b"a public key\0")
    assert host.prove(key)[0] == b"CNXN"  # had the shell been opened, its OKAY would be here
    output, _ = host.run(b"exec:echo in")
    assert output == b"in\n"


def test_bytes_that_are_no_packet_end_the_connection_and_not_the_phone(phone, key):
    for garbage in (bytes(24), b"GET / HTTP/1.1\r\n\r\nHost: somewhere\r\n", header_for(1, 0, 0, 1 << 31)):
        with socket.create_connection(("127.0.0.1", phone.port), timeout=60) as sock:
            sock.sendall(garbage)
            try:
                assert sock.recv(100) == b""
            except ConnectionError:
                pass
    assert RawHost(phone).prove(key)[0] == b"CNXN"


def test_packets_for_streams_that_do_not_exist_are_ignored(phone, key):
    host = RawHost(phone)
    host.prove(key)
    for command in (b"WRTE", b"OKAY", b"CLSE"):
        host.send(command, 77, 99, b"x" if command == b"WRTE" else b"")
    host.send(b"OPEN", 5, 0, b"no-such-service:\0")
    assert host.receive()[:3] == (b"CLSE", 0, 5)
    assert host.run(b"exec:echo in", local_id=6)[0] == b"in\n"


def test_phone_waits_for_the_okay_before_it_writes_more(phone, key):
    host = RawHost(phone)
    host.prove(key)
    host.send(b"OPEN", 1, 0, b"exec:head -c 3000000 /dev/zero\0")
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


def test_sync_request_that_is_unknown_or_too_long_fails_with_a_word(phone, key):
    host = RawHost(phone)
    host.prove(key)
    for request in (b"NOPE\x01\x00\x00\x00x", b"STAT\xff\xff\xff\x00"):
        host.send(b"OPEN", 1, 0, b"sync:\0")
        _, remote_id, _, _ = host.receive()
        host.send(b"WRTE", 1, remote_id, request)
        packets = [host.receive() for _ in range(2)]
        answer = next(payload for command, _, _, payload in packets if command == b"WRTE")
        assert answer.startswith(b"FAIL")
        host.send(b"OKAY", 1, remote_id)
        assert host.receive()[0] == b"CLSE"


@given(
    st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=300)), max_size=8),
    st.integers(1, 400),
    st.randoms(use_true_random=False),
)
def test_packets_are_read_whole_however_the_bytes_come(packets, buffer_bytes, chance):
    wire = b"".join(header_for(command, 1, 2, len(data)) + data for command, data in packets)
    read: list[Packet] = []
    reader = PacketReader(read.append, bytearray(buffer_bytes))
    at = 0
    while at < len(wire):
        room = reader.room()
        count = min(len(room), chance.randint(1, 200), len(wire) - at)
        room[:count] = wire[at : at + count]
        reader.received(count)
        at += count
    assert [(p.command, bytes(p.payload)) for p in read] == packets


def test_header_whose_magic_is_wrong_is_no_packet():
    buffer = bytearray(64)
    reader = PacketReader(lambda packet: None, buffer)
    buffer[:24] = HEADER.pack(1, 2, 3, 0, 0, random.Random(1).getrandbits(31))
    with pytest.raises(WireError):
        reader.received(24)
