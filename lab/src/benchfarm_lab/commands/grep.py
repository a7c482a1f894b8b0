"""grep."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from benchfarm_lab.commands.invocation import CommandFaultError, Invocation, decoded, encoded
from benchfarm_lab.commands.listing import tree
from benchfarm_lab.commands.options import Options, read_options
from benchfarm_lab.commands.posix_patterns import translated
from benchfarm_lab.commands.registry import command
from benchfarm_lab.contract import ByteSource, PhoneFileError


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
    search = _Search(call, options, expressions, named=named)
    for path, source in _grep_inputs(call, options, recursive=recursive):
        found = search.look(path, source) or found
        if found and "q" in options:
            return 0
    return 2 if call.failed else 0 if found else 1


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
        words = "Unmatched ( or \\\\(" if "(" in pattern or ")" in pattern else str(exc)
        raise CommandFaultError(f"bad regex '{pattern}': {words}", 2) from exc


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


class _Search:
    """What is looked for in each file, and what is shown of it."""

    def __init__(
        self, call: Invocation, options: Options, expressions: Sequence[re.Pattern[str]], *, named: bool
    ) -> None:
        self._call = call
        self._expressions = expressions
        self._named = named
        self._limit = int(options.last("m", "0") or 0)
        self._before = int(options.last("B", options.last("C", "0")) or 0)
        self._after = int(options.last("A", options.last("C", "0")) or 0)
        self._inverted, self._numbered, self._counted = "v" in options, "n" in options, "c" in options
        self._quiet = bool({"q", "c", "l", "L"} & options.flags)
        self._only_matches = "o" in options and not self._quiet
        self._one_is_enough = bool({"q", "l"} & options.flags)
        self._lists_with, self._lists_without = "l" in options, "L" in options
        #: In front of lines that match, and of those around them.
        self._heads = {":": b"", "-": b""}
        self._last_shown = 0

    def look(self, path: str, source: ByteSource) -> bool:
        """Look through a file, and say whether anything was found."""
        shown_name = "(standard input)" if path == "-" else path
        if self._named:
            self._heads = {mark: encoded(shown_name + mark) for mark in (":", "-")}
        self._last_shown = 0
        count = trailing = 0
        waiting: list[tuple[int, bytes]] = []
        for number, raw in enumerate(self._call.lines(source), 1):
            line = decoded(raw)
            if any(expression.search(line) for expression in self._expressions) != self._inverted:
                count += 1
                if self._only_matches:
                    self._show_matches(number, line)
                elif not self._quiet:
                    for earlier, data in waiting:
                        self._show(earlier, data, "-")
                    waiting.clear()
                    self._show(number, raw, ":")
                    trailing = self._after
                if path == "-":
                    self._call.out.flush()
                if self._one_is_enough or (self._limit and count >= self._limit):
                    break
            elif trailing:
                self._show(number, raw, "-")
                trailing -= 1
            elif self._before:
                waiting = [*waiting, (number, raw)][-self._before :]
        if self._counted:
            self._call.out.line(f"{shown_name}:{count}" if self._named else count)
        if self._lists_with if count else self._lists_without:
            self._call.out.line(shown_name)
        return bool(count)

    def _show_matches(self, number: int, line: str) -> None:
        matches = [match for expression in self._expressions for match in expression.finditer(line)]
        for match in sorted(matches, key=lambda found: found.start()):
            if match.group():
                self._show(number, encoded(match.group()), ":")

    def _show(self, number: int, data: bytes, mark: str) -> None:
        out = self._call.out
        if (self._before or self._after) and self._last_shown and number > self._last_shown + 1:
            out.line("--")
        out.write(self._heads[mark] + (encoded(f"{number}{mark}") if self._numbered else b"") + data + b"\n")
        self._last_shown = number
