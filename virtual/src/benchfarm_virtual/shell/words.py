"""Words in parts: quotes, escapes and expansions, as mksh reads them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from benchfarm_virtual.shell.syntax import (
    NO_BACKQUOTES,
    Arithmetic,
    Command,
    Part,
    ShellSyntaxError,
    Text,
    Variable,
    Word,
    closing_brace,
    closing_parenthesis,
    double_quote_end,
)

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]|[@*#?$!-]")
_SPECIAL: Final = re.compile(r"""[\\'"`$]""")
_BRACED_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]")
_OPERATOR: Final = re.compile(r":[-=+]|##|%%|[-=+#%]")


@lru_cache(maxsize=4096)
def parse_word(raw: str) -> Word:
    """Read a word as it stands in a script."""
    return Word(tuple(_merged(_parts(raw, quoted=False))), raw)


def parse_quoted(raw: str) -> Word:
    """Read text as if it stood in double quotes (arithmetic, words of ``"${x:-...}"``)."""
    return Word(tuple(_merged(_parts(raw, quoted=True))), raw)


def _merged(parts: list[Part]) -> list[Part]:
    merged: list[Part] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, Text) and isinstance(last, Text) and last.quoted == part.quoted:
            merged[-1] = Text(last.text + part.text, part.quoted)
        else:
            merged.append(part)
    return merged


def _parts(raw: str, *, quoted: bool) -> list[Part]:
    parts: list[Part] = []
    at = 0
    while at < len(raw):
        char = raw[at]
        if char == "\\":
            following = raw[at + 1 : at + 2]
            if following == "\n":
                pass
            elif not quoted or (following and following in '$`"\\'):
                parts.append(Text(following, quoted=True))
            else:
                parts.append(Text("\\" + following, quoted=True))
            at += 2
        elif char == "'" and not quoted:
            end = raw.index("'", at + 1)
            parts.append(Text(raw[at + 1 : end], quoted=True))
            at = end + 1
        elif char == '"':
            end = double_quote_end(raw, at + 1) if not quoted else at + 1
            if not quoted:
                inner = _parts(raw[at + 1 : end - 1], quoted=True)
                parts += inner or [Text("", quoted=True)]
            at = end
        elif char == "`":
            raise ShellSyntaxError(NO_BACKQUOTES)
        elif char == "$":
            part, at = _dollar(raw, at, quoted=quoted)
            parts.append(part)
        else:
            special = _SPECIAL.search(raw, at + 1)
            end = special.start() if special is not None else len(raw)
            parts.append(Text(raw[at:end], quoted))
            at = end
    return parts


def _dollar(raw: str, at: int, *, quoted: bool) -> tuple[Part, int]:
    following = raw[at + 1 : at + 2]
    if following == "(":
        end = closing_parenthesis(raw, at + 2)
        inside = raw[at + 2 : end - 1]
        if inside.startswith("(") and inside.endswith(")") and _is_arithmetic(raw, at, end):
            return Arithmetic(parse_quoted(inside[1:-1]), quoted), end
        return Command(inside, quoted), end
    if following == "{":
        end = closing_brace(raw, at + 2, quoted=quoted)
        return _braced(raw[at + 2 : end - 1], quoted=quoted), end
    match = _NAME.match(raw, at + 1)
    if match is None:
        return Text("$", quoted), at + 1
    return Variable(match.group(), quoted), match.end()


def _is_arithmetic(raw: str, at: int, end: int) -> bool:
    """``$((a) + (b))`` is arithmetic, ``$((cmd); (cmd))`` isn't: the first inner parenthesis must
    close last.
    """
    return closing_parenthesis(raw, at + 3) == end - 1


def _braced(inside: str, *, quoted: bool) -> Variable:
    if (
        inside.startswith("#")
        and (match := _BRACED_NAME.fullmatch(inside, 1))
        and match.group() not in {"@", "*"}
    ):
        return Variable(match.group(), quoted, "length")
    match = _BRACED_NAME.match(inside)
    name, rest = (match.group(), inside[match.end() :]) if match is not None else ("", inside)
    if name and not rest:
        return Variable(name, quoted)
    operator_match = _OPERATOR.match(rest)
    # What a virtual phone doesn't know: parts of values, all parameters or quotes in a word that
    # would be split.
    if not name or name in {"@", "*"} or operator_match is None:
        return Variable(inside, quoted, "bad")
    unknown = r"\$@" if quoted else r"['\"\\]|\$@"
    if operator_match.group().lstrip(":") in {"-", "=", "+"} and re.search(unknown, rest):
        return Variable(inside, quoted, "bad")
    operator, operand = operator_match.group(), rest[operator_match.end() :]
    if operator in {"#", "##", "%", "%%"}:
        return Variable(name, quoted, operator, parse_word(operand))
    return Variable(
        name, quoted, operator, parse_quoted(operand) if quoted else parse_word(operand)
    )
