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
    if len(options.args) > 1:
        call.fail("a virtual phone counts one file")
    for path, source in call.inputs(options.args):
        try:
            content = b"".join(call.chunks(source))
        except PhoneFileError as exc:
            call.complain(f"{path}: {exc}")
            return 1
        counts = {"l": content.count(b"\n"), "w": len(content.split()), "c": len(content)}
        width = 0 if options.args or len(kinds) == 1 else 7
        figures = " ".join(f"{counts[kind]:>{width}}" for kind in kinds)
        call.out.line(f"{figures} {path}" if options.args else figures)
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

    def one(match: re.Match[str]) -> str:
        text = match.group()
        if text.startswith("["):
            return "[" + re.sub(r"[\[&~|\\]", r"\\\g<0>", text[1:-1]) + "]"
        if extended or (text.startswith("\\") and text[1] not in "(){}|+?"):
            return text
        return text[1:] if text.startswith("\\") else "\\" + text

    # In a basic expression, what a backslash makes special is ordinary without it.
    return re.sub(r"\\.|\[\^?\]?[^]]*\]|[(){}|+?]", one, pattern)


@command("grep")
def grep(call: Invocation) -> int:
    """Print lines that match."""
    try:
        return _grep(call)
    except CommandFaultError as exc:
        exc.code = 2
        raise


def _grep(call: Invocation) -> int:
    options = read_options(call, "EivclqsH", "em")
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
    found = False
    for path, source in _grep_inputs(call, options):
        found = bool(_look(call, options, expressions, path, source)) or found
        if found and "q" in options:
            return 0
    return 2 if call.failed else 0 if found else 1


def _grep_expression(call: Invocation, options: Options, pattern: str) -> re.Pattern[str]:
    if "[:" in pattern:
        call.fail("a virtual phone knows no classes of characters here")
    for piece in re.findall(r"\\.|\[\^?\]?[^]]*\]", pattern):
        if re.fullmatch(r"\\[A-Za-z]", piece) and piece[1] not in "wWsSbB":
            call.fail(f"a virtual phone knows no {piece} here")
    text = translated(pattern, extended="E" in options)
    try:
        return re.compile(text, re.IGNORECASE if "i" in options else 0)
    except re.error as exc:
        raise CommandFaultError(f"bad regex '{pattern}': {exc}", 2) from exc


def _grep_inputs(call: Invocation, options: Options) -> Iterator[tuple[str, OpenFile]]:
    for path in options.args or ["-"]:
        try:
            yield path, call.open(path)
        except PhoneFileError as exc:
            call.failed = True
            if "s" not in options:
                call.complain(f"{path}: {exc}")


def _look(
    call: Invocation,
    options: Options,
    expressions: Sequence[re.Pattern[str]],
    path: str,
    source: OpenFile,
) -> int:
    """Look through a file; return how many lines were found, as far as that matters."""
    limit = 1 if {"q", "l"} & options.flags else int(options.last("m", "0") or 0)
    shown_name = "(standard input)" if path == "-" else path
    is_named = "H" in options or len(options.args) > 1
    count = 0
    for raw in call.lines(source):
        line = decoded(raw)
        if any(expression.search(line) for expression in expressions) == ("v" in options):
            continue
        count += 1
        if not {"q", "c", "l"} & options.flags:
            call.out.write((encoded(f"{shown_name}:") if is_named else b"") + raw + b"\n")
        if path == "-":
            call.out.flush()
        if count == limit:
            break
    if "c" in options:
        call.out.line(f"{shown_name}:{count}" if is_named else count)
    if "l" in options and count:
        call.out.line(shown_name)
    return count
