"""Scripts that come line by line: a shell that reads its commands from stdin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchfarm_lab.handles import NullHandle
from benchfarm_lab.shell.parsing import parse_script
from benchfarm_lab.shell.spans import ShellSyntaxError

if TYPE_CHECKING:
    from benchfarm_lab.shell.interpreter import Shell


def run_lines(shell: Shell) -> int:
    """Run commands as they arrive: as many lines as make a whole one are taken each time."""
    stdin = shell.fds.get(0) or NullHandle()
    prompt = f"{'#' if shell.uid == 0 else '$'} ".encode() if stdin.is_terminal else b""
    ended = False

    def commands() -> int:
        nonlocal ended
        while not ended:
            shell.write(1, (shell.cwd.encode("utf-8", "surrogateescape") + b" " + prompt) if prompt else b"")
            text = ""
            while True:
                line = stdin.read_line(shell.process)
                ended = not line
                text += line.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
                if ended or not _unfinished(text):
                    break
            if text.strip():
                shell.status = shell.run_text(text)
        return shell.status

    return shell.run_as_subshell(commands)


def _unfinished(text: str) -> bool:
    """Whether more lines may make a script of this."""
    if text.endswith("\\\n"):
        return True
    try:
        parse_script(text)
    except ShellSyntaxError as exc:
        return any(word in str(exc) for word in ("EOF", "quote", "unmatched", "unclosed"))
    return False
