"""The scripts that run on a phone: POSIX shell in ``devices/scripts``, how their output is told
from other output, and the errors of commands that fail there.

Nothing has to be on the phone for that: a script is sent as text with its arguments in front, so a
full or read-only phone runs them too. Each file says at its top what its arguments are, what it
prints and what its exit code means. What they may assume of a phone's shell is in
``docs/decisions/0046-what-a-phone-shell-may-be.md``.

A shell may print more than its script does: a maker's banner, a linker's warning for each tool. So
each script's output is a section between two marks that no output can foresee, and the last mark
says that the answer is whole.
"""

from __future__ import annotations

import re
import secrets
import shlex
import signal
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from orchestrator.errors import (
    BenchfarmError,
    DeviceCommandError,
    DeviceError,
    LinkLostError,
    kinds_below,
)
from orchestrator.ports import ShellResult
from orchestrator.records import frozen
from orchestrator.records.failures import Source, texts_of

FOLDER: Final = Path(__file__).resolve().parent / "devices" / "scripts"
#: How often a question is sent until its answer is whole.
ATTEMPTS: Final = 3
#: Code -> its error class.
_KINDS: Final = {kind().code: kind for kind in kinds_below(DeviceError)}
#: The exit code of a process that a signal ended is this plus the signal's number.
_BY_SIGNAL: Final = 128
#: Behind the mark that ends an answer, in place of a section's name.
_END: Final = "."


@frozen
class Answer:
    """A whole answer to the scripts of one request."""

    exit_code: int
    stderr: bytes
    #: Name -> its script's standard output; a script that wasn't reached has none.
    sections: Mapping[str, bytes]

    @property
    def stdout(self) -> bytes:
        """The output of all scripts."""
        return b"".join(self.sections.values())

    def text(self, name: str) -> str:
        """Return a section as text, empty where there is none."""
        return self.sections.get(name, b"").decode("utf-8", "replace")

    def texts(self) -> dict[str, str]:
        """Return all sections as text."""
        return {name: self.text(name) for name in self.sections}

    def value(self, name: str) -> str:
        """Return the last line of a section that isn't blank: a tool's warning stands before its
        answer.
        """
        return next(
            (line.strip() for line in reversed(self.text(name).splitlines()) if line.strip()), ""
        )


def framed(scripts: Mapping[str, str]) -> str:
    """Return the text that runs scripts one after the other, each one's output a section.

    A script that exits ends the request, and those after it have no section. They share their
    shell's variables.
    """
    sections = (
        f'echo; echo "{section_mark()}{name}"\n{{\n{script}\n}} </dev/null\n'
        for name, script in scripts.items()
    )
    # The trap prints the last mark however the shell ends; a mark begins a line even if the output
    # before it has no line end. SIGTERM removes it first: some shells run the trap of EXIT then, and
    # exit with 0.
    traps = (
        f"trap 'echo; echo \"{section_mark()}{_END}\"' EXIT\ntrap 'trap - EXIT; exit 143' TERM\n"
    )
    return traps + "".join(sections)


def read_answer(result: ShellResult) -> Answer | None:
    """Return the answer of framed scripts, None when it is incomplete."""
    _, *parts = (b"\n" + result.stdout).split(b"\n" + section_mark().encode())
    if not parts or parts[-1].partition(b"\n")[0].strip() != _END.encode():
        return None
    sections: dict[str, bytes] = {}
    for part in parts[:-1]:
        name, _, body = part.partition(b"\n")
        sections[name.decode("utf-8", "replace")] = body
    return Answer(exit_code=result.exit_code, stderr=result.stderr, sections=sections)


def run_scripts(
    shell: Callable[[str], ShellResult], scripts: Mapping[str, str], *, serial: str = ""
) -> Answer:
    """Run idempotent scripts and return their answer, with up to 3 attempts to get a complete one.

    ``shell`` runs a text. Raises LinkLostError when no answer was complete, and the errors of
    ``shell``.
    """
    script = framed(scripts)
    for _ in range(ATTEMPTS):
        result = shell(script)
        if (answer := read_answer(result)) is not None:
            return answer
    output = (result.stderr or result.stdout)[-200:].decode("utf-8", "replace").strip()
    raise LinkLostError(
        f"{ATTEMPTS} answers to {', '.join(scripts)} were incomplete (exit code {result.exit_code}, {output!r})",
        serial=serial,
    )


def script_command(name: str, *arguments: object) -> str:
    """Return the shell text that runs a script with these arguments; it replaces the shell's own
    ``$1``, ``$2``, ...

    Raises BenchfarmError when there is no such script.
    """
    words = "".join(f" {shlex.quote(str(argument))}" for argument in arguments)
    return f"set --{words}\n{script_text(name)}"


@cache
def script_text(name: str) -> str:
    """Return a script without its comments and indentation, which a phone needn't be sent.

    Raises BenchfarmError when it is missing, which means that the installation is damaged.
    """
    try:
        lines = (FOLDER / f"{name}.sh").read_text("utf-8").splitlines()
    except OSError as error:
        raise BenchfarmError(
            f"benchfarm's own script {name}.sh can't be read: {error.strerror}",
            hint="The installation is damaged: install benchfarm again.",
        ) from error
    stripped = (line.strip() for line in lines)
    return "\n".join(line for line in stripped if line and not line.startswith("#")) + "\n"


@cache
def section_mark() -> str:
    """Return the mark of this process, which begins the line in front of each section."""
    return f"--{secrets.token_hex(8)}:"


def failure_in(message: str, source: Source, *, serial: str, action: str) -> DeviceError | None:
    """Return the error for a message of adb or of the phone.

    None when it contains no known text of the source.
    """
    for text, failure in texts_of(source):
        if re.search(text.pattern, message, re.I):
            excerpt = without_stack(message)[-300:] if source is not Source.ADB else message
            quoted = (
                f"adb says {excerpt!r}" if source is Source.ADB else f"the phone says {excerpt!r}"
            )
            parts = (action, text.meaning, quoted)
            return _KINDS[failure.code](
                ": ".join(filter(None, parts)),
                serial=serial,
                hint=text.next_step or failure.next_step,
            )
    return None


def writing_failure(message: str, *, serial: str, action: str) -> DeviceError | None:
    """Return the error for a phone's message that our folder isn't writable.

    None for any other message.
    """
    return failure_in(message, Source.WRITING, serial=serial, action=action)


def service_failure(message: str, *, serial: str, action: str) -> DeviceError | None:
    """Return the error for a message of the phone's tools about Android's services.

    None for any other message.
    """
    return failure_in(message, Source.SERVICE, serial=serial, action=action)


def without_stack(text: str) -> str:
    """Return a phone's output without the frames of a Java exception, whose message precedes them.

    The root cause of the exception, if any, is the last line.
    """
    lines = [line.strip() for line in text.strip().splitlines()]
    relevant = [
        line for line in lines if line and not re.match(r"at [\w.$<>]+\(|\.\.\. \d+ more$", line)
    ]
    causes = [line for line in relevant if line.startswith("Caused by: ")]
    return "\n".join([*(line for line in relevant if line not in causes[-1:]), *causes[-1:]])


def failure_reason(result: ShellResult | Answer) -> str:
    """Return why a command failed: the end of its output, else the meaning of its exit code."""
    output = without_stack((result.stderr or result.stdout).decode("utf-8", "replace"))
    if output:
        return output[-400:]
    if (number := result.exit_code - _BY_SIGNAL) in set(signal.Signals):
        return f"it was killed on the phone by signal {number} ({signal.Signals(number).name})"
    return f"exit code {result.exit_code}, and it printed nothing"


def check_success(result: ShellResult | Answer, *, serial: str, action: str) -> None:
    """Raise the error of a command that had to succeed and didn't: DeviceCommandError, or the kind
    that its output tells.
    """
    if result.exit_code == 0:
        return
    reason = failure_reason(result)
    raise (
        service_failure(reason, serial=serial, action=action)
        or writing_failure(reason, serial=serial, action=action)
        or DeviceCommandError(
            f"{action} failed with exit code {result.exit_code}: {reason}", serial=serial
        )
    )
