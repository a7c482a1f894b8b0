"""Scripts as mksh reads them: words with their quotes and expansions, and what POSIX's shell
grammar has of statements.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from benchfarm_virtual.shell.syntax import (
    AndOr,
    Arithmetic,
    Block,
    Case,
    Command,
    For,
    Function,
    If,
    Loop,
    Part,
    Pipeline,
    Redirect,
    Redirected,
    ShellFaultError,
    Simple,
    Statement,
    Subshell,
    Text,
    Variable,
    Word,
)

RESERVED: Final = frozenset(
    "if then else elif fi do done case esac while until for { }".split()  # noqa: SIM905
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
_COMMENT: Final = re.compile(r"\A#[^\n]*")
_BLANK: Final = re.compile(r"(?:[ \t\r]|\\\n)*(?:#[^\n]*)?")
_OPERATOR: Final = re.compile(r"&&|\|\||;;|[;&|()\n]")
_REDIRECT: Final = re.compile(r"(\d*)(>&|>>|<|>)(?![&|<])")
_FUNCTION: Final = re.compile(r"([A-Za-z_]\w*)[ \t]*\([ \t]*\)", re.ASCII)
#: What :meth:`_Parser.peek` returns that is no word.
_NO_WORDS: Final = frozenset({"", "&&", "||", ";;", ";", "&", "|", "(", ")", "\n"})
_PARAMETER: Final = re.compile(r"[A-Za-z_]\w*|[0-9]|[@*#?$!-]", re.ASCII)
_BRACED: Final = r"[A-Za-z_]\w*|[0-9]+|[@*#?$!-]"
#: Inside braces: a parameter or its length, and one that is changed.
_WHOLE: Final = re.compile(rf"(?P<length>#(?=[^}}@*]))?(?P<name>{_BRACED})\}}", re.ASCII)
_CHANGED: Final = re.compile(rf"({_BRACED})(:-|##|%%|[#%])", re.ASCII)
#: What ends a word that isn't quoted, and what must be closed.
_ENDS_WORD: Final = " \t\n;&|()<>"
_CLOSING: Final = frozenset('"})')


def parse_script(script: str) -> Block:
    """Return a script's statements; raise ShellFaultError when it isn't one."""
    # A comment at the beginning often is all that tells one script from the last one.
    return _parsed(_COMMENT.sub("", script, count=1))


@lru_cache(maxsize=512)
def _parsed(script: str) -> Block:
    return _Parser(script).parse()


@lru_cache(maxsize=16)
def _plain(stop: str, *, quoted: bool) -> re.Pattern[str]:
    """Return the pattern of literal characters."""
    return re.compile(f'[^{re.escape(stop)}\\\\"`$(){"" if quoted else chr(39)}]+')


class _Parser:
    """Reads a script from its beginning; each method takes what it names."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        #: What comes next as it is written, where it begins and ends, and the word that it is: a
        #: caller of :meth:`peek` may ask as often as it likes.
        self.peeked, self.peeked_at, self.peeked_end = "", -1, -1
        self.peeked_word = Word(())

    def parse(self) -> Block:
        """Return the statements of the whole script."""
        block = self.block()
        if not self.at_end():
            raise self.fault()
        return block

    # Words

    def word(self) -> Word:
        return Word(tuple(self.parts(_ENDS_WORD, quoted=False)))

    def parts(self, stop: str, *, quoted: bool) -> list[Part]:
        """Take parts up to one of the characters in ``stop``, which is left.

        ``quoted``: as in double quotes.
        """
        parts: list[Part] = []
        depth = 0  # of parentheses in arithmetic
        plain = _plain(stop, quoted=quoted)
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in stop and not depth:
                break
            if stop == ")" and char in "()":
                depth += 1 if char == "(" else -1
            if char == "\\":
                self.escape(parts, '$`"\\' if quoted else "")
            elif char == "'" and not quoted:
                end = self.text.find("'", self.at + 1)
                if end < 0:
                    self.at = len(self.text)
                    raise self.fault()
                _add(parts, self.text[self.at + 1 : end], quoted=True)
                self.at = end + 1
            elif char == '"' and (not quoted or stop == "}"):
                self.at += 1
                parts += self.parts('"', quoted=True) or [Text("", quoted=True)]
                self.at += 1
            elif char == "`":
                raise ShellFaultError("a virtual phone knows no backquotes: write $(...)")
            elif char == "$":
                parts.append(self.dollar(quoted=quoted))
            else:
                match = plain.match(self.text, self.at)
                text = match.group() if match else char
                self.at += len(text)
                # Within quotes that another character closes, a quote has no meaning.
                if text != '"':
                    _add(parts, text, quoted=quoted)
        if self.at >= len(self.text) and stop in _CLOSING:
            raise self.fault()
        return parts

    def escape(self, parts: list[Part], only: str) -> None:
        """Take a backslash and the character that it escapes: one of ``only``, if not empty."""
        following = self.text[self.at + 1 : self.at + 2]
        if following != "\n":
            backslash = "" if not only or (following and following in only) else "\\"
            _add(parts, backslash + following, quoted=True)
        self.at += 2

    def dollar(self, *, quoted: bool) -> Part:
        start = self.at
        if self.text.startswith("$((", start):
            self.at += 3
            expression = Word(tuple(self.parts(")", quoted=True)))
            if not self.text.startswith("))", self.at):
                raise self.fault()
            self.at += 2
            return Arithmetic(expression, quoted)
        if self.text.startswith("$(", start):
            self.at += 2
            script = self.block(")")
            self.expect(")")
            return Command(script, quoted)
        if self.text.startswith("${", start):
            return self.braced(quoted=quoted)
        match = _PARAMETER.match(self.text, start + 1)
        self.at = match.end() if match else start + 1
        return Variable(match.group(), quoted) if match else Text("$", quoted)

    def braced(self, *, quoted: bool) -> Variable:
        begin = self.at + 2
        if match := _WHOLE.match(self.text, begin):
            self.at = match.end()
            return Variable(match["name"], quoted, "length" if match["length"] else "")
        match = _CHANGED.match(self.text, begin)
        name, operator = match.groups() if match else ("", "")
        self.at = start = match.end() if match else begin
        operand = Word(tuple(self.parts("}", quoted=quoted and operator == ":-")))
        raw, inside = self.text[start : self.at], self.text[begin : self.at]
        self.at += 1
        # What a virtual phone doesn't know: parts of values, all parameters or quotes in a word
        # that would be split.
        unknown = r"\$@" if quoted else r"['\"\\]|\$@"
        if name in {"", "@", "*"} or (operator == ":-" and re.search(unknown, raw)):
            return Variable(inside, quoted, "bad")
        return Variable(name, quoted, operator, operand)

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
            start = self.at
            match = _OPERATOR.match(self.text, start)
            word = Word(()) if match else self.word()
            end = match.end() if match else self.at
            self.at = self.peeked_at = start
            self.peeked, self.peeked_end, self.peeked_word = self.text[start:end], end, word
        return self.peeked

    def at_end(self) -> bool:
        return not self.peek() and self.at >= len(self.text)

    def take(self) -> str:
        """Take what comes next."""
        token = self.peek()
        self.at = self.peeked_end
        return token

    def take_word(self) -> Word:
        if self.peek() in _NO_WORDS:
            raise self.fault()
        self.take()
        return self.peeked_word

    def expect(self, end: str) -> None:
        if self.peek() != end:
            raise self.fault()
        self.take()

    def fault(self) -> ShellFaultError:
        """Return the error about the next token."""
        token = self.peek() or self.text[self.at : self.at + 1]
        label = {"": "EOF", "\n": "newline"}.get(token, f"'{token}'")
        return ShellFaultError(f"syntax error: unexpected {label}")

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
        block = self.filled(end)
        self.expect(end)
        return block

    def and_or(self) -> Statement:
        left = self.pipeline()
        while (operator := self.peek()) == "&&" or operator == "||":
            self.take()
            self.skip(lines=True)
            left = AndOr(left, "&&" if operator == "&&" else "||", self.pipeline())
        return left

    def pipeline(self) -> Statement:
        if negated := self.peek() == "!":
            self.take()
        commands = [self.command()]
        while self.peek() == "|":
            self.take()
            self.skip(lines=True)
            commands.append(self.command())
        return Pipeline(tuple(commands), negated) if negated or len(commands) > 1 else commands[0]

    def command(self) -> Statement:
        word = self.peek()
        if word == "(":
            return self.redirected(Subshell(self.enclosed("(", ")")))
        if word == "{":
            return self.redirected(self.enclosed("{", "}"))
        if word == "if":
            return self.redirected(self.branches())
        if word in {"while", "until"}:
            return self.redirected(self.loop(word))
        if word == "for":
            return self.redirected(self.for_each())
        if word == "case":
            return self.redirected(self.case())
        if word in RESERVED:
            raise self.fault()
        if (match := _FUNCTION.match(self.text, self.at)) is not None:
            self.at = match.end()
            self.skip(lines=True)
            return Function(match[1], self.command())
        return self.simple()

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
        target = self.take_word()
        return Redirect(match[2], int(match[1]) if match[1] else None, target)

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
            word = self.peeked_word
            match = _ASSIGNMENT.match(raw) if not words else None
            if match:
                first, *rest = word.parts
                assert isinstance(first, Text)
                value = Text(first.text[match.end() :], quoted=False)
                assignments.append((match[1], Word((value, *rest))))
            else:
                words.append(word)
        if not (assignments or words or redirects) or not (raw or self.at_end()):
            raise self.fault()
        return Simple(tuple(assignments), tuple(words), tuple(redirects))

    # Compound statements

    def branches(self) -> Statement:
        self.expect("if")
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
        return If(tuple(branches), otherwise)

    def loop(self, word: str) -> Statement:
        self.expect(word)
        condition = self.filled("do")
        body = self.enclosed("do", "done")
        return Loop(condition, body, until=word == "until")

    def for_each(self) -> Statement:
        self.expect("for")
        self.take_word()
        name = self.peeked
        if not _NAME.fullmatch(name):
            raise ShellFaultError(f"'{name}' is not an identifier")
        self.skip(lines=True)
        self.expect("in")
        words: list[Word] = []
        while self.peek() not in _NO_WORDS:
            words.append(self.take_word())
        if self.peek() == ";":
            self.take()
        self.skip(lines=True)
        body = self.enclosed("do", "done")
        return For(name, tuple(words), body)

    def case(self) -> Statement:
        self.expect("case")
        value = self.take_word()
        self.skip(lines=True)
        self.expect("in")
        items: list[tuple[tuple[Word, ...], Block]] = []
        while True:
            self.skip(lines=True)
            if self.peek() == "esac":
                break
            patterns = [self.take_word()]
            while self.peek() == "|":
                self.take()
                patterns.append(self.take_word())
            self.expect(")")
            items.append((tuple(patterns), self.block(";;", "esac")))
            if self.peek() == ";;":
                self.take()
            elif self.peek() != "esac":
                raise self.fault()
        self.expect("esac")
        return Case(value, tuple(items))


def _add(parts: list[Part], text: str, *, quoted: bool) -> None:
    """Append text, to text of the same kind where that stands before it."""
    last = parts[-1] if parts else None
    if isinstance(last, Text) and last.quoted == quoted:
        parts[-1] = Text(last.text + text, quoted)
    else:
        parts.append(Text(text, quoted))
