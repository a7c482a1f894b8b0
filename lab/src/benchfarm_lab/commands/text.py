"""Text: cat, head, tail, wc, cut, tr, sort, uniq, tac, rev, nl, seq, yes, paste, echo and friends as programs."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence

from benchfarm_lab.commands.invocation import Invocation, decoded, encoded
from benchfarm_lab.commands.options import read_options
from benchfarm_lab.commands.registry import command
from benchfarm_lab.contract import ByteSource, PhoneFileError
from benchfarm_lab.shell.printing import PrintfFaultError, echoed, printed
from benchfarm_lab.streams_of_files import HostFileReader

#: How often ``tail -f`` looks for more, in real seconds.
_LOOK_EVERY_S = 0.05


@command("cat")
def cat(call: Invocation) -> int:
    """Copy files to stdout."""
    options = read_options(call, "entuv")
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
    """Turn ``-5`` and ``+5`` into ``-n 5`` and ``-n +5``, where they aren't an option's value."""
    turned: list[str] = []
    for place, arg in enumerate(args):
        is_value = place > 0 and args[place - 1] in {"-n", "-c"}
        if not is_value and re.fullmatch(r"-\d+|\+\d+", arg):
            turned += ["-n", arg.removeprefix("-")]
        else:
            turned.append(arg)
    return turned


def _count(call: Invocation, text: str) -> int:
    match = re.fullmatch(r"[-+]?(\d+)([kKMG]?)", text)
    if text.startswith("-") and call.name == "head":
        call.fail('-n < 0 (see "head --help")')
    if match is None:
        call.fail(f"bad number '{text}'")
    return int(match.group(1)) << {"": 0, "k": 10, "K": 10, "M": 20, "G": 30}[match.group(2)]


@command("head")
def head(call: Invocation) -> int:
    """Print the beginning of files."""
    options = read_options(call, "qv", "nc", args=_with_number(call.args))
    several = (len(options.args) > 1 or "v" in options) and "q" not in options
    for place, (path, source) in enumerate(call.inputs(options.args)):
        if several:
            call.out.line(f"{chr(10) if place else ''}==> {path} <==")
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


def _kept_lines(data: bytes) -> list[bytes]:
    return [line + b"\n" for line in data.split(b"\n")[:-1]] + (
        [data.rsplit(b"\n", 1)[-1]] if not data.endswith(b"\n") and data else []
    )


@command("tail")
def tail(call: Invocation) -> int:
    """Print the end of files; -f goes on as they grow."""
    options = read_options(call, "fFqs", "nc", args=_with_number(call.args))
    several = len(options.args) > 1 and "q" not in options
    for place, (path, source) in enumerate(call.inputs(options.args)):
        if several:
            call.out.line(f"{chr(10) if place else ''}==> {path} <==")
        if "c" in options:
            count, whole = options.last("c"), source.read(-1)
            call.out.write(whole[_count(call, count) - 1 :] if count.startswith("+") else whole[-_count(call, count) :])
        else:
            _tail_lines(call, options.last("n", "10"), call.chunks(source))
        call.out.flush()
        if {"f", "F"} & options.flags and isinstance(source, HostFileReader):
            while True:
                piece = source.read(65536)
                if piece:
                    call.out.write(piece)
                    call.out.flush()
                else:
                    call.pause(_LOOK_EVERY_S)
                    call.out.flush()
    return 1 if call.failed else 0


def _tail_lines(call: Invocation, text: str, pieces: Iterator[bytes]) -> None:
    count = _count(call, text)
    if text.startswith("+"):
        lines = _kept_lines(b"".join(pieces))
        call.out.write(b"".join(lines[max(0, count - 1) :]))
        return
    kept: deque[bytes] = deque(maxlen=max(0, count))
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        kept.extend(line + b"\n" for line in whole[-count:] if count)
    if rest and count:
        kept.append(rest)
    call.out.write(b"".join(kept))


@command("wc")
def wc(call: Invocation) -> int:
    """Count lines, words, bytes, characters."""
    options = read_options(call, "lwcm")
    kinds = [kind for kind in "lwmc" if kind in options] or ["l", "w", "c"]
    totals = dict.fromkeys("lwmc", 0)
    rows: list[tuple[dict[str, int], str]] = []
    for path, source in call.inputs(options.args):
        counts = dict.fromkeys("lwmc", 0)
        inside = False
        try:
            for piece in call.chunks(source):
                counts["l"] += piece.count(b"\n")
                words = piece.split()
                counts["w"] += len(words) - (inside and bool(words) and not piece[:1].isspace())
                inside = not piece[-1:].isspace()
                counts["c"] += len(piece)
                counts["m"] += sum(1 for byte in piece if byte & 0xC0 != 0x80) if "m" in options else 0
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
        figures = " ".join(str(counts[kind]) if alone or one_file else f"{counts[kind]:>7}" for kind in kinds)
        call.out.line(f"{figures} {name}" if name else figures)
    return 1 if call.failed else 0


@command("tac")
def tac(call: Invocation) -> int:
    """Print lines backwards."""
    for _, source in call.inputs(call.args):
        for line in reversed(list(call.lines(source))):
            call.out.write(line + b"\n")
    return 1 if call.failed else 0


@command("rev")
def rev(call: Invocation) -> int:
    """Print each line backwards."""
    for _, source in call.inputs(call.args):
        for line in call.lines(source):
            call.out.line(decoded(line)[::-1])
    return 1 if call.failed else 0


@command("nl")
def nl(call: Invocation) -> int:
    """Number lines."""
    options = read_options(call, "E", "bnsvwl")
    number = int(options.last("v", "1"))
    for _, source in call.inputs(options.args):
        for line in call.lines(source):
            if line or options.last("b", "t") == "a":
                call.out.write(f"{number:>{options.last('w', '6')}}{options.last('s', chr(9))}".encode() + line + b"\n")
                number += 1
            else:
                call.out.line(" " * 7)
    return 1 if call.failed else 0


@command("paste")
def paste(call: Invocation) -> int:
    """Join lines of files side by side (-s: of each file)."""
    options = read_options(call, "s", "d")
    delimiter = options.last("d", "\t").replace("\\n", "\n").replace("\\t", "\t")
    columns = [[decoded(line) for line in call.lines(source)] for _, source in call.inputs(options.args)]
    if "s" in options:
        for column in columns:
            call.out.line(delimiter.join(column))
        return 1 if call.failed else 0
    for place in range(max((len(column) for column in columns), default=0)):
        call.out.line(delimiter.join(column[place] if place < len(column) else "" for column in columns))
    return 1 if call.failed else 0


@command("seq")
def seq(call: Invocation) -> int:
    """Count from one number to another."""
    separator, pad, args = "\n", False, list(call.args)
    while args and args[0] in {"-s", "-w", "-f"}:
        letter = args.pop(0)
        if letter == "-w":
            pad = True
        elif args and letter == "-s":
            separator = args.pop(0)
    try:
        numbers = [float(arg) for arg in args]
    except ValueError:
        call.fail("bad number")
    if not 1 <= len(numbers) <= 3:
        call.fail("Needs 1 argument")
    first, step, last = {1: (1.0, 1.0, numbers[-1]), 2: (numbers[0], 1.0, numbers[-1])}.get(
        len(numbers), (numbers[0], numbers[1 % len(numbers)], numbers[-1])
    )
    digits = max(len(arg.partition(".")[2]) for arg in args)
    if step == 0:
        call.fail("bad step")
    values = []
    count = 0
    while (first + count * step <= last + 1e-12) if step > 0 else (first + count * step >= last - 1e-12):
        values.append(f"{first + count * step:.{digits}f}")
        count += 1
        if not count % 4096:
            call.check_alive()
    width = max((len(value) for value in values), default=0) if pad else 0
    if values:
        call.out.line(separator.join(value.zfill(width) for value in values))
    return 0


@command("yes")
def yes(call: Invocation) -> int:
    """Print a line again and again until nobody reads it."""
    line = encoded(" ".join(call.args or ["y"]) + "\n") * 512
    while True:
        call.out.write(line)
        call.out.flush()
        call.check_alive()


@command("echo")
def echo(call: Invocation) -> int:
    """Print arguments (as a program: escapes only with -e)."""
    args = list(call.args)
    call.out.write(echoed(args if args and re.fullmatch(r"-[nE]*e[neE]*", args[0]) else ["-E", *args]))
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


@command("clear")
def clear(call: Invocation) -> int:
    """Clear the screen."""
    call.out.write(b"\x1b[2J\x1b[H")
    return 0


@command("pwd")
def pwd(call: Invocation) -> int:
    """Print the current folder."""
    call.out.line(call.cwd)
    return 0
