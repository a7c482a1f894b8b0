"""find."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from dataclasses import dataclass

from benchfarm_lab.commands.invocation import Invocation
from benchfarm_lab.commands.registry import command
from benchfarm_lab.contract import FileStat, PhoneFileError
from benchfarm_lab.processes import user_id
from benchfarm_lab.shell.patterns import matches

_TYPES = {"f": stat.S_ISREG, "d": stat.S_ISDIR, "l": stat.S_ISLNK, "c": stat.S_ISCHR}


@dataclass(slots=True)
class _Found:
    path: str
    stat: FileStat
    prune: bool = False


_Test = Callable[[_Found], bool]


@command("find")
def find(call: Invocation) -> int:
    """Walk folders and do something with what fits."""
    args = list(call.args)
    while args and args[0] in {"-H", "-L", "-P"}:
        args.pop(0)
    roots: list[str] = []
    while args and not args[0].startswith("-") and args[0] not in {"!", "("}:
        roots.append(args.pop(0))
    plan = _Plan(call, args)
    for root in roots or ["."]:
        _visit(call, plan, root, 0)
    plan.finish()
    return 1 if call.failed else 0


def _visit(call: Invocation, plan: _Plan, path: str, depth: int) -> None:
    call.check_alive()
    try:
        found = _Found(path, call.system.files.stat(call.path(path), follow=False, uid=call.uid))
    except PhoneFileError as exc:
        call.complain(f"'{path}': {exc}")
        call.failed = True
        return
    shown = depth >= plan.least
    if shown and not plan.deep:
        plan.run(found)
    if stat.S_ISDIR(found.stat.mode) and depth < plan.most and not found.prune:
        try:
            names = call.system.files.list(call.path(path), uid=call.uid)
        except PhoneFileError as exc:
            call.complain(f"'{path}': {exc}")
            call.failed = True
            names = ()
        for name in names:
            _visit(call, plan, f"{path.rstrip('/')}/{name}" if path != "/" else f"/{name}", depth + 1)
    if shown and plan.deep:
        plan.run(found)


class _Plan:
    """The expression of one find."""

    def __init__(self, call: Invocation, args: list[str]) -> None:
        self.call = call
        self.args = args
        self.least, self.most, self.deep, self.acts = 0, 1 << 20, False, False
        self.batches: list[tuple[list[str], list[str]]] = []
        self.test = self.either() if args else self.always
        if self.args:
            call.fail(f"bad arg '{self.args[0]}'")

    @staticmethod
    def always(found: _Found) -> bool:
        return True

    def run(self, found: _Found) -> None:
        if self.test(found) and not self.acts:
            self.call.out.line(found.path)

    def finish(self) -> None:
        """Run what ``-exec ... +`` collected."""
        for words, paths in self.batches:
            if paths:
                self.call.run_child([*words, *paths])

    def either(self) -> _Test:
        test = self.both()
        while self.args[:1] in (["-o"], ["-or"]):
            self.args.pop(0)
            test = self._or(test, self.both())
        return test

    @staticmethod
    def _or(left: _Test, right: _Test) -> _Test:
        return lambda found: left(found) or right(found)

    def both(self) -> _Test:
        test = self.single()
        while self.args and self.args[0] not in {"-o", "-or", ")"}:
            if self.args[0] in {"-a", "-and"}:
                self.args.pop(0)
            test = self._and(test, self.single())
        return test

    @staticmethod
    def _and(left: _Test, right: _Test) -> _Test:
        return lambda found: left(found) and right(found)

    def value(self, name: str) -> str:
        if not self.args:
            self.call.fail(f"'{name}' needs 1 arg")
        return self.args.pop(0)

    def single(self) -> _Test:
        if not self.args:
            self.call.fail("missing expression")
        name = self.args.pop(0)
        if name in {"!", "-not"}:
            inner = self.single()
            return lambda found: not inner(found)
        if name == "(":
            inner = self.either()
            if not self.args or self.args.pop(0) != ")":
                self.call.fail("need )")
            return inner
        return self.named(name)

    def named(self, name: str) -> _Test:
        match name:
            case "-name" | "-iname" | "-path" | "-wholename" | "-ipath":
                return self.by_name(name, self.value(name))
            case "-type":
                kinds = [_TYPES.get(letter) for letter in self.value(name).split(",")]
                return lambda found: any(kind is not None and kind(found.stat.mode) for kind in kinds)
            case "-maxdepth" | "-mindepth":
                depth = self.number(self.value(name))[1]
                self.most, self.least = (int(depth), self.least) if name == "-maxdepth" else (self.most, int(depth))
                return self.always
            case "-depth" | "-mount" | "-xdev":
                self.deep = self.deep or name == "-depth"
                return self.always
            case "-size":
                return self.by_size(self.value(name))
            case "-mtime" | "-mmin" | "-atime" | "-amin" | "-ctime" | "-cmin":
                return self.by_age(self.value(name), 86400 if name.endswith("time") else 60)
            case "-newer":
                moment = self.call.system.files.stat(self.call.path(self.value(name)), uid=self.call.uid).mtime_s
                return lambda found: found.stat.mtime_s > moment
            case "-user":
                uid = user_id(self.value(name))
                return lambda found: found.stat.uid == uid
            case "-perm":
                text = self.value(name)
                bits = int(text.lstrip("-/"), 8)
                return (lambda found: found.stat.mode & bits == bits) if text[0] == "-" else (
                    lambda found: found.stat.mode & 0o7777 == bits)  # fmt: skip
            case "-empty":
                return self.is_empty
            case "-prune":
                return self.prune
            case "-print" | "-print0":
                return self.printer("\0" if name == "-print0" else "\n")
            case "-delete":
                self.deep = self.acts = True
                return self.delete
            case "-exec" | "-ok":
                return self.execute()
            case "-true":
                return self.always
        return self.call.fail(f"bad arg '{name}'")

    def by_name(self, name: str, pattern: str) -> _Test:
        fold = name in {"-iname", "-ipath"}
        pieces = ((pattern.lower() if fold else pattern, False),)

        def test(found: _Found) -> bool:
            text = found.path if "path" in name or "whole" in name else found.path.rstrip("/").rsplit("/", 1)[-1] or "/"
            return matches(pieces, text.lower() if fold else text)

        return test

    def number(self, text: str) -> tuple[str, float]:
        match = re.fullmatch(r"([-+]?)(\d+)", text)
        if match is None:
            self.call.fail(f"bad number '{text}'")
        return match.group(1), float(match.group(2))

    @staticmethod
    def compare(sign: str, value: float, wanted: float) -> bool:
        return value > wanted if sign == "+" else value < wanted if sign == "-" else value == wanted

    def by_size(self, text: str) -> _Test:
        match = re.fullmatch(r"([-+]?)(\d+)([cwbkMG]?)", text)
        if match is None:
            self.call.fail(f"bad size '{text}'")
        unit = {"c": 1, "w": 2, "k": 1024, "M": 1 << 20, "G": 1 << 30}.get(match.group(3), 512)
        return lambda found: self.compare(match.group(1), -(-found.stat.size_bytes // unit), int(match.group(2)))

    def by_age(self, text: str, unit_s: int) -> _Test:
        sign, wanted = self.number(text)
        now_s = self.call.system.time.wall_s()
        return lambda found: self.compare(sign, (now_s - found.stat.mtime_s) // unit_s, wanted)

    def is_empty(self, found: _Found) -> bool:
        if stat.S_ISDIR(found.stat.mode):
            return not self.call.system.files.list(self.call.path(found.path), uid=self.call.uid)
        return found.stat.size_bytes == 0

    @staticmethod
    def prune(found: _Found) -> bool:
        found.prune = True
        return True

    def printer(self, end: str) -> _Test:
        self.acts = True

        def show(found: _Found) -> bool:
            self.call.out.write((found.path + end).encode("utf-8", "surrogateescape"))
            return True

        return show

    def delete(self, found: _Found) -> bool:
        try:
            self.call.system.files.remove(self.call.path(found.path), uid=self.call.uid)
        except PhoneFileError as exc:
            self.call.complain(f"{found.path}: {exc}")
            self.call.failed = True
            return False
        return True

    def execute(self) -> _Test:
        self.acts = True
        words: list[str] = []
        while self.args and self.args[0] not in {";", "+"}:
            words.append(self.args.pop(0))
        if not self.args:
            self.call.fail("-exec needs ;")
        if self.args.pop(0) == "+":
            paths: list[str] = []
            self.batches.append(([word for word in words if word != "{}"], paths))

            def collect(found: _Found) -> bool:
                paths.append(found.path)
                return True

            return collect
        return lambda found: self.call.run_child([word.replace("{}", found.path) for word in words]) == 0
