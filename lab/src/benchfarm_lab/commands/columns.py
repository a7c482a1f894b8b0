"""Fields and order of lines: cut, tr, sort, uniq."""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchfarm_lab.commands.invocation import Invocation, decoded, encoded
from benchfarm_lab.commands.options import Options, need_args, read_options
from benchfarm_lab.commands.registry import command


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
    "alpha": "A-Za-z", "digit": "0-9", "alnum": "A-Za-z0-9", "upper": "A-Z", "lower": "a-z",
    "space": " \\t\\n\\v\\f\\r",
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
    return 2 if call.failed else 0


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
