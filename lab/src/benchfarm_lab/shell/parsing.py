"""Statements of a script: what POSIX's shell grammar has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal

from benchfarm_lab.shell.spans import ShellSyntaxError, word_end
from benchfarm_lab.shell.syntax import (
    AndOr,
    Block,
    Case,
    For,
    Function,
    Group,
    If,
    Loop,
    Pipeline,
    Redirect,
    Redirected,
    Simple,
    Statement,
    Subshell,
    Text,
    Word,
)
from benchfarm_lab.shell.words import parse_quoted, parse_word

RESERVED: Final = frozenset(
    {"if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for", "{", "}"}
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
_BLANK: Final = re.compile(r"(?:[ \t\r]|\\\n)*(?:#[^\n]*)?")
_OPERATOR: Final = re.compile(r"&&|\|\||;;|[;&|()\n]")
_REDIRECT: Final = re.compile(r"(\d*)(<&|>&|>>|>\||<<(?![<-])|<|>)")
_FUNCTION: Final = re.compile(r"[ \t]*\([ \t]*\)")
_MAX_NESTING: Final = 100
#: Scripts of which more than this follows the first line.
_LONG_TAIL: Final = 200
#: Assignments and simple commands, whole words all of them: nothing that the next line could belong to.
_STANDS_ALONE: Final = re.compile(
    r"(?:\w+=)?(?:[\w./=,:%@+-]|'[^']*'|\\')+(?:(?: |; )(?:[\w./=,:%@+-]|'[^']*'|\\')+)*(?: >/dev/null 2>&1)?"
)
_COMPOUND: Final = re.compile(r"(?:^|; )(?:if|then|else|elif|while|until|do|for|case)\b")


def parse_script(script: str) -> Block:
    """Return a script's statements; raise ShellSyntaxError when it isn't one.

    A first line that stands alone is read by itself: what is the same after it is read once.
    """
    head, _, tail = script.partition("\n")
    if len(tail) >= _LONG_TAIL and _STANDS_ALONE.fullmatch(head) and not _COMPOUND.search(head):
        try:
            return Block((*_parsed(head).statements, *_parsed(tail).statements))
        except ShellSyntaxError:
            pass  # the error of the whole is raised
    return _parsed(script)


@lru_cache(maxsize=512)
def _parsed(script: str) -> Block:
    parser = _Parser(script)
    block = parser.block()
    if not parser.at_end():
        raise parser.fault()
    return block


class _Parser:
    """Reads a script from its beginning; each method takes what it names."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        #: What begins a compound statement and hasn't been closed: ``if``, ``{``, ``(`` ...
        self.unclosed: list[str] = []
        self.depth = 0

    # Tokens

    def skip(self, *, lines: bool = False) -> None:
        """Pass over blanks and a comment, with ``lines`` over ends of lines too."""
        while True:
            match = _BLANK.match(self.text, self.at)
            self.at = match.end() if match else self.at
            if not lines or self.text[self.at : self.at + 1] != "\n":
                return
            self.at += 1

    def at_end(self) -> bool:
        self.skip()
        return self.at >= len(self.text)

    def operator(self) -> str:
        """Return the operator that comes next, "" before anything else."""
        self.skip()
        match = _OPERATOR.match(self.text, self.at)
        return match.group() if match else ""

    def word(self) -> str:
        """Return the word that comes next as it is written, "" before anything else."""
        self.skip()
        return self.text[self.at : word_end(self.text, self.at)]

    def take_word(self) -> str:
        word = self.word()
        if not word:
            raise self.fault()
        self.at += len(word)
        return word

    def ahead(self, ends: Sequence[str]) -> bool:
        """Say whether one of some reserved words or operators comes next."""
        return (self.operator() or self.word()) in ends

    def expect(self, end: str) -> None:
        if not self.ahead((end,)):
            raise self.fault()
        self.at += len(end)

    def fault(self) -> ShellSyntaxError:
        """Return the error of what comes next."""
        if self.at_end():
            return ShellSyntaxError(f"unmatched '{self.unclosed[-1]}'" if self.unclosed else "unexpected EOF")
        found = self.operator() or self.word() or self.text[self.at]
        return ShellSyntaxError("unexpected newline" if found == "\n" else f"unexpected '{found}'")

    # Statements

    def block(self, *ends: str) -> Block:
        """Take statements up to the end, or to a reserved word or operator, which is left."""
        statements: list[tuple[Statement, bool]] = []
        while True:
            self.skip(lines=True)
            if self.at_end() or self.ahead(ends):
                return Block(tuple(statements))
            statement = self.and_or()
            operator = self.operator()
            statements.append((statement, operator == "&"))
            if operator in {";", "&"}:
                self.at += 1
            elif not (operator == "\n" or self.at_end() or self.ahead(ends)):
                raise self.fault()

    def filled(self, *ends: str) -> Block:
        """Take at least one statement, up to one of ``ends``, which is left."""
        block = self.block(*ends)
        if not block.statements or not self.ahead(ends):
            raise self.fault()
        return block

    def enclosed(self, opener: str, end: str) -> Block:
        """Take a group from its opening to its end."""
        self.expect(opener)
        self.unclosed.append(opener)
        block = self.filled(end)
        self.expect(end)
        self.unclosed.pop()
        return block

    def and_or(self) -> Statement:
        left = self.pipeline()
        while True:
            operator: Literal["&&", "||"]
            match self.operator():
                case "&&":
                    operator = "&&"
                case "||":
                    operator = "||"
                case _:
                    return left
            self.at += 2
            self.skip(lines=True)
            left = AndOr(left, operator, self.pipeline())

    def pipeline(self) -> Statement:
        negated = False
        while self.word() == "!":
            self.at += 1
            negated = not negated
        commands = [self.command()]
        while self.operator() == "|":
            self.at += 1
            self.skip(lines=True)
            commands.append(self.command())
        return Pipeline(tuple(commands), negated) if negated or len(commands) > 1 else commands[0]

    def command(self) -> Statement:
        self.depth += 1
        if self.depth > _MAX_NESTING:
            raise ShellSyntaxError("too deeply nested")
        word = self.word()
        if self.operator() == "(":
            found = self.redirected(Subshell(self.enclosed("(", ")")))
        elif word == "{":
            found = self.redirected(Group(self.enclosed("{", "}")))
        elif word == "if":
            found = self.redirected(self.branches())
        elif word in {"while", "until"}:
            found = self.redirected(self.loop(word))
        elif word == "for":
            found = self.redirected(self.for_each())
        elif word == "case":
            found = self.redirected(self.case())
        elif word in RESERVED:
            raise self.fault()
        elif _NAME.fullmatch(word) and (match := _FUNCTION.match(self.text, self.at + len(word))):
            self.at = match.end()
            self.skip(lines=True)
            found = Function(word, self.command())
        else:
            found = self.simple()
        self.depth -= 1
        return found

    def redirected(self, body: Statement) -> Statement:
        """Take the redirections after a compound statement."""
        redirects = []
        while (redirect := self.redirect()) is not None:
            redirects.append(redirect)
        return Redirected(body, tuple(redirects)) if redirects else body

    def redirect(self) -> Redirect | None:
        self.skip()
        match = _REDIRECT.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        raw = self.take_word()
        target = self.document(raw) if match[2] == "<<" else parse_word(raw)
        return Redirect(match[2].removesuffix("|"), int(match[1]) if match[1] else None, target)

    def document(self, raw: str) -> Word:
        """Take the here-document that begins on the next line out of the text; ``raw`` is its end as it is written."""
        end = re.sub(r"['\"\\]", "", raw)
        start = at = self.text.find("\n", self.at) + 1
        while at:
            line, newline, _ = self.text[at:].partition("\n")
            if line == end or not newline:
                break
            at += len(line) + 1
        if not at or line != end:
            raise ShellSyntaxError(f"here document '{end}' unclosed")
        body = self.text[start:at]
        self.text = self.text[:start] + self.text[at + len(line) + len(newline) :]
        # A double quote is an ordinary character here.
        return parse_quoted(body.replace('"', '\\"')) if raw == end else Word((Text(body, quoted=True),), body)

    def simple(self) -> Statement:
        assignments: list[tuple[str, Word]] = []
        words: list[Word] = []
        redirects: list[Redirect] = []
        while True:
            redirect = self.redirect()
            if redirect is not None:
                redirects.append(redirect)
                continue
            raw = self.word()
            if not raw:
                break
            self.at += len(raw)
            match = _ASSIGNMENT.match(raw) if not words else None
            if match:
                assignments.append((match[1], parse_word(raw[match.end() :])))
            else:
                words.append(parse_word(raw))
        if not (assignments or words or redirects) or self.text[self.at : self.at + 1] in {"<", ">"}:
            raise self.fault()
        return Simple(tuple(assignments), tuple(words), tuple(redirects))

    # Compound statements

    def branches(self) -> Statement:
        self.expect("if")
        self.unclosed.append("if")
        branches: list[tuple[Block, Block]] = []
        while True:
            condition = self.filled("then")
            self.expect("then")
            branches.append((condition, self.filled("elif", "else", "fi")))
            if self.word() != "elif":
                break
            self.expect("elif")
        otherwise = None
        if self.word() == "else":
            self.expect("else")
            otherwise = self.filled("fi")
        self.expect("fi")
        self.unclosed.pop()
        return If(tuple(branches), otherwise)

    def loop(self, word: str) -> Statement:
        self.expect(word)
        self.unclosed.append(word)
        condition = self.filled("do")
        body = self.enclosed("do", "done")
        self.unclosed.pop()
        return Loop(condition, body, until=word == "until")

    def for_each(self) -> Statement:
        self.expect("for")
        self.unclosed.append("for")
        name = self.take_word()
        if not _NAME.fullmatch(name):
            raise ShellSyntaxError(f"'{name}' is not an identifier")
        self.skip(lines=True)
        words: list[Word] | None = None
        if self.word() == "in":
            self.expect("in")
            words = []
            while raw := self.word():
                self.at += len(raw)
                words.append(parse_word(raw))
        if self.operator() == ";":
            self.at += 1
        self.skip(lines=True)
        body = self.enclosed("do", "done")
        self.unclosed.pop()
        return For(name, None if words is None else tuple(words), body)

    def case(self) -> Statement:
        self.expect("case")
        self.unclosed.append("case")
        value = parse_word(self.take_word())
        self.skip(lines=True)
        self.expect("in")
        items: list[tuple[tuple[Word, ...], Block]] = []
        while True:
            self.skip(lines=True)
            if self.word() == "esac":
                break
            if self.operator() == "(":
                self.at += 1
            patterns = [parse_word(self.take_word())]
            while self.operator() == "|":
                self.at += 1
                patterns.append(parse_word(self.take_word()))
            self.expect(")")
            items.append((tuple(patterns), self.block(";;", "esac")))
            if self.operator() == ";;":
                self.at += 2
            elif self.word() != "esac":
                raise self.fault()
        self.expect("esac")
        self.unclosed.pop()
        return Case(value, tuple(items))
