"""Text: cat, head, tail, wc, cut, tr, sort, uniq, tac, rev, nl, seq, yes, paste, echo and friends as programs."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence

from orchestrator.virtual.commands.invocation import Invocation, decoded, encoded
from orchestrator.virtual.commands.options import Options, need_args, read_options
from orchestrator.virtual.commands.registry import command
from orchestrator.virtual.contract import PhoneFileError
from orchestrator.virtual.shell.printing import PrintfFaultError, echoed, printed
from orchestrator.virtual.streams_of_files import HostFileReader

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
        wanted = options.last("n", "10")
        if wanted.startswith("-"):
            lines = _kept_lines(source.read(-1))
            call.out.write(b"".join(lines[: max(0, len(lines) - _count(call, wanted))]))
            continue
        _copy_lines(call, source.read, _count(call, wanted))
    return 1 if call.failed else 0


def _copy_lines(call: Invocation, read: object, count: int) -> None:
    reader = read
    while count > 0:
        piece = reader(65536)  # type: ignore[operator]
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
        figures = " ".join(f"{counts[kind]}" if alone else f"{counts[kind]:>7}" for kind in kinds).strip() if alone else (
            " ".join(f"{counts[kind]:>7}" for kind in kinds))  # fmt: skip
        call.out.line(f"{figures} {name}" if name else figures)
    return 1 if call.failed else 0


def _ranges(call: Invocation, text: str) -> list[tuple[int, int]]:
    ranges = []
    for item in text.split(","):
        match = re.fullmatch(r"(\d*)(-?)(\d*)", item)
        if match is None or not (match.group(1) or match.group(3)):
            call.fail(f"bad range '{item}'")
        first = int(match.group(1) or 1)
        last = first if not match.group(2) else int(match.group(3) or 1 << 30)
        ranges.append((first, last))
    return ranges


@command("cut")
def cut(call: Invocation) -> int:
    """Print fields or columns of lines."""
    options = read_options(call, "nsD", "bcfCFdO", long={"output-delimiter": "O"})
    kind = next((letter for letter in "fFcbC" if letter in options), None)
    if kind is None:
        call.fail("no -fFcCb")
    ranges = _ranges(call, options.last(kind))
    delimiter = options.last("d", "\t" if kind == "f" else " ")
    glue = options.last("O", delimiter)
    for _, source in call.inputs(options.args):
        for raw in call.lines(source):
            line = decoded(raw) if kind != "b" else raw.decode("latin-1")
            if kind == "f" and delimiter not in line:
                if "s" not in options:
                    call.out.write(raw + b"\n")
                continue
            parts: Sequence[str] = line.split(delimiter) if kind == "f" else line.split() if kind == "F" else line
            chosen = [part for place, part in enumerate(parts, 1) if any(a <= place <= b for a, b in ranges)]
            text = (glue if kind in "fF" else "").join(chosen)
            call.out.write((encoded(text) if kind != "b" else text.encode("latin-1")) + b"\n")
    return 1 if call.failed else 0


_TR_CLASSES = {
    "alpha": "A-Za-z", "digit": "0-9", "alnum": "A-Za-z0-9", "upper": "A-Z", "lower": "a-z", "space": " \\t\\n\\v\\f\\r",
    "blank": " \\t", "punct": "!-/:-@\\[-`{-~", "xdigit": "0-9A-Fa-f", "cntrl": "\\000-\\037\\177", "print": " -~",
    "graph": "!-~",
}  # fmt: skip
_TR_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "f": "\f", "a": "\a", "b": "\b", "\\": "\\"}


def _tr_set(text: str) -> str:
    text = re.sub(r"\[:(\w+):\]", lambda match: _TR_CLASSES.get(match.group(1), ""), text)
    chars: list[str] = []
    plain: list[bool] = []
    for match in re.finditer(r"\\([0-7]{1,3}|.)|(.)", text, re.DOTALL):
        escaped, char = match.groups()
        if escaped is not None:
            char = chr(int(escaped, 8)) if escaped[0] in "01234567" else _TR_ESCAPES.get(escaped, escaped)
        chars.append(char)
        plain.append(escaped is None)
    out: list[str] = []
    at = 0
    while at < len(chars):
        if at + 2 < len(chars) and chars[at + 1] == "-" and plain[at + 1]:
            out += map(chr, range(ord(chars[at]), ord(chars[at + 2]) + 1))
            at += 3
        else:
            out.append(chars[at])
            at += 1
    return "".join(out)


@command("tr")
def tr(call: Invocation) -> int:
    """Exchange, delete (-d) or squeeze (-s) characters."""
    options = read_options(call, "Ccdst")
    need_args(call, options, 1)
    first = _tr_set(options.args[0])
    second = _tr_set(options.args[1]) if len(options.args) > 1 else ""
    if {"c", "C"} & options.flags:
        first = "".join(chr(code) for code in range(256) if chr(code) not in first)
    table: dict[int, int | None] = {}
    if "d" in options:
        table = {ord(char): None for char in first}
    elif second:
        for place, char in enumerate(first):
            table.setdefault(ord(char), ord(second[min(place, len(second) - 1)]))
    squeezed = (second or first) if "s" in options else ""
    last = ""
    for piece in call.chunks(call.stdin):
        text = piece.decode("latin-1").translate(table)
        if squeezed:
            kept = []
            for char in text:
                if char != last or char not in squeezed:
                    kept.append(char)
                last = char
            text = "".join(kept)
        call.out.write(text.encode("latin-1", "replace"))
        call.out.flush()
    return 0


def _leading_number(text: str) -> float:
    match = re.match(r"\s*([-+]?\d*\.?\d+)", text)
    return float(match.group(1)) if match else 0.0


def _sort_key(line: str, fields: str, options: Options) -> tuple[float | str, ...]:
    letters = "".join(options.flags)
    if fields:
        match = re.match(r"(\d+)(?:\.\d+)?([a-zA-Z]*)(?:,(\d+)(?:\.\d+)?([a-zA-Z]*))?", fields)
        if match is not None:
            delimiter = options.last("t")
            parts = line.split(delimiter) if delimiter else re.findall(r"\s*\S+", line)
            first, last = int(match.group(1)) - 1, int(match.group(3) or 1 << 20)
            line = (delimiter or "").join(parts[first:last])
            letters += (match.group(2) or "") + (match.group(4) or "")
    if "b" in letters or fields:
        line = line.lstrip() if "b" in letters or "n" in letters else line
    if "f" in letters:
        line = line.upper()
    if "n" in letters or "g" in letters:
        return (_leading_number(line),)
    if "V" in letters:
        return tuple(float(part) if part.isdigit() else part for part in re.findall(r"\d+|\D+", line))
    return (line,)


@command("sort")
def sort(call: Invocation) -> int:
    """Sort lines."""
    options = read_options(call, "bcdfghiMnrsuVxzC", "kto")
    lines: list[str] = []
    for _, source in call.inputs(options.args):
        lines += [decoded(line) for line in call.lines(source)]
    keys = options.values.get("k", [""])

    def key(line: str, fields: str) -> tuple[str, ...] | tuple[float | str, ...]:
        return _sort_key(line, fields, options)

    if "s" not in options and "u" not in options:
        lines.sort(key=encoded, reverse="r" in options)
    for fields in reversed(keys):
        backwards = "r" in options or bool(re.search(r"[a-zA-Z]*r", fields))
        lines.sort(key=lambda line, fields=fields: _comparable(key(line, fields)), reverse=backwards)  # type: ignore[misc]
    if "u" in options:
        seen: set[object] = set()
        unique = []
        for line in lines:
            identity = tuple(key(line, fields) for fields in keys)
            if identity not in seen:
                seen.add(identity)
                unique.append(line)
        lines = unique
    data = b"".join(encoded(line) + b"\n" for line in lines)
    if "o" in options:
        writer = call.system.files.open_write(call.path(options.last("o")), uid=call.uid)
        try:
            writer.write(data)
        finally:
            writer.close()
    else:
        call.out.write(data)
    return 1 if call.failed else 0


def _comparable(key: Sequence[float | str]) -> tuple[tuple[int, float, bytes], ...]:
    return tuple((0, part, b"") if isinstance(part, float) else (1, 0.0, encoded(part)) for part in key)


@command("uniq")
def uniq(call: Invocation) -> int:
    """Leave out lines that repeat the one before."""
    options = read_options(call, "cduiz", "wsf")
    last: bytes | None = None
    count = 0

    def show() -> None:
        if last is None or ("d" in options and count < 2) or ("u" in options and count > 1):
            return
        call.out.write((f"{count:>7} ".encode() if "c" in options else b"") + last + b"\n")

    for _, source in call.inputs(options.args[:1]):
        for line in call.lines(source):
            if last is not None and (line.lower() == last.lower() if "i" in options else line == last):
                count += 1
                continue
            show()
            last, count = line, 1
    show()
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
    if not call.args:
        call.fail("Needs 1 argument")
    try:
        call.out.write(printed(call.args[0], call.args[1:]))
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
