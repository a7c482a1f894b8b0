"""Parsing flags as the benchmark programs do, with their rules and traps, and their usage text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from benchfarm_virtual.data import as_record, read_yaml

FlagType = Literal["int32", "float", "bool", "string"]
FlagValue = int | float | bool | str


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag as ``--help`` lists it; ``echo`` is what the parameter log calls it ("" when it
    isn't logged), ``only_with`` the switch without which the log leaves it out.
    """

    name: str
    type: FlagType
    default: FlagValue
    echo: str
    help: str
    only_with: str = ""


#: The flags of each part of the programs, in the order of ``--help``.
FLAGS: Final[Mapping[str, tuple[Flag, ...]]] = as_record(
    Mapping[str, tuple[Flag, ...]], read_yaml(Path(__file__).with_name("flags.yaml"))
)


def part_flags(*parts: str) -> tuple[Flag, ...]:
    """Return the flags of some parts of a program."""
    return tuple(flag for part in parts for flag in FLAGS[part])


#: A build with the CPU's delegates only.
CPU_FLAGS: Final = part_flags("core", "model", "default", "xnnpack", "external")
#: Logged even when they weren't given.
_ALWAYS_ECHOED: Final = frozenset({"graph", "signature_to_run_for"})
#: The order of the parameter log where it isn't that of --help.
_ECHO_FIRST: Final = ("graph", "signature_to_run_for", "list_signatures")


class FlagError(Exception):
    """A flag's value can't be parsed; the message is the program's."""


#: How a value is read.
_READ: Final[Mapping[FlagType, Callable[[str], FlagValue]]] = {
    "string": str,
    "int32": int,
    "float": float,
    "bool": {"true": True, "1": True, "false": False, "0": False}.__getitem__,
}


def parse_value(kind: FlagType, text: str) -> FlagValue | None:
    """Return a flag's value, or None when it is refused: also where C++ would read a part of it."""
    try:
        return _READ[kind](text if kind == "string" else text.replace("_", "?"))
    except (ValueError, KeyError):
        return None


def format_value(value: FlagValue) -> str:
    """Return a value as the parameter log shows it: bools 0 or 1, floats with six digits."""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(slots=True)
class Parameters:
    """The values of all flags, and the names of those given explicitly."""

    flags: Sequence[Flag]
    values: dict[str, FlagValue] = field(default_factory=dict)
    explicit: set[str] = field(default_factory=set)
    #: Where on the command line a flag stood: delegates are applied in this order.
    positions: dict[str, int] = field(default_factory=dict)
    unconsumed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for flag in self.flags:
            self.values.setdefault(flag.name, flag.default)

    def text(self, name: str) -> str:
        """Return a string flag; "" in a build without it."""
        return str(self.values.get(name, ""))

    def number(self, name: str) -> float:
        """Return a number flag; 0 in a build without it."""
        return float(self.values.get(name, 0))

    def integer(self, name: str) -> int:
        """Return an integer flag; 0 in a build without it."""
        return int(self.values.get(name, 0))

    def switch(self, name: str) -> bool:
        """Return a bool flag; False in a build without it."""
        return bool(self.values.get(name, False))

    def set(self, name: str, value: FlagValue) -> None:
        """Give a flag a value as if it had been on the command line; nothing in a build without it."""
        if name in self.values:
            self.values[name] = value
            self.explicit.add(name)

    def echo(self) -> Iterator[str]:
        """Yield the lines of the parameter log after its first."""
        first = [flag for name in _ECHO_FIRST for flag in self.flags if flag.name == name]
        rest = [flag for flag in self.flags if flag not in first]
        place = self.flags.index(first[0])
        for flag in (*rest[:place], *first, *rest[place:]):
            if not flag.echo or (flag.only_with and not self.switch(flag.only_with)):
                continue
            is_verbose = self.switch("verbose") and flag.name != "list_signatures"
            if is_verbose or flag.name in self.explicit or flag.name in _ALWAYS_ECHOED:
                yield f"{flag.echo}: [{format_value(self.values[flag.name])}]"


def parse_flags(flags: Sequence[Flag], arguments: Sequence[str]) -> Parameters:
    """Return the parameters of a command line (without the program's name).

    The first argument for a flag counts; what no flag takes is kept in ``unconsumed``. Raises
    FlagError for a value that is refused.
    """
    parameters = Parameters(flags)
    taken: set[int] = set()
    for flag in flags:
        prefix = f"--{flag.name}="
        for position, argument in enumerate(arguments):
            if not argument.startswith(prefix):
                continue
            value = parse_value(flag.type, argument[len(prefix) :])
            if value is None:
                raise FlagError(f"Failed to parse flag '{flag.name}' against argv '{argument}'")
            parameters.set(flag.name, value)
            parameters.positions[flag.name] = position
            taken.add(position)
            break
    parameters.unconsumed = [
        argument for position, argument in enumerate(arguments) if position not in taken
    ]
    return parameters


def usage(program: str, flags: Sequence[Flag]) -> str:
    """Return the usage text."""
    heads = [f"--{flag.name}={shown_default(flag)}" for flag in flags]
    width = max(len(head) for head in heads)
    lines = [
        f"\t{head:<{width}}\t{flag.type}\toptional\t{flag.help}"
        for head, flag in zip(heads, flags, strict=True)
    ]
    return "\n".join([f"usage: {program} <flags>", "Flags:", *lines, ""])


def shown_default(flag: Flag) -> str:
    """Return a flag's default as the command line takes it."""
    value = flag.default
    return str(value).lower() if isinstance(value, bool) else format_value(value)
