"""Commands that read and print text, grep among them."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Iterator, Sequence

from benchfarm_virtual.commands.invocation import (
    CommandFaultError,
    Invocation,
    Options,
    command,
    decoded,
    encoded,
    need_args,
    read_options,
)
from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.open_files import OpenFile
from benchfarm_virtual.shell.patterns import CLASSES
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


def _copy_lines(call: Invocation, source: OpenFile, count: int) -> None:
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


def _digest(call: Invocation, source: OpenFile) -> str:
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


def translated(pattern: str, *, extended: bool) -> str:
    """Return a POSIX regular expression (basic or extended) as Python writes it."""
    out: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "[":
            piece, at = _bracket(pattern, at)
            out.append(piece)
            continue
        if char == "\\":
            following = pattern[at + 1 : at + 2]
            if not extended and following in "(){}|+?" and following:
                out.append(following)
            elif following.isalnum() and following not in "wWsSbBnt123456789":
                out.append(re.escape(following))
            else:
                out.append("\\" + following if following else r"\\")
            at += 2
            continue
        if not extended and char in "(){}|+?":
            out.append("\\" + char)
        elif char == "*" and (not out or (out[-1] in {"(", "|", "^"} and not extended)):
            out.append(r"\*")
        elif char == "^" and not extended and out and out[-1] not in {"(", "|"}:
            out.append(r"\^")
        elif (
            char == "$"
            and not extended
            and at + 1 < len(pattern)
            and pattern[at + 1 : at + 3] not in {"\\)", "\\|"}
        ):
            out.append(r"\$")
        elif char == "$":
            out.append(r"(?=\n?\Z)(?!\n)")
        elif char == "{" and extended and not re.match(r"\{\d*,?\d*\}", pattern[at:]):
            out.append(r"\{")
        else:
            out.append(char)
        at += 1
    return "".join(out)


def _bracket(pattern: str, at: int) -> tuple[str, int]:
    place = at + 1
    negated = pattern[place : place + 1] == "^"
    place += negated
    out: list[str] = []
    first = True
    while place < len(pattern):
        char = pattern[place]
        if char == "]" and not first:
            return f"[{'^' if negated else ''}{''.join(out)}]", place + 1
        first = False
        if pattern.startswith("[:", place) and (end := pattern.find(":]", place)) > 0:
            out.append(CLASSES.get(pattern[place + 2 : end], ""))
            place = end + 2
            continue
        out.append("\\" + char if char in "\\[]^&~|" else char)
        place += 1
    raise CommandFaultError(f"bad regex '{pattern}': Unmatched [")


@command("grep")
def grep(call: Invocation) -> int:
    """Print lines that match."""
    try:
        return _grep(call)
    except CommandFaultError as exc:
        exc.code = 2
        raise


def _grep(call: Invocation) -> int:
    options = read_options(
        call,
        "EFGivwclqsnhHa",
        "em",
    )
    patterns = list(options.values.get("e", []))
    if "e" not in options:
        if not options.args:
            call.fail("no REGEX")
        patterns.append(options.args.pop(0))
    expressions = [
        _grep_expression(call, options, line)
        for pattern in patterns
        for line in pattern.split("\n")
    ]
    named = ("H" in options or len(options.args) > 1) and "h" not in options
    found = False
    search = _Search(call, options, expressions, named=named)
    for path, source in _grep_inputs(call, options):
        found = search.look(path, source) or found
        if found and "q" in options:
            return 0
    return 2 if call.failed else 0 if found else 1


def _grep_expression(call: Invocation, options: Options, pattern: str) -> re.Pattern[str]:
    text = re.escape(pattern) if "F" in options else translated(pattern, extended="E" in options)
    if "w" in options:
        text = rf"(?<!\w)(?:{text})(?!\w)"
    try:
        return re.compile(text, re.IGNORECASE if "i" in options else 0)
    except re.error as exc:
        words = "Unmatched ( or \\\\(" if "(" in pattern or ")" in pattern else str(exc)
        raise CommandFaultError(f"bad regex '{pattern}': {words}", 2) from exc


def _grep_inputs(call: Invocation, options: Options) -> Iterator[tuple[str, OpenFile]]:
    for path in options.args or ["-"]:
        try:
            yield path, call.open(path)
        except PhoneFileError as exc:
            call.failed = True
            if "s" not in options:
                call.complain(f"{path}: {exc}")


class _Search:
    """What is looked for in each file, and what is shown of it."""

    def __init__(
        self,
        call: Invocation,
        options: Options,
        expressions: Sequence[re.Pattern[str]],
        *,
        named: bool,
    ) -> None:
        self._call = call
        self._expressions = expressions
        self._named = named
        self._limit = int(options.last("m", "0") or 0)
        self._inverted, self._numbered, self._counted = (
            "v" in options,
            "n" in options,
            "c" in options,
        )
        self._quiet = bool({"q", "c", "l"} & options.flags)
        self._one_is_enough = bool({"q", "l"} & options.flags)
        self._lists = "l" in options

    def look(self, path: str, source: OpenFile) -> bool:
        """Look through a file, and say whether anything was found."""
        shown_name = "(standard input)" if path == "-" else path
        head = encoded(f"{shown_name}:") if self._named else b""
        count = 0
        for number, raw in enumerate(self._call.lines(source), 1):
            line = decoded(raw)
            if any(expression.search(line) for expression in self._expressions) == self._inverted:
                continue
            count += 1
            if not self._quiet:
                self._call.out.write(
                    head + (encoded(f"{number}:") if self._numbered else b"") + raw + b"\n"
                )
            if path == "-":
                self._call.out.flush()
            if self._one_is_enough or (self._limit and count >= self._limit):
                break
        if self._counted:
            self._call.out.line(f"{shown_name}:{count}" if self._named else count)
        if self._lists and count:
            self._call.out.line(shown_name)
        return bool(count)
