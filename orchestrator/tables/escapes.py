"""Escapes for text from phones and users, for each format that it is written to."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterable
from typing import Final

#: The least width of text on a terminal, in columns.
WIDTH: Final = 80
#: Joiners in words and emoji, although Unicode calls them format characters.
_WANTED_FORMAT_CHARACTERS: Final = frozenset("\u200c\u200d")
_UNSEEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
_LINE_CHARACTERS: Final = frozenset("\n\t")
#: A spreadsheet takes a cell that begins with one of these as a formula.
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")
#: The folders of an absolute path; within quotes they may have blanks.
_FOLDERS: Final = re.compile(r"""(?<=['"])/[^'"\n]*/|(?<![\w./:~-])/(?:[^/\s'"\[\]]+/)+""")
#: Markup of Markdown, and text that pages turn into links and mentions afterwards.
_MARKDOWN: Final = re.compile(
    r"(?P<alive>@(?=\w)|:(?=//)|(?<=www)\.|#(?=\d))|(?P<special>[\\`*_{}\[\]()#+!|~$])|[&<>]",
    re.IGNORECASE,
)
_BYTES: Final = re.compile("[\udc80-\udcff]")
_HTML: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def visible(text: str) -> str:
    r"""Return text in one line, with escapes for controls, direction marks and lone surrogates:
    ``\n``, ``\u202e``.

    Otherwise a name could break a table's row, reverse the text after it, or fail to be written as
    UTF-8.
    """
    if text.isprintable():
        return text
    return "".join(_escape(char) if is_unseen(char) else char for char in text)


def without_folders(text: str) -> str:
    """Return text of this computer without the folders of its absolute paths:
    ``--graph=.../model.tflite``.
    """
    return _FOLDERS.sub(".../", text)


def visible_block(text: str) -> str:
    r"""Return text of several lines like :func:`visible`, with line ends (``\r\n`` as ``\n``) and tabs kept."""
    lines = text.replace("\r\n", "\n")
    if all(line.isprintable() for line in lines.split("\n")):
        return lines
    return "".join(
        _escape(char) if char not in _LINE_CHARACTERS and is_unseen(char) else char
        for char in lines
    )


def csv_text(text: str) -> str:
    """Return text for a CSV cell: visible, with a leading apostrophe before formulas."""
    return f"'{visible(text)}" if text.startswith(_FORMULA_STARTS) else visible(text)


def markdown_text(text: str) -> str:
    """Return text for a Markdown table cell: visible, without markup, HTML, links and mentions."""
    return _MARKDOWN.sub(_plain, visible(text))


def _plain(match: re.Match[str]) -> str:
    if match["alive"]:
        # The comment splits the text: a page would find names and addresses in it.
        return f"&#{ord(match[0])};<!-- -->"
    return f"\\{match[0]}" if match["special"] else _HTML[match[0]]


def shell_word(text: str) -> str:
    r"""Return text as a word of a shell's command, visible in one line: ``$'new\nline.tflite'``."""
    if text.isprintable():
        return shlex.quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    # Surrogates stand for bytes of a file name that aren't UTF-8.
    escaped = _BYTES.sub(lambda match: f"\\x{ord(match[0]) & 0xFF:02x}", escaped)
    return f"$'{visible(escaped)}'"


def display_width(text: str) -> int:
    """Return the width of a visible text in terminal columns: wide characters have two, combining
    ones none.
    """
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fit_width(text: str, width: int) -> str:
    """Return a visible text padded with spaces, or cut with an ellipsis, to a number of terminal
    columns.
    """
    text = visible(text)
    room = width - display_width(text)
    if room >= 0:
        return text + " " * room
    characters, used = [], 0
    for char in text:
        if used + display_width(char) > width - 1:
            break
        characters.append(char)
        used += display_width(char)
    return "".join(characters) + "…" + " " * (width - 1 - used)


def wrap(text: str, width: int = WIDTH, *, following: str = "") -> list[str]:
    """Return a visible text in lines of at most ``width`` terminal columns, broken between words
    where possible.

    Each begins with the leading blanks of the text, at most half a line of them; those after the
    first have ``following`` behind these.
    """
    words = text.lstrip(" ")
    indent = text[: min(len(text) - len(words), width // 2)]
    first, room = width - len(indent), width - len(indent) - len(following)
    lines = [""]
    for word in (piece for whole in words.split(" ") for piece in _pieces(whole, room)):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and display_width(longer) > (room if len(lines) > 1 else first):
            lines.append(word)
        else:
            lines[-1] = longer
    return [indent + following * (place > 0) + line.rstrip(" ") for place, line in enumerate(lines)]


def _pieces(word: str, width: int) -> Iterable[str]:
    """Yield a word in pieces that fit into a line."""
    piece, used = "", 0
    for char in word:
        if used + display_width(char) > width:
            yield piece
            piece, used = "", 0
        piece, used = piece + char, used + display_width(char)
    yield piece


def is_unseen(char: str) -> bool:
    """Whether a character is invisible: a control, a direction mark or a surrogate."""
    return (
        char not in _WANTED_FORMAT_CHARACTERS and unicodedata.category(char) in _UNSEEN_CATEGORIES
    )


def _escape(char: str) -> str:
    code = ord(char)
    return _SHORT.get(char) or (f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")


def one_line(text: str) -> str:
    """Return the lines of a text as one visible line, for tables and terminals."""
    first, *further = text.split("\n")
    return visible("; ".join([first, *(line.strip() for line in further if line.strip())]))
