"""First reading of a script: where its words, redirections, here-documents and comments are.

The statement grammar is tree-sitter-bash's, but words follow rules of their own (quotes, expansions nested in quotes,
mksh's differences from bash), so they are found here. The grammar then reads a *skeleton* of the same length: every
word turned into ``xxx``, comments and here-documents into spaces, reserved words and operators left where they are. All
positions in the skeleton are positions in the script.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from benchfarm_lab.shell.spans import ENDS_WORD, ShellSyntaxError, closing_parenthesis, unquoted, word_end

RESERVED: Final = frozenset(
    {"if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for", "function", "{", "}"}
)
_OPENING: Final = frozenset({"if", "then", "else", "elif", "do", "while", "until", "{"})
_CLOSING: Final = frozenset({"then", "do", "else", "elif", "fi", "done", "esac", "}"})
_CLOSED_BY: Final = {"fi": ("if",), "done": ("do", "while", "until", "for"), "esac": ("case",), "}": ("{",)}
_OPENERS: Final = frozenset({"if", "do", "while", "until", "for", "case", "{"})
_REDIRECT: Final = re.compile(r"&>>|&>|<<-|<<<|<<|<&|<>|>>|>&|>\||<|>")


@dataclass(frozen=True, slots=True)
class WordToken:
    """A word, from ``start`` to ``end`` in the script."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RedirectToken:
    """A redirection: its operator, the descriptor before it (None: the usual one) and what follows."""

    start: int
    end: int
    operator: str
    descriptor: int | None
    target_start: int
    #: The here-document's text and whether it is taken literally; None for other redirections.
    document: str | None = None
    literal: bool = False


@dataclass(slots=True)
class _Document:
    token_index: int
    delimiter: str
    literal: bool
    strip_tabs: bool


@dataclass(slots=True)
class Scan:
    """A script's skeleton and tokens."""

    script: str
    skeleton: bytes = b""
    tokens: list[WordToken | RedirectToken] = field(default_factory=list)
    #: Where a ``!`` that negates a pipeline stands.
    negations: set[int] = field(default_factory=set)
    #: Where words stand that are reserved where they are.
    reserved: dict[int, str] = field(default_factory=dict)
    #: What begins a compound statement and hasn't been closed: ``if``, ``{``, ``(`` ...
    unclosed: list[str] = field(default_factory=list)
    #: The delimiter of a here-document that isn't closed by it.
    open_document: str = ""


def scan(script: str) -> Scan:
    """Read a script; raise ShellSyntaxError for a quote or an expansion that isn't closed."""
    return _Scanner(script).run()


class _Scanner:
    def __init__(self, script: str) -> None:
        self.text = script
        self.out = list(script)
        self.result = Scan(script)
        self.documents: list[_Document] = []
        self.at_command = True
        #: What the word after the next ones means: "for" -> name, "in"; "case" -> word, "in", patterns.
        self.expect: list[str] = []
        self.case_depth: list[str] = []
        self.last_token_end = 0
        self.last_was_closing = False

    def run(self) -> Scan:
        text, at = self.text, 0
        while at < len(text):
            char = text[at]
            if char == "\n":
                at = self._newline(at)
            elif char in " \t\r":
                self.out[at] = " "
                at += 1
            elif char == "\\" and text[at + 1 : at + 2] == "\n":
                self._blank(at, at + 2)
                at += 2
            elif char == "#":
                end = text.find("\n", at)
                end = len(text) if end < 0 else end
                self._blank(at, end)
                at = end
            elif match := _REDIRECT.match(text, at):
                at = self._redirect(at, at, match.group(), None)
            elif char in ";&|()":
                at = self._operator(at)
            else:
                at = self._word(at)
        self._read_documents(len(text))
        self.result.skeleton = "".join(self.out).encode("ascii", "replace")
        return self.result

    def _blank(self, start: int, end: int) -> None:
        self.out[start:end] = " " * (end - start)

    def _newline(self, at: int) -> int:
        self.at_command = True
        return self._read_documents(at + 1) if self.documents else at + 1

    def _read_documents(self, at: int) -> int:
        """Take the bodies of the here-documents that were announced on the line before."""
        start = at
        for document in self.documents:
            body: list[str] = []
            closed = False
            while at < len(self.text):
                end = self.text.find("\n", at)
                line, following = (self.text[at:], len(self.text)) if end < 0 else (self.text[at:end], end + 1)
                at = following
                if document.strip_tabs:
                    line = line.lstrip("\t")
                if line == document.delimiter:
                    closed = True
                    break
                body.append(line + ("\n" if end >= 0 else ""))
            if not closed:
                self.result.open_document = document.delimiter
            old = self.result.tokens[document.token_index]
            if isinstance(old, RedirectToken):
                self.result.tokens[document.token_index] = RedirectToken(
                    old.start, old.end, "<<", old.descriptor, old.target_start, "".join(body), document.literal
                )
        self.documents.clear()
        self._blank(start, at)
        return at

    def _operator(self, at: int) -> int:
        text = self.text
        if text.startswith("((", at) and self.at_command and (end := self._arithmetic_end(at)) is not None:
            self._add_word(at, end)
            return end
        two = text[at : at + 2]
        width = 2 if two in {"&&", "||", ";;", "|&"} else 1
        operator = text[at : at + width]
        if self.case_depth and self.case_depth[-1] == "patterns":
            if operator == ")":
                self.case_depth[-1] = "body"
            self.at_command = operator == ")"
        else:
            if operator == "(":
                self.result.unclosed.append("(")
            elif operator == ")":
                self._close("(")
            if operator == ";;" and self.case_depth:
                self.case_depth[-1] = "patterns"
            if operator == ";" and self.expect[-1:] == ["for-in"]:
                self.expect.pop()
            self.at_command = True
        self.last_was_closing = operator == ")"
        self.last_token_end = at + width
        return at + width

    def _close(self, opener: str) -> None:
        if opener in self.result.unclosed[-1:]:
            self.result.unclosed.pop()

    def _arithmetic_end(self, at: int) -> int | None:
        """Return the end of ``(( ... ))`` when that is what stands there."""
        try:
            end = closing_parenthesis(self.text, at + 2)
        except ShellSyntaxError:
            return None
        return end + 1 if self.text[end : end + 1] == ")" else None

    def _redirect(self, start: int, at: int, operator: str, descriptor: int | None) -> int:
        """Take a redirection whose operator stands at ``at``; ``start`` is where its descriptor begins."""
        text = self.text
        target = at + len(operator)
        while target < len(text) and text[target] in " \t":
            target += 1
        end = word_end(text, target)
        if end == target:
            found = text[target : target + 1]
            raise ShellSyntaxError(f"unexpected {_shown(found)}")
        if operator in {"<<", "<<-"}:
            raw = text[target:end]
            delimiter = unquoted(raw)
            self.documents.append(
                _Document(len(self.result.tokens), delimiter, raw != delimiter, strip_tabs=operator == "<<-")
            )
        self.result.tokens.append(RedirectToken(start, end, operator, descriptor, target))
        self._blank(start, target)
        self.out[at] = ">"
        self.out[target:end] = "x" * (end - target)
        self.last_token_end = end
        return end

    def _word(self, at: int) -> int:
        text = self.text
        if self.at_command and text.startswith("[[", at) and text[at + 2 : at + 3] in {" ", "\t", "\n"}:
            end = self._conditional_end(at)
            self._add_word(at, end)
            return end
        end = word_end(text, at)
        word = text[at:end]
        if word.isdigit() and (match := _REDIRECT.match(text, end)) and text[end] != "&":
            return self._redirect(at, end, match.group(), int(word))
        if word == "!" and self.at_command:
            self.result.negations.add(at)
            self.out[at] = " "
            return end
        if self._reserved_word(at, end, word):
            return end
        self._add_word(at, end)
        return end

    def _reserved_word(self, at: int, end: int, word: str) -> bool:
        """Deal with a word that is reserved where it stands; False when it is an ordinary one."""
        if self.expect[-1:] == ["for-in"]:
            if word == "in":
                self.expect.pop()
                self._keep(at, word)
                if re.compile(r"[ \t]*[;\n]").match(self.text, end):
                    self._blank(at, end)
                self.at_command = False
                return True
            if word == "do":
                self.expect.pop()
        if self.expect[-1:] == ["case-in"] and word == "in":
            self.expect.pop()
            self.case_depth.append("patterns")
            self._keep(at, word)
            self.at_command = True
            return True
        if word == "esac" and self.case_depth and (self.at_command or self.case_depth[-1] == "patterns"):
            self.case_depth.pop()
            self._keep(at, word)
            self._after_closing(at, end)
            return True
        if self.case_depth and self.case_depth[-1] == "patterns":
            return False
        if not self.at_command or word not in RESERVED:
            return False
        if word in {"for", "case"}:
            self.expect.append(f"{word}-name")
            self.at_command = False
        elif word == "function":
            self.expect.append("function-name")
            self.at_command = False
        self._keep(at, word)
        if word in _CLOSING:
            self._after_closing(at, end)
        if word in _OPENING:
            self.at_command = True
            self.last_was_closing = False
        return True

    def _after_closing(self, at: int, end: int) -> None:
        """``fi fi`` and ``) then`` need no semicolon in sh; the grammar wants one."""
        gap = self.text[self.last_token_end : at]
        if self.last_was_closing and gap and not gap.strip(" \t"):
            self.out[self.last_token_end] = ";"
        self.at_command = True
        self.last_was_closing = True
        self.last_token_end = end

    def _keep(self, at: int, word: str) -> None:
        self.result.reserved[at] = word
        if word in _OPENERS:
            self.result.unclosed.append(word)
        elif word in _CLOSED_BY:
            for opener in _CLOSED_BY[word]:
                self._close(opener)

    def _add_word(self, at: int, end: int) -> None:
        self.out[at:end] = "x" * (end - at)
        self.result.tokens.append(WordToken(at, end))
        self.at_command = False
        self.last_was_closing = False
        self.last_token_end = end
        if self.expect:
            match self.expect[-1]:
                case "for-name":
                    self.expect[-1] = "for-in"
                    self.at_command = True
                case "case-name":
                    self.expect[-1] = "case-in"
                case "function-name":
                    self.expect.pop()
                    self.at_command = True

    def _conditional_end(self, at: int) -> int:
        """Return the end of ``[[ ... ]]``."""
        place = at + 2
        while place < len(self.text):
            if self.text[place] in ENDS_WORD:
                place += 1
                continue
            end = word_end(self.text, place)
            if self.text[place:end] == "]]":
                return end
            place = end
        raise ShellSyntaxError("unmatched '[['")


def _shown(text: str) -> str:
    return "EOF" if not text else "newline" if text == "\n" else f"'{text}'"
