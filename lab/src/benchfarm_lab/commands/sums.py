"""Checksums and bytes: sha256sum, md5sum, cmp, od, dd, base64."""

from __future__ import annotations

import base64 as base64_codec
import hashlib
import zlib

from benchfarm_lab.commands.invocation import Invocation, decoded
from benchfarm_lab.commands.options import need_args, read_options
from benchfarm_lab.commands.registry import command
from benchfarm_lab.contract import ByteSource, PhoneFileError
from benchfarm_lab.streams_of_files import HostFileReader

_ALGORITHMS = {"sha256sum": "sha256", "sha1sum": "sha1", "md5sum": "md5", "sha512sum": "sha512", "sha224sum": "sha224"}


def _digest(call: Invocation, source: ByteSource) -> str:
    digest = hashlib.new(_ALGORITHMS[call.name], usedforsecurity=False)
    for piece in call.chunks(source):
        digest.update(piece)
    return digest.hexdigest()


@command(*_ALGORITHMS)
def checksum(call: Invocation) -> int:
    """Print checksums of files, or check them (-c)."""
    options = read_options(call, "bcs")
    if "c" in options:
        return _check(call, options.args, quiet="s" in options)
    for path, source in call.inputs(options.args):
        try:
            digest = _digest(call, source)
        except PhoneFileError as exc:
            call.complain(f"{path}: {exc}")
            call.failed = True
            continue
        call.out.line(digest if "b" in options else f"{digest}  {path}")
    return 1 if call.failed else 0


def _check(call: Invocation, paths: list[str], *, quiet: bool) -> int:
    failures = 0
    for _, source in call.inputs(paths):
        for line in call.lines(source):
            expected, _, path = decoded(line).partition(" ")
            path = path.removeprefix(" ").removeprefix("*")
            try:
                good = _digest(call, call.open(path)) == expected.lower()
            except PhoneFileError as exc:
                call.complain(f"{path}: {exc}")
                good = False
            failures += not good
            if not quiet:
                call.out.line(f"{path}: {'OK' if good else 'FAILED'}")
    if failures and not quiet:
        call.complain(f"WARNING: {failures} of them didn't match")
    return 1 if failures or call.failed else 0


@command("cksum", "crc32")
def crc32(call: Invocation) -> int:
    """Print CRC-32 checksums."""
    options = read_options(call, "HILNP")
    for path, source in call.inputs(options.args):
        value = size = 0
        for piece in call.chunks(source):
            value = zlib.crc32(piece, value)
            size += len(piece)
        call.out.line(f"{value:08x}" if call.name == "crc32" else f"{value} {size} {path}")
    return 1 if call.failed else 0


@command("cmp")
def cmp(call: Invocation) -> int:
    """Say where two files differ first."""
    options = read_options(call, "sl")
    need_args(call, options, 2)
    first, second = (call.open(path).read(-1) for path in options.args[:2])
    if first == second:
        return 0
    at = next((k for k, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
    if at is None:
        short = options.args[0] if len(first) < len(second) else options.args[1]
        if "s" not in options:
            call.complain(f"EOF on {short}")
    elif "s" not in options:
        line = first[:at].count(b"\n") + 1
        call.out.line(f"{options.args[0]} {options.args[1]} differ: char {at + 1}, line {line}")
    return 1


@command("od")
def od(call: Invocation) -> int:
    """Dump bytes; octal words, or as ``-t x1``, ``-c`` and so on say."""
    options = read_options(call, "cbxdov", "AtNjw")
    skip, limit = int(options.last("j", "0"), 0), int(options.last("N", "-1"), 0)
    kind = options.last("t", "x1" if "b" not in options and "x" not in options and "c" not in options else "")
    kind = (
        kind
        if "t" in options
        else "c"
        if "c" in options
        else "o1"
        if "b" in options
        else "x2"
        if "x" in options
        else "o2"
    )
    data = b"".join(source.read(-1) for _, source in call.inputs(options.args))[skip:]
    data = data if limit < 0 else data[:limit]
    base = options.last("A", "o")
    for at in range(0, len(data), 16):
        call.out.line(_address(base, skip + at) + _row(data[at : at + 16], kind))
    if base != "n":
        call.out.line(_address(base, skip + len(data)))
    return 1 if call.failed else 0


def _address(base: str, value: int) -> str:
    return {"n": "", "d": f"{value:07d}", "x": f"{value:06x}"}.get(base, f"{value:07o}")


def _row(row: bytes, kind: str) -> str:
    form = kind[0]
    if form in "ca":
        names = {0: "\\0", 7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r"}
        return "".join(f"{names.get(byte, chr(byte) if 32 <= byte < 127 else f'{byte:03o}'):>4}" for byte in row)
    size = int(kind[1:] or 4)
    words = [int.from_bytes(row[at : at + size].ljust(size, b"\0"), "little") for at in range(0, len(row), size)]
    if form == "d":
        words = [word - (1 << 8 * size) if word >> (8 * size - 1) else word for word in words]
    width = {"x": 2 * size, "o": -(-8 * size // 3)}.get(form, len(str(1 << 8 * size)) + (form == "d"))
    return "".join(
        f" {word:0{width}x}" if form == "x" else f" {word:0{width}o}" if form == "o" else f" {word:{width}d}"
        for word in words
    )


@command("xxd", "hexdump")
def xxd(call: Invocation) -> int:
    """Dump bytes in hexadecimal (``-p``: nothing else)."""
    options = read_options(call, "pC", "lsc")
    data = b"".join(source.read(-1) for _, source in call.inputs(options.args))
    data = data[int(options.last("s", "0"), 0) :]
    data = data[: int(options.last("l"), 0)] if "l" in options else data
    if "p" in options:
        for at in range(0, len(data), 30):
            call.out.line(data[at : at + 30].hex())
        return 1 if call.failed else 0
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        pairs = " ".join(row[k : k + 2].hex() for k in range(0, len(row), 2))
        call.out.line(f"{at:08x}: {pairs:<39}  {''.join(chr(b) if 32 <= b < 127 else '.' for b in row)}")
    return 1 if call.failed else 0


@command("base64")
def base64(call: Invocation) -> int:
    """Encode or decode (-d) base 64."""
    options = read_options(call, "di", "w")
    data = b"".join(source.read(-1) for _, source in call.inputs(options.args))
    if "d" in options:
        try:
            call.out.write(base64_codec.b64decode(data))
        except ValueError:
            call.fail("bad input")
        return 1 if call.failed else 0
    text = base64_codec.b64encode(data).decode()
    width = int(options.last("w", "76")) or max(1, len(text))
    for at in range(0, len(text), width):
        call.out.line(text[at : at + width])
    return 1 if call.failed else 0


_DD_SETTINGS = frozenset({"if", "of", "bs", "ibs", "obs", "count", "skip", "seek", "conv", "status", "iflag", "oflag"})
_SIZES = {"c": 1, "w": 2, "b": 512, "k": 1024, "K": 1024, "M": 1 << 20, "G": 1 << 30, "kB": 1000, "MB": 10**6}


def _size(call: Invocation, text: str) -> int:
    digits = text.rstrip("cwbkKMGB")
    unit = text[len(digits) :]
    if not digits.isdigit() or (unit and unit not in _SIZES):
        call.fail(f"bad number '{text}'")
    return int(digits) * _SIZES.get(unit, 1)


@command("dd")
def dd(call: Invocation) -> int:
    """Copy blocks: if=, of=, bs=, count=, skip=, seek=, conv=notrunc."""
    settings = dict(arg.partition("=")[::2] for arg in call.args)
    unknown = [name for name in settings if name not in _DD_SETTINGS]
    if unknown:
        call.fail(f"bad argument '{unknown[0]}'")
    block = _size(call, settings.get("bs", settings.get("ibs", "512")))
    source = call.open(settings["if"]) if "if" in settings else call.stdin
    skip = block * _size(call, settings.get("skip", "0"))
    left = -1 if "count" not in settings else block * _size(call, settings["count"])
    if skip and isinstance(source, HostFileReader):
        source.skip_to(skip)
    elif skip:
        while skip > 0 and (piece := source.read(min(skip, 65536))):
            skip -= len(piece)
    writer = call.system.files.open_write(
        call.path(settings["of"]), append="seek" in settings or settings.get("conv") == "notrunc", uid=call.uid
    ) if "of" in settings else None  # fmt: skip
    begun_s, copied = call.system.time.uptime_s(), 0
    try:
        while left != 0 and (piece := source.read(min(left, 1 << 20) if left > 0 else 1 << 20)):
            left -= len(piece) if left > 0 else 0
            copied += len(piece)
            if writer is not None:
                writer.write(piece)
            else:
                call.out.write(piece)
            call.check_alive()
    finally:
        if writer is not None:
            writer.close()
    if settings.get("status") != "none":
        whole, part = divmod(copied, block)
        took_s = max(1e-6, call.system.time.uptime_s() - begun_s)
        call.error(f"{whole}+{int(part > 0)} records in\n{whole}+{int(part > 0)} records out\n"
                   f"{copied} bytes copied, {took_s:.3f} s, {copied / took_s:.0f} B/s")  # fmt: skip
    return 0
