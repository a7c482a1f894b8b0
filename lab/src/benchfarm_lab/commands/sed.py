"""sed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from benchfarm_lab.commands.invocation import CommandFaultError, Invocation, decoded, encoded
from benchfarm_lab.commands.options import read_options
from benchfarm_lab.commands.posix_patterns import compiled
from benchfarm_lab.commands.registry import command


@dataclass(slots=True)
class _Address:
    first: int | str | re.Pattern[str] | None = None
    last: int | str | re.Pattern[str] | None = None
    negated: bool = False
    inside: bool = False
    end: int = 0


@dataclass(slots=True)
class _Edit:
    letter: str
    address: _Address
    pattern: re.Pattern[str] | None = None
    text: str = ""
    flags: str = ""
    body: list[_Edit] = field(default_factory=list)


@command("sed")
def sed(call: Invocation) -> int:
    """Edit lines: s, y, d, p, q, a, i, c, =, n, and braces; addresses by number, ``$`` and pattern."""
    options = read_options(call, "nrEsiz", "ef", long={"expression": "e", "quiet": "n", "regexp-extended": "E"})
    scripts = list(options.values.get("e", []))
    scripts += [decoded(call.open(path).read(-1)) for path in options.values.get("f", [])]
    if not scripts:
        if not options.args:
            call.fail("no pattern")
        scripts.append(options.args.pop(0))
    reader = _SedReader("\n".join(scripts), extended=bool({"r", "E"} & options.flags))
    edits = reader.edits()
    if "i" in options:
        for path in options.args:
            editor = _Sed(call, edits, quiet="n" in options, collected=bytearray())
            editor.run([*call.lines(call.open(path))])
            writer = call.system.files.open_write(call.path(path), uid=call.uid)
            try:
                writer.write(bytes(editor.collected or b""))
            finally:
                writer.close()
        return 0
    lines = [line for _, source in call.inputs(options.args) for line in call.lines(source)]
    status = _Sed(call, edits, quiet="n" in options).run(lines)
    return status or (1 if call.failed else 0)


class _SedReader:
    def __init__(self, script: str, *, extended: bool) -> None:
        self.text = script
        self.extended = extended
        self.at = 0

    def edits(self, *, inside: bool = False) -> list[_Edit]:
        found: list[_Edit] = []
        while True:
            self._skip(" \t\n;")
            if self.at >= len(self.text):
                if inside:
                    raise CommandFaultError("unmatched {")
                return found
            if self.text[self.at] == "}" and inside:
                self.at += 1
                return found
            found.append(self._edit())

    def _skip(self, chars: str) -> None:
        while self.at < len(self.text) and self.text[self.at] in chars:
            self.at += 1

    def _edit(self) -> _Edit:
        address = _Address(self._place())
        if self.text[self.at : self.at + 1] == ",":
            self.at += 1
            address.last = self._place()
        self._skip(" \t")
        if self.text[self.at : self.at + 1] == "!":
            address.negated = True
            self.at += 1
            self._skip(" \t")
        letter = self.text[self.at : self.at + 1]
        self.at += 1
        edit = _Edit(letter, address)
        if letter == "{":
            edit.body = self.edits(inside=True)
        elif letter == "s":
            delimiter = self._take()
            pattern = self._until(delimiter, keep=True)
            edit.text = self._until(delimiter, keep=True)
            match = re.compile(r"[0-9gpiI]*").match(self.text, self.at)
            edit.flags = match.group() if match else ""
            self.at += len(edit.flags)
            edit.pattern = compiled(pattern, extended=self.extended,
                                    flags=re.IGNORECASE if "i" in edit.flags.lower() else 0)  # fmt: skip
        elif letter == "y":
            delimiter = self._take()
            edit.text = self._until(delimiter, keep=False) + "\0" + self._until(delimiter, keep=False)
        elif letter in set("aic"):
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            edit.text = self.text[self.at : end].lstrip(" \t").removeprefix("\\").lstrip("\n")
            self.at = end
            if not edit.text:
                following = self.text.find("\n", self.at + 1)
                following = len(self.text) if following < 0 else following
                edit.text = self.text[self.at + 1 : following]
                self.at = following
        elif letter in set("qQ"):
            match = re.compile(r"\s*(\d*)").match(self.text, self.at)
            edit.text = match.group(1) if match else ""
            self.at = match.end() if match else self.at
        elif not letter or letter not in set("dpDPnNgGhHx="):
            raise CommandFaultError(f"bad pattern '{self.text}'@{self.at} ({letter})")
        return edit

    def _take(self) -> str:
        char = self.text[self.at : self.at + 1]
        if not char:
            raise CommandFaultError(f"bad pattern '{self.text}'")
        self.at += 1
        return char

    def _until(self, delimiter: str, *, keep: bool) -> str:
        """Take text up to a delimiter; ``keep``: other backslashes stay for the regular expression."""
        out: list[str] = []
        bracket = False
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "\\" and self.at + 1 < len(self.text):
                following = self.text[self.at + 1]
                out.append(following if following == delimiter else "\\" + following if keep else
                           {"n": "\n", "t": "\t"}.get(following, following))  # fmt: skip
                self.at += 2
                continue
            self.at += 1
            if char == delimiter and not bracket:
                return "".join(out)
            bracket = (char == "[" or bracket) and char != "]" if keep else False
            out.append(char)
        raise CommandFaultError(f"bad pattern '{self.text}'")

    def _place(self) -> int | str | re.Pattern[str] | None:
        self._skip(" \t")
        match = re.compile(r"\d+|\$|\+\d+").match(self.text, self.at)
        if match:
            self.at = match.end()
            return int(match.group()) if match.group().isdigit() else match.group()
        if self.text[self.at : self.at + 1] in {"/", "\\"} and self.at < len(self.text):
            delimiter = self._take()
            delimiter = self._take() if delimiter == "\\" else delimiter
            pattern = self._until(delimiter, keep=True)
            return compiled(pattern, extended=self.extended)
        return None


class _SedEnd(Exception):  # noqa: N818 -- not a fault: the end of a line's edits, or of all
    def __init__(self, *, silent: bool, status: int | None = None) -> None:
        super().__init__()
        self.silent = silent
        self.status = status


class _Sed:
    def __init__(
        self, call: Invocation, edits: list[_Edit], *, quiet: bool, collected: bytearray | None = None
    ) -> None:
        self.call = call
        self.edits = edits
        self.quiet = quiet
        self.collected = collected
        self.number = 0
        self.hold = ""
        self.appended: list[str] = []

    def show(self, line: str) -> None:
        if self.collected is not None:
            self.collected += encoded(line + "\n")
        else:
            self.call.out.line(line)

    def run(self, lines: list[bytes]) -> int:
        self.lines = [decoded(line) for line in lines]
        while self.number < len(self.lines):
            self.number += 1
            space = [self.lines[self.number - 1]]
            status: int | None = None
            silent = False
            try:
                self.apply(self.edits, space)
            except _SedEnd as end:
                silent, status = end.silent, end.status
            if not silent and not self.quiet:
                self.show(space[0])
            for text in self.appended:
                self.show(text)
            self.appended.clear()
            if status is not None:
                return status
        return 0

    def chosen(self, address: _Address, line: str) -> bool:
        return self._chosen(address, line) != address.negated

    def _matches(self, place: int | str | re.Pattern[str] | None, line: str) -> bool:
        if isinstance(place, int):
            return self.number == place
        if isinstance(place, str):
            return self.number == len(self.lines)
        return place is None or place.search(line) is not None

    def _chosen(self, address: _Address, line: str) -> bool:
        if address.last is None:
            return self._matches(address.first, line)
        if not address.inside:
            if not self._matches(address.first, line):
                return False
            last = address.last
            address.end = self.number + int(last[1:]) if isinstance(last, str) and last[0] == "+" else 0
            address.inside = not (isinstance(last, int) and last <= self.number) and address.end != self.number
            return True
        if address.end:
            address.inside = self.number < address.end
        elif isinstance(address.last, int):
            address.inside = self.number < address.last
            return self.number <= address.last
        else:
            address.inside = not self._matches(address.last, line)
        return True

    def apply(self, edits: list[_Edit], space: list[str]) -> None:
        for edit in edits:
            if not self.chosen(edit.address, space[0]):
                continue
            match edit.letter:
                case "{":
                    self.apply(edit.body, space)
                case "s":
                    self.substitute(edit, space)
                case "y":
                    old, new = edit.text.split("\0")
                    space[0] = space[0].translate(str.maketrans(old, new))
                case "d":
                    raise _SedEnd(silent=True)
                case "c":
                    self.show(edit.text)
                    raise _SedEnd(silent=True)
                case "p":
                    self.show(space[0])
                case "P":
                    self.show(space[0].split("\n")[0])
                case "=":
                    self.show(str(self.number))
                case "a":
                    self.appended.append(edit.text)
                case "i":
                    self.show(edit.text)
                case "q" | "Q":
                    raise _SedEnd(silent=edit.letter == "Q", status=int(edit.text or 0))
                case _:
                    self.move(edit.letter, space)

    def move(self, letter: str, space: list[str]) -> None:
        match letter:
            case "h":
                self.hold = space[0]
            case "H":
                self.hold += "\n" + space[0]
            case "g":
                space[0] = self.hold
            case "G":
                space[0] += "\n" + self.hold
            case "x":
                space[0], self.hold = self.hold, space[0]
            case "n" | "N":
                if letter == "n" and not self.quiet:
                    self.show(space[0])
                if self.number >= len(self.lines):
                    raise _SedEnd(silent=letter == "n")
                self.number += 1
                following = self.lines[self.number - 1]
                space[0] = following if letter == "n" else f"{space[0]}\n{following}"
            case "D":
                _, newline, rest = space[0].partition("\n")
                if newline:
                    space[0] = rest
                raise _SedEnd(silent=not newline)

    def substitute(self, edit: _Edit, space: list[str]) -> None:
        if edit.pattern is None:
            return
        digits = "".join(char for char in edit.flags if char.isdigit())
        wanted, every, count = int(digits or 1), "g" in edit.flags, 0

        def change(match: re.Match[str]) -> str:
            nonlocal count
            count += 1
            if count < wanted or (count > wanted and not every):
                return match.group()
            return _replacement(edit.text, match)

        before = space[0]
        space[0] = edit.pattern.sub(change, space[0])
        if count >= wanted and "p" in edit.flags and (before != space[0] or count):
            self.show(space[0])


def _replacement(text: str, match: re.Match[str]) -> str:
    def piece(found: re.Match[str]) -> str:
        text = found.group()
        if text == "&":
            return match.group()
        if text[1].isdigit():
            index = int(text[1])
            return (match.group(index) or "") if index <= (match.re.groups or 0) else ""
        return {"n": "\n", "t": "\t"}.get(text[1], text[1])

    return re.sub(r"&|\\(?s:.)", piece, text)
