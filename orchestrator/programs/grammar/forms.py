"""What an output comes wrapped in: gzip, JSON, a notebook; and what can't be read at all."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import mmap
import tempfile
import zlib
from collections.abc import Iterator
from typing import IO, Final

from orchestrator.errors import OutputParseError
from orchestrator.programs.grammar.lines import Buffer, to_utf8

#: More than this isn't unpacked: a file of a few kilobytes may claim to hold terabytes.
MOST_UNPACKED_BYTES: Final = 1 << 30
_PIECE_BYTES: Final = 1 << 20
#: JSON is taken apart as a whole, so that larger ones are read as the text that they are.
_MOST_WHOLE_BYTES: Final = 1 << 26
_SAMPLE_BYTES: Final = 65_536
#: Keys of a notebook that hold nothing that was printed.
_NOT_TEXT: Final = frozenset(
    {"metadata", "execution_count", "cell_type", "output_type", "name", "image/png", "text/html"}
)
#: What compressed and binary files begin with, which hold no text to be read as it is.
_NO_TEXT: Final = (
    b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf", b"%PDF", b"\x89PNG", b"\x7fELF",
)  # fmt: skip


@contextlib.contextmanager
def unwrapped(buffer: Buffer) -> Iterator[Buffer]:
    """Give the text that a file holds, as UTF-8.

    Raises:
        OutputParseError: the file is no text, it is damaged, or it unpacks to too much.
    """
    with contextlib.ExitStack() as stack:
        if buffer[:2] == b"\x1f\x8b":
            buffer = _in_file(stack, _gzip_pieces(buffer))
        if buffer[:8].startswith(_NO_TEXT) or buffer[4:8] == b"TFL3":
            raise OutputParseError(
                "the file is no text", hint="give the program's output as text, or that text in gzip"
            )
        yield to_utf8(buffer)


def json_text(buffer: Buffer) -> bytes | None:
    """Return the texts that a JSON document holds, a notebook's cells and a logcat's messages included.

    None where the text isn't JSON: neither one document nor one in each line.
    """
    if not 2 <= len(buffer) <= _MOST_WHOLE_BYTES or buffer[:_SAMPLE_BYTES].lstrip()[:1] not in (b"{", b"[", b'"'):
        return None
    text = buffer[:].decode("utf-8", "replace")
    texts: list[str] = []
    try:
        try:
            documents = [json.loads(text)]
        except ValueError:
            # One document in each line; what isn't one may stand among them.
            first, *lines = filter(str.strip, text.split("\n"))
            documents = [json.loads(first)]
            for line in lines:
                with contextlib.suppress(ValueError, RecursionError):
                    documents.append(json.loads(line))
        for document in documents:
            _collect(document, texts)
    except (ValueError, RecursionError):
        return None
    # Of several documents each is whole; the text in a single one may have been cut off.
    return ("\n".join(texts) + "\n" * (len(documents) > 1)).encode("utf-8", "replace")


def _collect(value: object, texts: list[str]) -> None:
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, list):
        if value and all(isinstance(item, str) for item in value):
            # A notebook keeps a text as its lines, each with its end.
            texts.append(("" if any(item.endswith("\n") for item in value) else "\n").join(value))
            return
        for item in value:
            _collect(item, texts)
    elif isinstance(value, dict):
        message = _logcat_message(value)
        if message is not None:
            texts.append(message)
            return
        # A cell's command stands before what it printed.
        for key in sorted(value.keys() - _NOT_TEXT, key=[*value].index):
            if key != "outputs":
                _collect(value[key], texts)
        _collect(value.get("outputs"), texts)


def _logcat_message(entry: dict[str, object]) -> str | None:
    """Return a message as ``logcat -v brief`` shows it; None for what isn't one of Android Studio's or a log tool's."""
    header = entry.get("header")
    about = header if isinstance(header, dict) else entry
    message, tag = entry.get("message", entry.get("msg")), about.get("tag")
    if not isinstance(message, str) or not isinstance(tag, str):
        return None
    level = next((v for k in ("logLevel", "level", "priority", "severity") if isinstance(v := about.get(k), str)), "I")
    pid = about.get("pid", "")
    pid = pid if isinstance(pid, int) or (isinstance(pid, str) and pid.isascii() and pid.isdigit()) else ""
    mark = f"{'F' if level[:1].upper() == 'A' else level[:1].upper() or 'I'}/{tag}"
    mark = f"{mark}({pid})" if pid != "" else mark
    # A message is whole, whatever follows it.
    return "".join(f"{mark}: {line}\n" for line in message.split("\n"))


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
    return stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) if size else b""


def _gzip_pieces(buffer: Buffer) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=io.BytesIO(buffer[:])) as file:
        while True:
            try:
                piece = file.read1(_PIECE_BYTES)
            except EOFError:
                # It was cut off: what came before still counts.
                return
            except (OSError, zlib.error) as error:
                raise OutputParseError(f"the gzip file is damaged: {error}", hint="copy it again") from error
            if not piece:
                return
            yield piece
