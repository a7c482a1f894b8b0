"""Unpacks texts from gzip, zip archives, JSON, notebooks and HTML, and refuses other files."""

from __future__ import annotations

import contextlib
import gzip
import html
import io
import json
import mmap
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Final

from orchestrator.errors import OutputParseError
from orchestrator.extensions.interop.texts.pasted import to_utf8
from orchestrator.reading.lines import Buffer

#: More than this isn't unpacked: a file of a few kilobytes may claim to hold terabytes.
MOST_UNPACKED_BYTES: Final = 1 << 30
_PIECE_BYTES: Final = 1 << 20
_MOST_MEMBERS: Final = 1000
#: JSON and HTML are taken apart as a whole, so that larger ones are read as the text that they are.
_MOST_WHOLE_BYTES: Final = 1 << 26
_SAMPLE_BYTES: Final = 65_536
_HEAD_BYTES: Final = 512
#: Keys of a notebook that hold nothing that was printed.
_NOT_TEXT: Final = frozenset(
    {"metadata", "execution_count", "cell_type", "output_type", "name", "image/png", "text/html"}
)
_JSON_STARTS: Final = frozenset('{["')
_HINT: Final = "give the program's output as text, or that text in gzip or zip"

_TAG: Final = re.compile(
    r"</?(?:html|head|body|pre|p|div|span|code|samp|kbd|td|th|tr|table|tbody|thead|li|ul|ol|b|i|em|strong|font|a|h[1-6]"
    r"|details|summary|blockquote|small|tt)(?:\s[^<>]{0,2000})?/?>",
    re.IGNORECASE,
)
_BREAK: Final = re.compile(
    r"<br\s{0,10}/?>(?:\r?\n)?|</(?:p|div|li|tr|pre|h[1-6]|blockquote)>", re.IGNORECASE
)
_HTML: Final = re.compile(
    rb"<(?:br\s{0,10}/?|pre|html|!doctype html|p|div|td|li|span|code)\b[^<>]{0,2000}>",
    re.IGNORECASE,
)


@contextlib.contextmanager
def unpacked(buffer: Buffer) -> Iterator[Buffer]:
    """Yield a file's content, unpacked from gzip or zip, as UTF-8.

    Raises:
        OutputParseError: the file is damaged, or it unpacks to too much.
    """
    with contextlib.ExitStack() as stack:
        if buffer[:2] == b"\x1f\x8b":
            buffer = _in_file(stack, _gzip_pieces(buffer))
        elif buffer[:4] == b"PK\x03\x04":
            buffer = _in_file(stack, _zip_pieces(buffer))
        yield to_utf8(buffer)


@contextlib.contextmanager
def unwrapped(packed: Buffer) -> Iterator[Buffer]:
    """Yield a file's text as UTF-8.

    Raises:
        OutputParseError: the file is no text, it is damaged, or it unpacks to too much.
    """
    with unpacked(packed) as buffer:
        if _is_binary(buffer[:_HEAD_BYTES]):
            raise OutputParseError("the file is no text", hint=_HINT)
        if len(buffer) <= _MOST_WHOLE_BYTES and _HTML.search(buffer[:_SAMPLE_BYTES]):
            yield _without_tags(buffer)
        else:
            yield buffer


def _is_binary(head: bytes) -> bool:
    """Whether a file's first bytes are of no text: a model, a picture, another archive."""
    controls = sum(byte < 32 and byte not in b"\t\n\r\x1b\f\b" for byte in head)
    return controls > len(head) // 16


def json_text(buffer: Buffer) -> bytes | None:
    """Return the texts that a JSON document holds, a notebook's cells and a logcat's messages
    included; lines beside documents of one line each as they are.

    None where the text isn't JSON: neither is it one document nor is its first line.
    """
    start = buffer[:_SAMPLE_BYTES].lstrip()[:1].decode("ascii", "replace")
    if not 2 <= len(buffer) <= _MOST_WHOLE_BYTES or start not in _JSON_STARTS:
        return None
    text = buffer[:].decode("utf-8", "replace")
    texts: list[str] = []
    try:
        try:
            _collect(json.loads(text), texts)
            # Its text may have been cut off.
            return "\n".join(texts).encode("utf-8", "replace")
        except ValueError:
            first, *lines = text.strip().split("\n")
            _collect(json.loads(first), texts)
    except (ValueError, RecursionError):
        return None
    is_cut = False
    for line in lines:
        try:
            is_cut = line.lstrip()[:1] not in _JSON_STARTS
            if is_cut:
                texts.append(line)
            else:
                _collect(json.loads(line), texts)
        except (ValueError, RecursionError):
            texts.append(line)
            is_cut = True
    end = "" if is_cut and not text.endswith("\n") else "\n"
    return ("\n".join(texts) + end).encode("utf-8", "replace")


def _collect(value: object, texts: list[str]) -> None:
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, list):
        if value and all(isinstance(item, str) for item in value):
            # A notebook stores a text as lines, each with its line end.
            texts.append(("" if any(item.endswith("\n") for item in value) else "\n").join(value))
            return
        for item in value:
            _collect(item, texts)
    elif isinstance(value, dict):
        message = _logcat_message(value)
        if message is not None:
            texts.append(message)
            return
        # A cell's command comes before its output.
        for key in sorted(value.keys() - _NOT_TEXT, key=[*value].index):
            if key != "outputs":
                _collect(value[key], texts)
        _collect(value.get("outputs"), texts)


def _logcat_message(entry: dict[str, object]) -> str | None:
    """Return a message as ``logcat -v brief`` shows it.

    None for an object that is no log message of Android Studio or a log tool.
    """
    header = entry.get("header")
    about = header if isinstance(header, dict) else entry
    message, tag = entry.get("message", entry.get("msg")), about.get("tag")
    if not isinstance(message, str) or not isinstance(tag, str):
        return None
    level = next(
        (
            v
            for k in ("logLevel", "level", "priority", "severity")
            if isinstance(v := about.get(k), str)
        ),
        "I",
    )
    letter = level[:1].upper().replace("A", "F") or "I"
    pid = str(about.get("pid", ""))
    mark = f"{letter}/{tag}({pid})" if pid.isascii() and pid.isdigit() else f"{letter}/{tag}"
    # A message is whole, whatever follows it.
    return "".join(f"{mark}: {line}\n" for line in message.split("\n"))


def _without_tags(buffer: Buffer) -> bytes:
    text = _BREAK.sub("\n", buffer[:].decode("utf-8", "replace"))
    return html.unescape(_TAG.sub("", text)).encode("utf-8", "replace")


def _in_file(stack: contextlib.ExitStack, pieces: Iterator[bytes]) -> Buffer:
    file: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > MOST_UNPACKED_BYTES:
            raise OutputParseError(
                f"the file unpacks to more than {MOST_UNPACKED_BYTES >> 20} MiB",
                hint="unpack it, and give the part that you need",
            )
        file.write(piece)
    file.flush()
    return (
        stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) if size else b""
    )


def _gzip_pieces(buffer: Buffer) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=io.BytesIO(buffer[:])) as file:
        while True:
            try:
                piece = file.read1(_PIECE_BYTES)
            except EOFError:
                # It was cut off: the part before still counts.
                return
            except (OSError, zlib.error) as error:
                raise OutputParseError(
                    f"the gzip file is damaged: {error}", hint="copy it again"
                ) from error
            if not piece:
                return
            yield piece


def _zip_pieces(buffer: Buffer) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(buffer[:])) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if len(members) > _MOST_MEMBERS:
                raise OutputParseError(
                    f"the archive has more than {_MOST_MEMBERS} files", hint="unpack it"
                )
            for member in members:
                with archive.open(member) as file:
                    piece = file.read(_PIECE_BYTES)
                    if _is_binary(piece[:_HEAD_BYTES]):
                        continue
                    while piece:
                        yield piece
                        piece = file.read(_PIECE_BYTES)
                yield b"\n"
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        RuntimeError,
        NotImplementedError,
        OSError,
    ) as error:
        raise OutputParseError(f"the zip archive can't be read: {error}", hint=_HINT) from error
