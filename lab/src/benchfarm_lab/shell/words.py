"""Words in parts: quotes, escapes and expansions, as mksh reads them."""

from __future__ import annotations

import re
from typing import Final

from benchfarm_lab.shell.spans import (
    backquote_end,
    closing_brace,
    closing_parenthesis,
    dollar_end,
    double_quote_end,
)
from benchfarm_lab.shell.syntax import Arithmetic, Command, Part, Text, Variable, Word

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]|[@*#?$!-]")
_SPECIAL: Final = re.compile(r"""[\\'"`$]""")
_BRACED_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]")
_OPERATOR: Final = re.compile(r":[-=?+]|##|%%|//|/#|/%|[-=?+#%/:]")
_ANSI_C: Final = {
    "n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b", "E": "\x1b",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip


def parse_word(raw: str) -> Word:
    """Read a word as it stands in a script."""
    return Word(tuple(_merged(_parts(raw, quoted=False, in_document=False))), raw)


def parse_quoted(raw: str) -> Word:
    """Read text as if it stood in double quotes (arithmetic, words of ``"${x:-...}"``)."""
    return Word(tuple(_merged(_parts(raw, quoted=True, in_document=False))), raw)


def parse_document(raw: str) -> Word:
    """Read a here-document: as in double quotes, but a double quote is an ordinary character."""
    return Word(tuple(_merged(_parts(raw, quoted=True, in_document=True))), raw)


def _merged(parts: list[Part]) -> list[Part]:
    merged: list[Part] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, Text) and isinstance(last, Text) and last.quoted == part.quoted:
            merged[-1] = Text(last.text + part.text, part.quoted)
        else:
            merged.append(part)
    return merged


def _parts(raw: str, *, quoted: bool, in_document: bool) -> list[Part]:
    parts: list[Part] = []
    at = 0
    while at < len(raw):
        char = raw[at]
        if char == "\\":
            following = raw[at + 1 : at + 2]
            if following == "\n":
                pass
            elif not quoted or (following and following in ("$`\\" if in_document else '$`"\\')):
                parts.append(Text(following, quoted=True))
            else:
                parts.append(Text("\\" + following, quoted=True))
            at += 2
        elif char == "'" and not quoted:
            end = raw.index("'", at + 1)
            parts.append(Text(raw[at + 1 : end], quoted=True))
            at = end + 1
        elif char == '"' and not in_document:
            end = double_quote_end(raw, at + 1) if not quoted else at + 1
            if not quoted:
                inner = _parts(raw[at + 1 : end - 1], quoted=True, in_document=False)
                parts += inner or [Text("", quoted=True)]
            at = end
        elif char == "`":
            end = backquote_end(raw, at + 1)
            parts.append(Command(_unescaped(raw[at + 1 : end - 1], quoted=quoted), quoted))
            at = end
        elif char == "$":
            part, at = _dollar(raw, at, quoted=quoted)
            parts.append(part)
        else:
            special = _SPECIAL.search(raw, at + 1)
            end = special.start() if special is not None else len(raw)
            parts.append(Text(raw[at:end], quoted))
            at = end
    return parts


def _unescaped(script: str, *, quoted: bool) -> str:
    """Inside backquotes a backslash quotes only ``$``, backquote and backslash (and ``"`` inside double quotes)."""
    return re.sub(r'\\([$`\\"])' if quoted else r"\\([$`\\])", r"\1", script)


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
    if following == "'" and not quoted:
        end = dollar_end(raw, at)
        return Text(ansi_c(raw[at + 2 : end - 1]), quoted=True), end
    match = _NAME.match(raw, at + 1)
    if match is None:
        return Text("$", quoted), at + 1
    return Variable(match.group(), quoted), match.end()


def _is_arithmetic(raw: str, at: int, end: int) -> bool:
    """``$((a) + (b))`` is arithmetic, ``$((cmd); (cmd))`` isn't: the first inner parenthesis must close last."""
    return closing_parenthesis(raw, at + 3) == end - 1


def _braced(inside: str, *, quoted: bool) -> Variable:
    if inside.startswith("#") and (match := _BRACED_NAME.fullmatch(inside, 1)):
        return Variable(match.group(), quoted, "length")
    match = _BRACED_NAME.match(inside)
    if match is None:
        return Variable(inside, quoted, "bad")
    name, rest = match.group(), inside[match.end() :]
    if not rest:
        return Variable(name, quoted)
    operator_match = _OPERATOR.match(rest)
    if operator_match is None:
        return Variable(inside, quoted, "bad")
    operator, operand = operator_match.group(), rest[operator_match.end() :]
    if operator in {"#", "##", "%", "%%"}:
        return Variable(name, quoted, operator, parse_word(operand))
    if operator.startswith("/"):
        pattern, replacement = _split_pattern(operand)
        return Variable(name, quoted, operator, parse_word(pattern), parse_word(replacement))
    if operator == ":":
        offset, _, length = operand.partition(":")
        return Variable(name, quoted, ":", parse_quoted(offset), parse_quoted(length) if length else None)
    return Variable(name, quoted, operator, parse_quoted(operand) if quoted else parse_word(operand))


def _split_pattern(operand: str) -> tuple[str, str]:
    """Split ``pattern/replacement`` at the first slash that isn't quoted."""
    at = 0
    while at < len(operand):
        char = operand[at]
        if char == "/":
            return operand[:at], operand[at + 1 :]
        if char == "\\":
            at += 2
        elif char == "$":
            at = dollar_end(operand, at)
        elif char in "'\"" and (end := operand.find(char, at + 1)) >= 0:
            at = end + 1
        else:
            at += 1
    return operand, ""


def ansi_c(text: str) -> str:
    r"""Return the text of ``$'...'``: ``\n``, ``\x41``, ``\101``, ``\u20ac`` ..."""
    return re.sub(
        r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|.)", _ansi_c_escape, text, flags=re.DOTALL
    )


def _ansi_c_escape(match: re.Match[str]) -> str:
    code = match.group(1)
    if code[0] == "x" and len(code) > 1:
        return bytes([int(code[1:], 16)]).decode("utf-8", "surrogateescape")
    if code[0] in "uU" and len(code) > 1:
        return chr(min(int(code[1:], 16), 0x10FFFF))
    if code[0] in "01234567":
        return bytes([int(code, 8) & 0xFF]).decode("utf-8", "surrogateescape")
    return _ANSI_C.get(code, "\\" + code)
