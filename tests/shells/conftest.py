"""Real shells, each with a folder of tools as its whole PATH: what runs on a phone is tried under
all of them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from orchestrator.ports import ShellResult
from orchestrator.scripts import Answer, framed, read_answer, script_command
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

    #: All tools, the shell among them; tests share them.
    tools: Path
    #: The test's own tools, which are found first.
    bin: Path
    folder: Path
    #: Its tools are those of a phone.
    has_toybox: bool = False
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.bin}:{self.tools}", "LC_ALL": "C", "HOME": str(self.folder)}

    def start(self, script: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [str(self.tools / "sh"), "-c", script],
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
        return self.run(script_command(name, *arguments) + then)

    def ask(self, **scripts: str) -> Answer:
        """Return the whole answer to framed scripts."""
        done = self.run(framed(scripts))
        answer = read_answer(
            ShellResult(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)
        )
        assert answer is not None, done
        return answer

    def warn(self) -> None:
        """Have each tool that scripts use begin with a linker's warning on its standard error."""
        for name in _TOOLS:
            real = self.tools / name
            self.tool(name, f'echo WARNING: linker: {name} >&2; exec {real} "$@"')

    def tool(self, name: str, script: str) -> None:
        """Put a shell script in the place of a tool."""
        path = self.bin / name
        path.write_text(f"#!{self.tools}/sh\n{script}\n")
        path.chmod(0o755)


@pytest.fixture(scope="session", params=SHELLS)
def tools(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shell's tools; none of them is ``su``."""
    program, with_toybox = SHELLS[request.param]
    found = shutil.which(program)
    toybox = shutil.which("toybox")
    if found is None or (with_toybox and toybox is None):
        missing(f"{program} or toybox isn't installed: tests/system_packages.sh does it")
    places = {
        path.name: path
        for place in ("/usr/sbin", "/bin", "/usr/bin")
        for path in Path(place).iterdir()
    }
    if with_toybox:
        names = subprocess.run([str(toybox)], capture_output=True, text=True, check=True).stdout
        places |= dict.fromkeys(names.split(), Path(str(toybox)))
    places["sh"] = Path(found)
    places.pop("su", None)
    folder = tmp_path_factory.mktemp(request.param)
    for name, path in places.items():
        (folder / name).symlink_to(path)
    return folder


@pytest.fixture
def shell(tools: Path, tmp_path: Path) -> Iterator[Shell]:
    own, work = tmp_path / "bin", tmp_path / "work"
    own.mkdir()
    work.mkdir()
    made = Shell(tools, own, work, has_toybox="toybox" in tools.name)
    try:
        yield made
    finally:
        for process in made.started:
            process.kill()
            process.communicate()
