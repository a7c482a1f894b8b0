"""Statements of a script: what POSIX's shell grammar has."""

from __future__ import annotations

import contextlib
import re
from functools import lru_cache
from itertools import islice
from typing import Final

from benchfarm_virtual.shell.syntax import (
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
    ShellSyntaxError,
    Simple,
    Statement,
    Subshell,
    Text,
    Word,
    word_end,
)
from benchfarm_virtual.shell.words import parse_quoted, parse_word

RESERVED: Final = frozenset(
    {
        "if",
        "then",
        "else",
        "elif",
        "fi",
        "do",
        "done",
        "case",
        "esac",
        "while",
        "until",
        "for",
        "{",
        "}",
    }
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
_BLANK: Final = re.compile(r"(?:[ \t\r]|\\\n)*(?:#[^\n]*)?")
_OPERATOR: Final = re.compile(r"&&|\|\||;;|[;&|()\n]")
_REDIRECT: Final = re.compile(r"(\d*)(<&|>&|>>|>\||<<(?![<-])|<|>)")
_FUNCTION: Final = re.compile(r"([A-Za-z_]\w*)[ \t]*\([ \t]*\)", re.ASCII)
#: What :meth:`_Parser.peek` returns that is no word.
_NO_WORDS: Final = frozenset({"", "&&", "||", ";;", ";", "&", "|", "(", ")", "\n"})
_MAX_NESTING: Final = 100
_WORD: Final = r"(?:[\w./=,:%@+-]|'[^']*'|\"'\"|\\')+"
#: A comment, or a command with plain or quoted words, up to its newline: in these, scripts differ
#: that are else alike.
_ALONE: Final = re.compile(
    rf"(?:#[^\n]*|(?:set|rm|echo|cd)(?: {_WORD})*(?: 2?>/dev/null)?|\w+={_WORD})?\n"
)
#: Where another such command may begin.
_NEXT: Final = re.compile(r"(?<!\\)\n(?=set -- )")


def parse_script(script: str) -> Block:
    """Return a script's statements; raise ShellSyntaxError when it isn't one.

    Lines that stand alone are read by themselves, and what is the same between them is read once: a
    part that is a script means the same alone.
    """
    statements: list[tuple[Statement, bool]] = []
    at = 0
    while at < len(script):
        alone = _ALONE.match(script, at)
        # A compound statement may hold such a line: after two of them the rest is read as it is.
        ends = (
            [alone.end()]
            if alone
            else [match.end() for match in islice(_NEXT.finditer(script, at), 2)]
        )
        for end in (*ends, len(script)):
            with contextlib.suppress(ShellSyntaxError):
                statements += _read(script[at:end]).statements
                at = end
                break
        else:
            return _Parser(script).whole()
    return Block(tuple(statements))


@lru_cache(maxsize=512)
def _read(script: str) -> Block:
    """Return the statements of a script; raise ShellSyntaxError when it isn't one."""
    return _Parser(script).whole()


class _Parser:
    """Reads a script from its beginning; each method takes what it names."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        #: What comes next, and where: a caller of :meth:`peek` may ask as often as it likes.
        self.peeked, self.peeked_at = "", -1
        #: What begins a compound statement and hasn't been closed: ``if``, ``{``, ``(`` ...
        self.unclosed: list[str] = []
        self.depth = 0

    def whole(self) -> Block:
        """Take everything."""
        block = self.block()
        if not self.at_end():
            raise self.fault()
        return block

    # Tokens

    def skip(self, *, lines: bool = False) -> None:
        """Pass over blanks and a comment, with ``lines`` over ends of lines too."""
        while True:
            match = _BLANK.match(self.text, self.at)
            self.at = match.end() if match else self.at
            if not lines or self.text[self.at : self.at + 1] != "\n":
                return
            self.at += 1

    def peek(self) -> str:
        """Return the operator or word that comes next as it is written, "" at the end and before a
        redirection.
        """
        if self.at != self.peeked_at:
            self.skip()
            match = _OPERATOR.match(self.text, self.at)
            end = match.end() if match else word_end(self.text, self.at)
            self.peeked, self.peeked_at = self.text[self.at : end], self.at
        return self.peeked

    def at_end(self) -> bool:
        return not self.peek() and self.at >= len(self.text)

    def take(self) -> str:
        """Take what comes next."""
        token = self.peek()
        self.at += len(token)
        return token

    def take_word(self) -> str:
        if self.peek() in _NO_WORDS:
            raise self.fault()
        return self.take()

    def expect(self, end: str) -> None:
        if self.take() != end:
            self.at = self.peeked_at
            raise self.fault()

    def fault(self) -> ShellSyntaxError:
        """Return the error of what comes next."""
        if self.at_end():
            return ShellSyntaxError(
                f"unmatched '{self.unclosed[-1]}'" if self.unclosed else "unexpected EOF"
            )
        found = self.peek() or self.text[self.at]
        return ShellSyntaxError("unexpected newline" if found == "\n" else f"unexpected '{found}'")

    # Statements

    def block(self, *ends: str) -> Block:
        """Take statements up to the end, or to a reserved word or operator, which is left."""
        statements: list[tuple[Statement, bool]] = []
        while True:
            self.skip(lines=True)
            if self.at_end() or self.peek() in ends:
                return Block(tuple(statements))
            statement = self.and_or()
            operator = self.peek()
            statements.append((statement, operator == "&"))
            if operator in {";", "&"}:
                self.take()
            elif operator != "\n" and operator not in ends and not self.at_end():
                raise self.fault()

    def filled(self, *ends: str) -> Block:
        """Take at least one statement, up to one of ``ends``, which is left."""
        block = self.block(*ends)
        if not block.statements or self.peek() not in ends:
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
        while (operator := self.peek()) == "&&" or operator == "||":
            self.take()
            self.skip(lines=True)
            left = AndOr(left, "&&" if operator == "&&" else "||", self.pipeline())
        return left

    def pipeline(self) -> Statement:
        negated = False
        while self.peek() == "!":
            self.take()
            negated = not negated
        commands = [self.command()]
        while self.peek() == "|":
            self.take()
            self.skip(lines=True)
            commands.append(self.command())
        return Pipeline(tuple(commands), negated) if negated or len(commands) > 1 else commands[0]

    def command(self) -> Statement:
        self.depth += 1
        if self.depth > _MAX_NESTING:
            raise ShellSyntaxError("too deeply nested")
        word = self.peek()
        if word == "(":
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
        elif (match := _FUNCTION.match(self.text, self.at)) is not None:
            self.at = match.end()
            self.skip(lines=True)
            found = Function(match[1], self.command())
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
        """Take the here-document that begins on the next line out of the text; ``raw`` is its end
        as it is written.
        """
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
        return (
            parse_quoted(body.replace('"', '\\"'))
            if raw == end
            else Word((Text(body, quoted=True),), body)
        )

    def simple(self) -> Statement:
        assignments: list[tuple[str, Word]] = []
        words: list[Word] = []
        redirects: list[Redirect] = []
        while True:
            if (redirect := self.redirect()) is not None:
                redirects.append(redirect)
                continue
            raw = self.peek()
            if raw in _NO_WORDS:
                break
            self.take()
            match = _ASSIGNMENT.match(raw) if not words else None
            if match:
                assignments.append((match[1], parse_word(raw[match.end() :])))
            else:
                words.append(parse_word(raw))
        if not (assignments or words or redirects) or not (raw or self.at_end()):
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
            if self.peek() != "elif":
                break
            self.expect("elif")
        otherwise = None
        if self.peek() == "else":
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
        if self.peek() == "in":
            self.expect("in")
            words = []
            while self.peek() not in _NO_WORDS:
                words.append(parse_word(self.take()))
        if self.peek() == ";":
            self.take()
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
            if self.peek() == "esac":
                break
            if self.peek() == "(":
                self.take()
            patterns = [parse_word(self.take_word())]
            while self.peek() == "|":
                self.take()
                patterns.append(parse_word(self.take_word()))
            self.expect(")")
            items.append((tuple(patterns), self.block(";;", "esac")))
            if self.peek() == ";;":
                self.take()
            elif self.peek() != "esac":
                raise self.fault()
        self.expect("esac")
        self.unclosed.pop()
        return Case(value, tuple(items))
