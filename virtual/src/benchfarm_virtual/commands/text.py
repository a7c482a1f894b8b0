"""Commands that read and print text, grep among them."""

from __future__ import annotations

import hashlib
import re

from benchfarm_virtual.commands.invocation import Invocation, Options, command, read_options
from benchfarm_virtual.contract import decoded, encoded
from benchfarm_virtual.open_files import OpenFile
from benchfarm_virtual.shell.printing import printed
from benchfarm_virtual.shell.syntax import ShellFaultError


@command("cat")
def cat(call: Invocation) -> None:
    """Copy files to stdout."""

    def copy(source: OpenFile) -> None:
        for piece in call.chunks(source):
            call.out.write(piece)
            if source is call.stdin:
                call.out.flush()

    call.each_input(call.args, copy)


@command("tail")
def tail(call: Invocation) -> None:
    """Print the last bytes of files (-c)."""
    options = read_options(call, "", "c")
    count = int(options.last("c"))

    def end(source: OpenFile) -> None:
        content = source.read()
        call.out.write(content[max(0, len(content) - count) :])

    call.each_input(options.args, end)


@command("sed")
def sed(call: Invocation) -> None:
    """Leave out the first line of a file (1d), or the last ($d)."""
    script, *paths = call.args or ("",)
    if script not in {"1d", "$d"}:
        call.fail("a virtual phone knows sed 1d and sed '$d' only")

    def leave_out(source: OpenFile) -> None:
        lines = re.findall(rb"[^\n]*\n|[^\n]+", source.read())
        call.out.write(b"".join(lines[1:] if script == "1d" else lines[:-1]))

    call.each_input(paths, leave_out)


@command("wc")
def wc(call: Invocation) -> None:
    """Count the bytes (-c) of a file."""
    options = read_options(call, "c")
    if "c" not in options:
        call.fail("a virtual phone knows wc -c only")

    def count(source: OpenFile) -> None:
        size = sum(map(len, call.chunks(source)))
        call.out.line(" ".join([str(size), *options.args]))

    call.each_input(options.args, count)


@command("printf")
def printf(call: Invocation) -> None:
    """Print arguments by a format."""
    try:
        call.out.write(printed(call.args[0], call.args[1:]))
    except ShellFaultError as exc:
        call.fail(str(exc))


@command("true")
def true(call: Invocation) -> int:
    """Succeed."""
    return 0


@command("sha256sum", "md5sum")
def checksum(call: Invocation) -> None:
    """Print checksums of files."""

    def sum_up(source: OpenFile) -> None:
        digest = hashlib.new(call.name.removesuffix("sum"), usedforsecurity=False)
        for piece in call.chunks(source):
            digest.update(piece)
        call.out.line(f"{digest.hexdigest()}  {call.shown}")

    call.each_input(call.args, sum_up)


def _expression(options: Options, pattern: str) -> re.Pattern[str]:
    """Return a POSIX regular expression (basic or extended) as Python's."""

    def swapped(match: re.Match[str]) -> str:
        """In a basic expression, what a backslash makes special is ordinary without it."""
        return match[0][1:] if match[0].startswith("\\") else f"\\{match[0]}"

    text = pattern if "E" in options else re.sub(r"\\?[(){}|+?]", swapped, pattern)
    return re.compile(text, re.IGNORECASE if "i" in options else 0)


@command("grep")
def grep(call: Invocation) -> int:
    """Print lines that match."""
    options = read_options(call, "EivclqH", "em")
    patterns = options.values.get("e") or [options.args.pop(0)]
    expressions = [
        _expression(options, line) for pattern in patterns for line in pattern.split("\n")
    ]
    limit = 1 if {"q", "l"} & options.values.keys() else int(options.last("m", "0"))
    has_matched = False

    def search(source: OpenFile) -> None:
        nonlocal has_matched
        name = "(standard input)" if call.shown == "-" else call.shown
        prefix = encoded(f"{name}:") if "H" in options or len(options.args) > 1 else b""
        count = 0
        for raw in call.lines(source):
            line = decoded(raw)
            if any(expression.search(line) for expression in expressions) == ("v" in options):
                continue
            count += 1
            if not {"q", "c", "l"} & options.values.keys():
                call.out.write(prefix + raw + b"\n")
            if source is call.stdin:
                call.out.flush()
            if count == limit:
                break
        if "c" in options:
            call.out.write(prefix + b"%d\n" % count)
        if "l" in options and count:
            call.out.line(name)
        has_matched = has_matched or count > 0

    call.each_input(options.args, search)
    if "q" in options and has_matched:
        return 0
    return 2 if call.failed else int(not has_matched)
