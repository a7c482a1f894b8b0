"""grep, and POSIX patterns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from benchfarm_virtual.commands.invocation import CommandFaultError, Invocation, decoded, encoded
from benchfarm_virtual.commands.options import Options, read_options
from benchfarm_virtual.commands.registry import command
from benchfarm_virtual.contract import ByteSource, PhoneFileError
from benchfarm_virtual.shell.patterns import CLASSES


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


def _grep_inputs(call: Invocation, options: Options) -> Iterator[tuple[str, ByteSource]]:
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

    def look(self, path: str, source: ByteSource) -> bool:
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
