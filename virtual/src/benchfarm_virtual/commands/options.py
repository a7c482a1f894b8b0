"""Options of commands, read as toybox reads them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchfarm_virtual.commands.invocation import Invocation


@dataclass(slots=True)
class Options:
    """Options and the arguments that are left."""

    flags: set[str] = field(default_factory=set)
    values: dict[str, list[str]] = field(default_factory=dict)
    args: list[str] = field(default_factory=list)

    def __contains__(self, name: str) -> bool:
        return name in self.flags or name in self.values

    def last(self, name: str, default: str = "") -> str:
        """Return the last value given for an option."""
        return self.values[name][-1] if name in self.values else default


def read_options(
    call: Invocation,
    flags: str,
    values: str = "",
    *,
    long: Mapping[str, str] | None = None,
    args: Sequence[str] | None = None,
    stop_early: bool = False,
) -> Options:
    """Read a call's options: single letters in ``flags``, those with a value in ``values``, long
    names in ``long``.

    ``stop_early``: what follows the first argument belongs to another command. Raises
    CommandFaultError.
    """
    found = Options()
    todo = deque(call.args if args is None else args)
    while todo:
        arg = todo.popleft()
        if arg == "--":
            found.args += todo
            break
        if arg.startswith("--"):
            name, equals, value = arg[2:].partition("=")
            letter = (long or {}).get(name)
            if letter is None:
                call.fail(f"Unknown option '{name}' (see \"{call.name} --help\")")
            if letter in values:
                found.values.setdefault(letter, []).append(
                    value if equals or not todo else todo.popleft()
                )
            else:
                found.flags.add(letter)
        elif arg.startswith("-") and len(arg) > 1:
            _read_letters(call, arg[1:], flags, values, todo, found)
        else:
            found.args.append(arg)
            if stop_early:
                found.args += todo
                break
    return found


def _read_letters(
    call: Invocation, letters: str, flags: str, values: str, todo: deque[str], found: Options
) -> None:
    while letters:
        letter, letters = letters[0], letters[1:]
        if letter in values:
            if not letters and not todo:
                call.fail(f'Missing argument to -{letter} (see "{call.name} --help")')
            found.values.setdefault(letter, []).append(letters or todo.popleft())
            return
        if letter not in flags:
            call.fail(f"Unknown option '{letter}' (see \"{call.name} --help\")")
        found.flags.add(letter)


def need_args(call: Invocation, options: Options, least: int) -> None:
    """End the command when arguments are missing."""
    if len(options.args) < least:
        call.fail(f'Needs {least} argument{"s" if least > 1 else ""} (see "{call.name} --help")')
