"""Shell patterns (``*``, ``?``, ``[...]``) as regular expressions, and file names that match them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.files import PhoneTree

#: Pieces of an expanded word: text, and whether it was quoted.
Pieces = tuple[tuple[str, bool], ...]


@lru_cache(maxsize=1024)
def pattern_source(pieces: Pieces) -> str:
    """Return the regular expression for a pattern; quoted pieces stand for themselves."""
    characters = [(char, quoted) for text, quoted in pieces for char in text]
    source: list[str] = []
    at = 0
    while at < len(characters):
        char, quoted = characters[at]
        if quoted:
            source.append(re.escape(char))
        elif char == "*":
            source.append(".*")
        elif char == "?":
            source.append(".")
        elif char == "\\" and at + 1 < len(characters):
            at += 1
            source.append(re.escape(characters[at][0]))
        elif char == "[" and (end := _class_end(characters, at)):
            source.append(_class_source(characters[at + 1 : end]))
            at = end
        else:
            source.append(re.escape(char))
        at += 1
    return "".join(source)


def _class_end(characters: Sequence[tuple[str, bool]], at: int) -> int:
    place = at + 1
    if place < len(characters) and characters[place][0] in "!^":
        place += 1
    first = place
    while place < len(characters):
        char, quoted = characters[place]
        if char == "[" and not quoted and characters[place + 1 : place + 2] == [(":", False)]:
            closing = next(
                (
                    k
                    for k in range(place + 2, len(characters) - 1)
                    if characters[k][0] == ":" and characters[k + 1][0] == "]"
                ),
                None,
            )
            if closing is not None:
                place = closing + 2
                continue
        if char == "]" and not quoted and place > first:
            return place
        place += 1
    return 0


#: The POSIX classes of characters, as they stand within a bracket of Python's.
CLASSES = {
    "alpha": "A-Za-z",
    "digit": "0-9",
    "alnum": "A-Za-z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "blank": r" \t",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9A-Fa-f",
    "cntrl": r"\x00-\x1f\x7f",
    "print": r"\x20-\x7e",
    "graph": r"\x21-\x7e",
}


def _class_source(inside: Sequence[tuple[str, bool]]) -> str:
    text = "".join(
        char if not quoted or char not in "-^!" else "\\" + char for char, quoted in inside
    )
    negated = text[:1] in {"!", "^"}
    text = text[1:] if negated else text
    source = re.sub(
        r"\[:(\w+):\]|([\\\[\]])(?=(.?))",
        lambda match: (
            CLASSES.get(match.group(1) or "", "")
            if match.group(1)
            else match.group(2)
            if match.group(2) == "\\" and match.group(3) in {"-", "^", "!"} and match.group(3)
            else "\\" + match.group(2)
        ),
        text,
    )
    return f"[{'^' if negated else ''}{source}]"


def matches(pieces: Pieces, text: str) -> bool:
    """Say whether a whole text matches a pattern."""
    return re.compile(pattern_source(pieces), re.DOTALL).fullmatch(text) is not None


def trimmed(text: str, pieces: Pieces, operator: str) -> str:
    """Return ``${text#pattern}`` and its kin (``#``, ``##``, ``%``, ``%%``)."""
    pattern = re.compile(pattern_source(pieces), re.DOTALL)
    ends = range(len(text) + 1)
    if operator[0] == "#":
        order = ends if operator == "#" else reversed(ends)
        return next((text[end:] for end in order if pattern.fullmatch(text, 0, end)), text)
    order = reversed(ends) if operator == "%" else ends
    return next((text[:start] for start in order if pattern.fullmatch(text, start)), text)


def has_magic(pieces: Pieces) -> bool:
    """Say whether a word is a pattern at all."""
    opened = False
    for text, quoted in pieces:
        if quoted:
            continue
        if "*" in text or "?" in text:
            return True
        opened = opened or "[" in text
        # A bracket that nothing closes stands for itself: ``[`` is a command, too.
        if opened and "]" in text:
            return True
    return False


def matching_paths(pieces: Pieces, *, files: PhoneTree, cwd: str, uid: int) -> list[str]:
    """Return the paths that match, sorted; empty when there are none."""
    parts = _split(pieces)
    absolute = bool(parts) and not parts[0] and len(parts) > 1
    found = ["/"] if absolute else [""]
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        if not part:
            if last and place:
                found = [
                    path.rstrip("/") + "/" for path in found if _is_folder(files, cwd, path, uid)
                ]
            continue
        if has_magic(part):
            found = [path for base in found for path in _children(files, cwd, base, part, uid)]
            continue
        # Whether a name in the middle is there shows at what follows it.
        name = "".join(text for text, _ in part)
        found = [_under(base) + name for base in found]
        if last:
            found = [path for path in found if _is_there(files, cwd, path, uid)]
    return sorted(found)


def _split(pieces: Pieces) -> list[Pieces]:
    parts: list[list[tuple[str, bool]]] = [[]]
    for text, quoted in pieces:
        for place, section in enumerate(text.split("/")):
            if place:
                parts.append([])
            if section:
                parts[-1].append((section, quoted))
    return [tuple(part) for part in parts]


def _children(files: PhoneTree, cwd: str, base: str, part: Pieces, uid: int) -> list[str]:
    prefix = _under(base)
    pattern = re.compile(pattern_source(part), re.DOTALL)
    hidden_too = part[0][0].startswith(".")
    try:
        names = files.list(_joined(cwd, base), uid=uid)
    except PhoneFileError:
        return []
    return [
        prefix + name
        for name in names
        if (hidden_too or not name.startswith(".")) and pattern.fullmatch(name)
    ]


def _under(base: str) -> str:
    return base if not base or base.endswith("/") else base + "/"


def _is_there(files: PhoneTree, cwd: str, path: str, uid: int) -> bool:
    try:
        files.stat(_joined(cwd, path), follow=False, uid=uid)
    except PhoneFileError:
        return False
    return True


def _is_folder(files: PhoneTree, cwd: str, path: str, uid: int) -> bool:
    try:
        return files.stat(_joined(cwd, path), uid=uid).mode & 0o170000 == 0o040000
    except PhoneFileError:
        return False


def _joined(cwd: str, path: str) -> str:
    if path.startswith("/"):
        return path
    return f"{cwd.rstrip('/')}/{path}" if path else cwd
