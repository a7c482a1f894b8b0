"""grep."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.virtual.commands.invocation import CommandFaultError, Invocation, decoded, encoded
from orchestrator.virtual.commands.listing import tree
from orchestrator.virtual.commands.options import Options, read_options
from orchestrator.virtual.commands.posix_patterns import translated
from orchestrator.virtual.commands.registry import command
from orchestrator.virtual.contract import ByteSource, PhoneFileError


@command("grep", "egrep", "fgrep")
def grep(call: Invocation) -> int:
    """Print lines that match."""
    try:
        return _grep(call)
    except CommandFaultError as exc:
        exc.code = 2
        raise


def _grep(call: Invocation) -> int:
    options = read_options(
        call, "EFGivwxclqsnhHorRLazUbIZ", "efmABCSM",
        long={"color": "C", "line-buffered": "U", "text": "a", "include": "S", "exclude": "M"},
    )  # fmt: skip
    patterns = list(options.values.get("e", []))
    for path in options.values.get("f", []):
        patterns += decoded(call.open(path).read(-1)).splitlines()
    if not {"e", "f"} & options.values.keys():
        if not options.args:
            call.fail("no REGEX")
        patterns.append(options.args.pop(0))
    expressions = [_grep_expression(call, options, line) for pattern in patterns for line in pattern.split("\n")]
    recursive = bool({"r", "R"} & options.flags)
    named = ("H" in options or len(options.args) > 1 or recursive) and "h" not in options
    found = False
    for path, source in _grep_inputs(call, options, recursive=recursive):
        found = _grep_file(call, options, expressions, path, source, named=named) or found
        if found and "q" in options:
            return 0
    return 0 if found else 2 if call.failed else 1


def _grep_expression(call: Invocation, options: Options, pattern: str) -> re.Pattern[str]:
    fixed = "F" in options or call.name == "fgrep"
    extended = "E" in options or call.name == "egrep"
    text = re.escape(pattern) if fixed else translated(pattern, extended=extended)
    if "w" in options:
        text = rf"(?<!\w)(?:{text})(?!\w)"
    if "x" in options:
        text = rf"\A(?:{text})\Z"
    try:
        return re.compile(text, re.IGNORECASE if "i" in options else 0)
    except re.error as exc:
        raise CommandFaultError(f"bad regex '{pattern}': {exc}", 2) from exc


def _grep_inputs(call: Invocation, options: Options, *, recursive: bool) -> Iterator[tuple[str, ByteSource]]:
    paths = options.args or (["."] if recursive else ["-"])
    for path in paths:
        files = [path]
        if recursive and path != "-":
            files = [inner for inner, found in tree(call, path) if found.mode & 0o170000 == 0o100000]
        for file in files:
            try:
                yield file, call.open(file)
            except PhoneFileError as exc:
                call.failed = True
                if "s" not in options:
                    call.complain(f"{file}: {exc}")


def _grep_file(
    call: Invocation,
    options: Options,
    expressions: list[re.Pattern[str]],
    path: str,
    source: ByteSource,
    *,
    named: bool,
) -> bool:
    count, limit = 0, int(options.last("m", "0") or 0)
    before = int(options.last("B", options.last("C", "0")) or 0)
    after = int(options.last("A", options.last("C", "0")) or 0)
    shown_name = "(standard input)" if path == "-" else path
    waiting: list[tuple[int, bytes]] = []
    trailing = last_shown = 0
    quiet = bool({"q", "c", "l", "L"} & options.flags)
    inverted, only_matches, numbered = "v" in options, "o" in options, "n" in options
    heads = {mark: encoded(shown_name + mark) if named else b"" for mark in (":", "-")}

    def show(number: int, data: bytes, mark: str) -> None:
        nonlocal last_shown
        head = heads[mark] + (encoded(f"{number}{mark}") if numbered else b"")
        if (before or after) and last_shown and number > last_shown + 1:
            call.out.line("--")
        call.out.write(head + data + b"\n")
        last_shown = number

    for number, raw in enumerate(call.lines(source), 1):
        line = decoded(raw)
        if any(expression.search(line) for expression in expressions) != inverted:
            count += 1
            if only_matches and not quiet:
                matches = [match for expression in expressions for match in expression.finditer(line)]
                for match in sorted(matches, key=lambda found: found.start()):
                    if match.group():
                        show(number, encoded(match.group()), ":")
            elif not quiet:
                for earlier, data in waiting:
                    show(earlier, data, "-")
                waiting.clear()
                show(number, raw, ":")
                trailing = after
            if call.stdin_handle is not None and path == "-":
                call.out.flush()
            if {"q", "l"} & options.flags or (limit and count >= limit):
                break
        elif trailing:
            show(number, raw, "-")
            trailing -= 1
        elif before:
            waiting = [*waiting, (number, raw)][-before:]
    if "c" in options:
        call.out.line(f"{shown_name}:{count}" if named else count)
    if ("l" in options and count) or ("L" in options and not count):
        call.out.line(shown_name)
    return bool(count)
