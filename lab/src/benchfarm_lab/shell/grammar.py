"""Statements of a script, by tree-sitter-bash over the scanner's skeleton."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, Literal, cast

import tree_sitter
import tree_sitter_bash

from benchfarm_lab.shell.braces import brace_words
from benchfarm_lab.shell.scanning import RESERVED, RedirectToken, Scan, WordToken, scan
from benchfarm_lab.shell.spans import ShellSyntaxError, word_end
from benchfarm_lab.shell.syntax import (
    AndOr,
    Block,
    Calculation,
    Case,
    Condition,
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
from benchfarm_lab.shell.words import parse_document, parse_quoted, parse_word

_LANGUAGE: Final = tree_sitter.Language(tree_sitter_bash.language())
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_MAX_NESTING: Final = 200
#: Scripts of which more than this follows the first line.
_LONG_TAIL: Final = 200
#: Assignments and simple commands, whole words all of them: nothing that the next line could belong to.
_STANDS_ALONE: Final = re.compile(
    r"(?:\w+=)?(?:[\w./=,:%@+-]|'[^']*'|\\')+(?:(?: |; )(?:[\w./=,:%@+-]|'[^']*'|\\')+)*(?: >/dev/null 2>&1)?"
)
_COMPOUND: Final = re.compile(r"(?:^|; )(?:if|then|else|elif|while|until|do|for|case|function|select|time)\b")
_STATEMENTS: Final = frozenset(
    {
        "command", "redirected_statement", "pipeline", "list", "negated_command", "if_statement", "while_statement",
        "for_statement", "case_statement", "function_definition", "subshell", "compound_statement",
    }
)  # fmt: skip


def parse_script(script: str) -> Block:
    """Return a script's statements; raise ShellSyntaxError when it isn't one.

    A first line that stands alone is read by itself: what is the same after it is read once.
    """
    head, _, tail = script.partition("\n")
    if len(tail) >= _LONG_TAIL and _STANDS_ALONE.fullmatch(head) and not _COMPOUND.search(head):
        try:
            return Block((*_parsed(head).statements, *_parsed(tail).statements))
        except ShellSyntaxError:
            pass  # it is told of the whole
    return _parsed(script)


@lru_cache(maxsize=512)
def _parsed(script: str) -> Block:
    scanned = scan(script)
    if scanned.open_document:
        raise ShellSyntaxError(f"here document '{scanned.open_document}' unclosed")
    tree = tree_sitter.Parser(_LANGUAGE).parse(scanned.skeleton)
    return _Walk(scanned).block(tree.root_node, tree.root_node.children)


class _Walk:
    def __init__(self, scanned: Scan) -> None:
        self._scan = scanned
        self._script = scanned.script
        self._tokens = scanned.tokens
        self._starts = [token.start for token in scanned.tokens]
        self._depth = 0

    def block(self, parent: tree_sitter.Node, children: Sequence[tree_sitter.Node]) -> Block:
        """Read statements that stand one after another, with ``;``, ``&`` and newlines between them."""
        self._check(parent)
        statements: list[tuple[Statement, bool]] = []
        for node in children:
            if node.type in _STATEMENTS:
                statements.append((self.statement(node), False))
            elif node.type == "&" and statements:
                statements[-1] = (statements[-1][0], True)
            elif node.type == ";;" and parent.type != "case_item":
                raise ShellSyntaxError("unexpected ';;'")
            elif node.type in {";", "&"} and not statements:
                raise ShellSyntaxError(f"unexpected '{node.type}'")
        return Block(tuple(statements))

    def _check(self, node: tree_sitter.Node) -> None:
        if not node.has_error:
            return
        if self._scan.unclosed:
            raise ShellSyntaxError(f"unmatched '{self._scan.unclosed[-1]}'")
        fault = next((found for found in _nodes(node) if found.is_error or found.is_missing), node)
        if fault.is_missing or fault.start_byte >= len(self._scan.skeleton.rstrip()):
            raise ShellSyntaxError("unexpected EOF")
        raise ShellSyntaxError(f"unexpected '{self._first_word(fault)}'")

    def _first_word(self, node: tree_sitter.Node) -> str:
        leaf = node
        while leaf.children:
            leaf = leaf.children[-1] if leaf.is_error else leaf.children[0]
        return self._script[leaf.start_byte : leaf.end_byte].split("\n")[0][:40] or "newline"

    def statement(self, node: tree_sitter.Node) -> Statement:
        """Read one statement."""
        self._depth += 1
        if self._depth > _MAX_NESTING:
            raise ShellSyntaxError("too deeply nested")
        try:
            found = self._statement(node)
        finally:
            self._depth -= 1
        return Pipeline((found,), negated=True) if self._negated(node) and node.type != "list" else found

    def _negated(self, node: tree_sitter.Node) -> bool:
        before = self._script[: node.start_byte].rstrip(" \t")
        negations = 0
        while before.endswith("!") and len(before) - 1 in self._scan.negations:
            negations += 1
            before = before[:-1].rstrip(" \t")
        return negations % 2 == 1

    def _statement(self, node: tree_sitter.Node) -> Statement:
        match node.type:
            case "command":
                return self._simple(node.start_byte, node.end_byte)
            case "redirected_statement":
                return self._redirected(node)
            case "pipeline":
                return self._pipeline([child for child in node.children if child.type in _STATEMENTS], node)
            case "list":
                left, right = (child for child in node.children if child.type in _STATEMENTS)
                operator = next(child.type for child in node.children if child.type in {"&&", "||"})
                return AndOr(self.statement(left), cast(Literal["&&", "||"], operator), self.statement(right))
            case "if_statement":
                return self._if(node)
            case "while_statement":
                return self._loop(node)
            case "for_statement":
                return self._for(node)
            case "case_statement":
                return self._case(node)
            case "function_definition":
                return self._function(node)
            case "subshell":
                return Subshell(self._inner(node))
            case "compound_statement":
                return Group(self._inner(node))
        raise ShellSyntaxError(f"unexpected '{self._first_word(node)}'")

    def _inner(self, node: tree_sitter.Node) -> Block:
        block = self.block(node, node.children)
        if not block.statements:
            raise ShellSyntaxError(f"unexpected '{node.children[-1].type}'" if node.children else "unexpected EOF")
        return block

    def _pipeline(self, nodes: Sequence[tree_sitter.Node], node: tree_sitter.Node) -> Statement:
        commands: list[Statement] = []
        merging = [child.type == "|&" for child in node.children if child.type in {"|", "|&"}]
        for place, child in enumerate(nodes):
            # A "!" before the first command negates the whole pipeline; that is seen at the pipeline's own start.
            found = self._statement(child) if place == 0 else self.statement(child)
            if place < len(merging) and merging[place]:
                found = _with_redirect(found, Redirect(">&", 2, Word((Text("1", quoted=False),), "1")))
            commands.append(found)
        return Pipeline(tuple(commands), negated=False)

    def _redirected(self, node: tree_sitter.Node) -> Statement:
        body = node.child_by_field_name("body")
        if body is None:
            return self._simple(node.start_byte, node.end_byte)
        return self._redirect_last(body, body.end_byte, node.end_byte)

    def _redirect_last(self, body: tree_sitter.Node, start: int, end: int) -> Statement:
        """Attach redirections to the last command: the grammar hangs them on the whole list or pipeline."""
        if body.type == "command":
            return self._simple(body.start_byte, end)
        if body.type == "redirected_statement":
            inner = body.child_by_field_name("body")
            return (
                self._simple(body.start_byte, end) if inner is None else self._redirect_last(inner, inner.end_byte, end)
            )
        if body.type in {"list", "pipeline"}:
            children = [child for child in body.children if child.type in _STATEMENTS]
            last = self._redirect_last(children[-1], start, end)
            if self._negated(children[-1]) and body.type == "list":
                last = Pipeline((last,), negated=True)
            if body.type == "list":
                operator = next(child.type for child in body.children if child.type in {"&&", "||"})
                return AndOr(self.statement(children[0]), cast(Literal["&&", "||"], operator), last)
            before = self._pipeline(children[:-1], body)
            earlier = before.commands if isinstance(before, Pipeline) else (before,)
            return Pipeline((*earlier, last), negated=False)
        return Redirected(self._statement(body), self._redirects(start, end))

    def _if(self, node: tree_sitter.Node) -> Statement:
        branches: list[tuple[Block, Block]] = []
        otherwise: Block | None = None
        plain = [child for child in node.children if child.type not in {"elif_clause", "else_clause"}]
        branches.append(self._branch(node, plain))
        for child in node.children:
            if child.type == "elif_clause":
                branches.append(self._branch(child, child.children))
            elif child.type == "else_clause":
                otherwise = self._inner(child)
        return If(tuple(branches), otherwise)

    def _branch(self, node: tree_sitter.Node, children: Sequence[tree_sitter.Node]) -> tuple[Block, Block]:
        then = next((place for place, child in enumerate(children) if child.type == "then"), None)
        self._check(node)
        if then is None:
            raise ShellSyntaxError("unexpected EOF")
        condition, body = self.block(node, children[1:then]), self.block(node, children[then + 1 :])
        if not condition.statements or not body.statements:
            raise ShellSyntaxError(f"unexpected '{'fi' if condition.statements else 'then'}'")
        return condition, body

    def _loop(self, node: tree_sitter.Node) -> Statement:
        body = node.child_by_field_name("body")
        self._check(node)
        if body is None:
            raise ShellSyntaxError("unexpected EOF")
        condition = self.block(node, [child for child in node.children[1:] if child.start_byte < body.start_byte])
        return Loop(condition, self._inner(body), until=node.children[0].type == "until")

    def _for(self, node: tree_sitter.Node) -> Statement:
        body = node.child_by_field_name("body")
        self._check(node)
        if body is None:
            raise ShellSyntaxError("unexpected EOF")
        tokens = list(self._between(node.start_byte, body.start_byte))
        name = self._script[tokens[0].start : tokens[0].end]
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise ShellSyntaxError(f"'{name}' is not an identifier")
        has_in = any(word == "in" and tokens[0].end <= at < body.start_byte for at, word in self._scan.reserved.items())
        raws = [self._script[token.start : token.end] for token in tokens[1:] if isinstance(token, WordToken)]
        words = tuple(_words(raws)) if has_in else None
        return For(name, words, self._inner(body))

    def _case(self, node: tree_sitter.Node) -> Statement:
        self._check(node)
        items: list[tuple[tuple[Word, ...], Block]] = []
        first = next((child.start_byte for child in node.children if child.type == "case_item"), node.end_byte)
        value = next(self._between(node.start_byte, first))
        for child in node.children:
            if child.type != "case_item":
                continue
            closing = next(place for place, part in enumerate(child.children) if part.type == ")")
            patterns = self._between(child.start_byte, child.children[closing].start_byte)
            body = self.block(child, child.children[closing + 1 :])
            items.append((tuple(self._word(token) for token in patterns if isinstance(token, WordToken)), body))
        return Case(self._word(value), tuple(items))

    def _function(self, node: tree_sitter.Node) -> Statement:
        body = node.child_by_field_name("body")
        self._check(node)
        if body is None:
            raise ShellSyntaxError("unexpected EOF")
        name = next(self._between(node.start_byte, body.start_byte))
        statement = self.statement(body)
        redirects = self._redirects(body.end_byte, node.end_byte)
        return Function(
            self._script[name.start : name.end], Redirected(statement, redirects) if redirects else statement
        )

    # Words and redirections, from the scanner's tokens

    def _between(self, start: int, end: int) -> Iterator[WordToken | RedirectToken]:
        for place in range(bisect_left(self._starts, start), len(self._tokens)):
            token = self._tokens[place]
            if token.start >= end:
                return
            yield token

    def _word(self, token: WordToken | RedirectToken) -> Word:
        return parse_word(self._script[token.start : token.end])

    def _redirects(self, start: int, end: int) -> tuple[Redirect, ...]:
        return tuple(self._redirect(token) for token in self._between(start, end) if isinstance(token, RedirectToken))

    def _redirect(self, token: RedirectToken) -> Redirect:
        if token.document is not None:
            text = token.document
            target = Word((Text(text, quoted=True),), text) if token.literal else parse_document(text)
            return Redirect("<<", token.descriptor, target)
        return Redirect(token.operator, token.descriptor, parse_word(self._script[token.target_start : token.end]))

    def _simple(self, start: int, end: int) -> Statement:
        tokens = list(self._between(start, end))
        # A redirection before the first word belongs to the command although the grammar starts it there or not.
        redirects = tuple(self._redirect(token) for token in tokens if isinstance(token, RedirectToken))
        raws = [self._script[token.start : token.end] for token in tokens if isinstance(token, WordToken)]
        if not raws and not redirects:
            text = self._script[start:end].strip()
            raise ShellSyntaxError(f"unexpected '{text.split()[0] if text else 'newline'}'")
        if not any(isinstance(token, WordToken) and token.start == start for token in tokens) and (
            self._scan.reserved.get(start) in RESERVED
        ):
            raise ShellSyntaxError(f"unexpected '{self._scan.reserved[start]}'")
        if raws and raws[0].startswith("((") and len(raws) == 1:
            return Calculation(parse_quoted(raws[0][2:-2]), redirects)
        if raws and raws[0].startswith("[[") and raws[0].endswith("]]") and raws[0][2:3].isspace():
            return Condition(tuple(parse_word(raw) for raw in _condition_words(raws[0][2:-2])), redirects)
        assignments: list[tuple[str, Word, bool]] = []
        while raws and (match := _ASSIGNMENT.match(raws[0])):
            assignments.append((match.group(1), parse_word(raws[0][match.end() :]), match.group(2) == "+"))
            raws.pop(0)
        return Simple(tuple(assignments), tuple(_words(raws)), redirects)


def _words(raws: Sequence[str]) -> Iterator[Word]:
    for raw in raws:
        for word in brace_words(raw):
            yield parse_word(word)


def _condition_words(text: str) -> Iterator[str]:
    """Split the inside of ``[[ ]]`` into words and operators."""
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text[at : at + 2] in {"&&", "||"}:
            yield text[at : at + 2]
            at += 2
        elif text[at] in "()<>":
            yield text[at]
            at += 1
        else:
            end = word_end(text, at)
            yield text[at:end] if end > at else text[at]
            at = max(end, at + 1)


def _nodes(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    yield node
    for child in node.children:
        if child.has_error or child.is_missing or child.is_error:
            yield from _nodes(child)


def _with_redirect(statement: Statement, redirect: Redirect) -> Statement:
    if isinstance(statement, Simple):
        return Simple(statement.assignments, statement.words, (*statement.redirects, redirect))
    return Redirected(statement, (redirect,))
