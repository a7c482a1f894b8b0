"""Text: cat, head, tail, wc, seq, printf, true, false, and sums of files."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Iterator, Sequence

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.commands.options import need_args, read_options
from benchfarm_virtual.commands.registry import command
from benchfarm_virtual.contract import ByteSource, PhoneFileError
from benchfarm_virtual.shell.printing import PrintfFaultError, printed


@command("cat")
def cat(call: Invocation) -> int:
    """Copy files to stdout."""
    options = read_options(call, "u")
    for path, source in call.inputs(options.args):
        try:
            for piece in call.chunks(source):
                call.out.write(piece)
                if path == "-":
                    call.out.flush()
        except PhoneFileError as exc:
            call.complain(f"{path}: {exc}")
            call.failed = True
    return 1 if call.failed else 0


def _with_number(args: Sequence[str]) -> list[str]:
    """Turn ``-5`` into ``-n 5``, where it isn't an option's value."""
    turned: list[str] = []
    for place, arg in enumerate(args):
        is_value = place > 0 and args[place - 1] in {"-n", "-c"}
        turned += ["-n", arg[1:]] if not is_value and re.fullmatch(r"-\d+", arg) else [arg]
    return turned


def _count(call: Invocation, text: str) -> int:
    if not text.isdigit():
        call.fail(f"bad number '{text}'")
    return int(text)


@command("head")
def head(call: Invocation) -> int:
    """Print the beginning of files."""
    options = read_options(call, "", "nc", args=_with_number(call.args))
    for _, source in call.inputs(options.args):
        if "c" in options:
            left = _count(call, options.last("c"))
            while left > 0 and (piece := source.read(min(left, 65536))):
                call.out.write(piece)
                left -= len(piece)
            continue
        _copy_lines(call, source, _count(call, options.last("n", "10")))
    return 1 if call.failed else 0


def _copy_lines(call: Invocation, source: ByteSource, count: int) -> None:
    while count > 0:
        piece = source.read(65536)
        if not piece:
            return
        end = 0
        while count > 0 and (found := piece.find(b"\n", end)) >= 0:
            end = found + 1
            count -= 1
        call.out.write(piece if count > 0 else piece[:end])


@command("tail")
def tail(call: Invocation) -> int:
    """Print the last lines of files."""
    options = read_options(call, "", "n", args=_with_number(call.args))
    count = _count(call, options.last("n", "10"))
    for _, source in call.inputs(options.args):
        _tail_lines(call, count, call.chunks(source))
    return 1 if call.failed else 0


def _tail_lines(call: Invocation, count: int, pieces: Iterator[bytes]) -> None:
    kept: deque[bytes] = deque(maxlen=count)
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        kept.extend(line + b"\n" for line in whole[-count:])
    if rest:
        kept.append(rest)
    call.out.write(b"".join(kept))


@command("wc")
def wc(call: Invocation) -> int:
    """Count lines, words and bytes."""
    options = read_options(call, "lwc")
    kinds = [kind for kind in "lwc" if kind in options] or ["l", "w", "c"]
    totals = dict.fromkeys("lwc", 0)
    rows: list[tuple[dict[str, int], str]] = []
    for path, source in call.inputs(options.args):
        counts = dict.fromkeys("lwc", 0)
        inside = False
        try:
            for piece in call.chunks(source):
                counts["l"] += piece.count(b"\n")
                words = piece.split()
                counts["w"] += len(words) - (inside and bool(words) and not piece[:1].isspace())
                inside = not piece[-1:].isspace()
                counts["c"] += len(piece)
        except PhoneFileError as exc:
            call.complain(f"{path}: {exc}")
            call.failed = True
            continue
        rows.append((counts, path if options.args else ""))
        for kind in totals:
            totals[kind] += counts[kind]
    if len(options.args) > 1:
        rows.append((totals, "total"))
    alone = len(kinds) == 1 and len(rows) == 1
    for counts, name in rows:
        one_file = len(rows) == 1 and bool(options.args)
        figures = " ".join(
            str(counts[kind]) if alone or one_file else f"{counts[kind]:>7}" for kind in kinds
        )
        call.out.line(f"{figures} {name}" if name else figures)
    return 1 if call.failed else 0


@command("seq")
def seq(call: Invocation) -> int:
    """Count from one whole number to another."""
    options = read_options(call, "")
    need_args(call, options, 1)
    *before, last = (_count(call, arg) for arg in options.args)
    for number in range(before[0] if before else 1, last + 1):
        call.out.line(number)
    return 0


@command("printf")
def printf(call: Invocation) -> int:
    """Print arguments by a format."""
    args = call.args[1:] if call.args[:1] == ("--",) else call.args
    if not args:
        call.fail('Needs 1 argument (see "printf --help")')
    try:
        call.out.write(printed(args[0], args[1:]))
    except PrintfFaultError as exc:
        call.out.write(exc.printed)
        call.fail(str(exc))
    return 0


@command("true")
def true(call: Invocation) -> int:
    """Succeed."""
    return 0


@command("false")
def false(call: Invocation) -> int:
    """Fail."""
    return 1


_ALGORITHMS = {"sha256sum": "sha256", "md5sum": "md5"}


def _digest(call: Invocation, source: ByteSource) -> str:
    digest = hashlib.new(_ALGORITHMS[call.name], usedforsecurity=False)
    for piece in call.chunks(source):
        digest.update(piece)
    return digest.hexdigest()


@command(*_ALGORITHMS)
def checksum(call: Invocation) -> int:
    """Print checksums of files."""
    options = read_options(call, "b")
    for path, source in call.inputs(options.args):
        try:
            digest = _digest(call, source)
        except PhoneFileError as exc:
            call.complain(f"{path}: {exc}")
            call.failed = True
            continue
        call.out.line(digest if "b" in options else f"{digest}  {path}")
    return 1 if call.failed else 0
