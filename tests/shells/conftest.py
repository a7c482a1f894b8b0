"""Real shells, each with a folder of tools as its whole PATH: what runs on a phone is tried under
all of them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from orchestrator.ports import ShellResult
from orchestrator.scripts import Answer, call, framed, read
from tests.conftest import missing

#: Name -> program, and whether all tools but those that toybox lacks here are toybox's.
SHELLS: Mapping[str, tuple[str, bool]] = {
    "mksh": ("mksh", False),
    "mksh-toybox": ("mksh", True),
    "dash": ("dash", False),
    "busybox": ("busybox", False),
    "bash-posix": ("bash", False),
}
#: Those that scripts use.
_TOOLS: Final = (
    "awk", "cat", "chmod", "cp", "date", "df", "dd", "grep", "id", "ls", "md5sum", "mkdir", "mv", "ps", "rm", "rmdir",
    "sha256sum", "stat", "touch", "wc",
)  # fmt: skip


@dataclass
class Shell:
    """A shell that is called ``sh`` in its own PATH, as the programs that scripts start find it."""

    bin: Path
    folder: Path
    #: Its tools are those of a phone.
    has_toybox: bool = False
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": str(self.bin), "LC_ALL": "C", "HOME": str(self.folder)}

    def start(self, script: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [str(self.bin / "sh"), "-c", script],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.started.append(process)
        return process

    def run(self, script: str, *, timeout_s: float = 60.0) -> subprocess.CompletedProcess[bytes]:
        process = self.start(script)
        out, err = process.communicate(timeout=timeout_s)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def call(
        self, name: str, *arguments: object, then: str = ""
    ) -> subprocess.CompletedProcess[bytes]:
        return self.run(call(name, *arguments) + then)

    def ask(self, **scripts: str) -> Answer:
        """Return the whole answer to framed scripts."""
        done = self.run(framed(scripts))
        answer = read(
            ShellResult(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)
        )
        assert answer is not None, done
        return answer

    def warn(self) -> None:
        """Have each tool that scripts use begin with a linker's warning on its standard error."""
        real = self.bin / "real"
        real.mkdir()
        for name in _TOOLS:
            # Tools of one program look at their own names.
            (self.bin / name).rename(real / name)
            self.tool(name, f'echo WARNING: linker: {name} >&2; exec {real / name} "$@"')

    def tool(self, name: str, script: str) -> None:
        """Put a shell script in the place of a tool."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!{self.bin}/sh\n{script}\n")
        path.chmod(0o755)


@contextmanager
def shell_of(name: str, folder: Path) -> Iterator[Shell]:
    program, with_toybox = SHELLS[name]
    found = shutil.which(program)
    toybox = shutil.which("toybox")
    if found is None or (with_toybox and toybox is None):
        missing(f"{program} or toybox isn't installed: tests/system_packages.sh does it")
    tools = folder / "bin"
    work = folder / "work"
    tools.mkdir()
    work.mkdir()
    for place in ("/usr/bin", "/bin", "/usr/sbin"):
        for path in Path(place).iterdir():
            if not (tools / path.name).exists():
                (tools / path.name).symlink_to(path)
    if with_toybox:
        for tool in subprocess.run(
            [str(toybox)], capture_output=True, text=True, check=True
        ).stdout.split():
            (tools / tool).unlink(missing_ok=True)
            (tools / tool).symlink_to(str(toybox))
    (tools / "sh").unlink()
    (tools / "sh").symlink_to(found)
    shell = Shell(tools, work, with_toybox)
    try:
        yield shell
    finally:
        for process in shell.started:
            process.kill()
            process.communicate()


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    with shell_of(request.param, tmp_path) as made:
        yield made
