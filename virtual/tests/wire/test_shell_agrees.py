"""The virtual phone's shell and tools against real ones: mksh and toybox.

Each file of ../shell_snippets holds snippets between lines ``%%``. A snippet runs in an empty
folder of its own; what it prints on stdout and stderr and its exit code must be the same on both.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import AdbServer, missing

FOLDER: Final = Path(__file__).parents[1] / "shell_snippets"
#: As in Android's shell, where adbd starts it.
ENVIRONMENT: Final = {
    "ANDROID_DATA": "/data", "ANDROID_ROOT": "/system", "HOME": "/", "HOSTNAME": "localhost", "LOGNAME": "shell",
    "LC_ALL": "C.UTF-8", "SHELL": "/bin/sh", "TERM": "xterm-256color", "TMPDIR": "/data/local/tmp", "USER": "shell",
}  # fmt: skip
NOBODY: Final = 65534
SNIPPETS_A_CALL: Final = 40
#: What is different and stays so, and why: nothing of ours sends it. Ten at the most.
KNOWN: Final[Mapping[str, str]] = {
    "alias a='echo 1'; eval a; a[0]=1; echo ${a[0]}": "no aliases and no arrays",
    "IFS=:; x=a:b; echo $x `echo c`": "no backquotes, and words are split at white space",
    "cat <<A\nx\nA": "no here-documents",
    "[[ a = a ]] && ((1)) && echo a": "no [[ and no ((",
    "x=abc; echo ${x/b/-} ${x:1:2} ${y:-'a b'}; echo {a,b}": "no parts of values, no quotes in split ones, no braces",
    "x=1; echo $((x+=1)) $((x?1:0)) $((x&&1))": "no other arithmetic than sums, products and bits",
    "case a in a) echo 1;& b) echo 2;; esac": "no falling through to the next pattern",
    "set -e; false; echo on": "no options of set",
    'echo a\necho "b': "of a script that can't be read no line runs, and mksh has other words for why",
    "print a; let 1; umask; type cd; unset a; v=1 eval 'echo $v'; trap 'echo bye' EXIT": "no builtins, and no forms of "
    "them, but those that scripts need",
}
MARK: Final = "=#=#="
#: Runs each of its arguments in a session and a folder of its own, and prints what came of it.
DRIVER: Final = f"""
cd "$1" || exit 1; top=$PWD; shift; n=0
for script in "$@"; do
 n=$((n+1)); mkdir $n w.$n; cd w.$n
 setsid sh -c "$script" >../$n/out 2>../$n/err </dev/null; r=$?
 cd "$top"; printf '\\n{MARK}%s:out\\n' $r; cat $n/out; printf '\\n{MARK}err\\n'; cat $n/err
done
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one snippet printed, and its exit code."""

    exit_code: int
    stdout: str
    stderr: str


def snippets(path: Path) -> Sequence[str]:
    return path.read_text("utf-8").rstrip("\n").split("\n%%\n")


def normalised(text: str, folder: str) -> str:
    """Replace all that may differ: the folder, a killed pid, what Debian's mksh puts before its
    errors, how a tool quotes a path."""
    text = text.replace(folder, "TOP")
    text = re.sub(r"(?m)^(\w+: )(?:bad )?'(.*)'(: .*)$", r"\1\2\3", text)
    text = re.sub(r"(kill: )\d+(: No such process)", r"\1PID\2", text)
    return re.sub(r"\b[WE]: (?=sh: )", "", text)


def outcomes(told: bytes, folder: str) -> list[Outcome]:
    """Cut what the driver printed."""
    found = []
    for part in told.decode("utf-8", "surrogateescape").split(f"\n{MARK}")[1:]:
        head, _, text = part.partition("\n")
        if head == "err":
            found[-1] = Outcome(found[-1].exit_code, found[-1].stdout, normalised(text, folder))
        else:
            found.append(Outcome(int(head.removesuffix(":out")), normalised(text, folder), ""))
    return found


class RealShell:
    """mksh, with nothing in its PATH but toybox's tools, and dd, which Debian's toybox lacks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.chmod(0o755)
        tools = folder / "bin"
        tools.mkdir()
        mksh, toybox, dd = (
            shutil.which(name) or missing(f"{name} isn't there; on Debian: apt-get install {name}")
            for name in ("mksh", "toybox", "dd")
        )
        names = subprocess.run([toybox], capture_output=True, text=True, check=True).stdout.split()
        for name in names:
            (tools / name).symlink_to(toybox)
        if "dd" not in names:
            (tools / "dd").symlink_to(dd)
        (tools / "sh").symlink_to(mksh)
        self.env = {**ENVIRONMENT, "PATH": str(tools)}
        self._numbers = count()

    def run(self, scripts: Sequence[str]) -> list[Outcome]:
        work = self.folder / f"work{next(self._numbers)}"
        work.mkdir()
        work.chmod(0o777)
        # Files that nobody may read are no such files for root.
        user: dict[str, object] = (
            {"user": NOBODY, "group": NOBODY, "extra_groups": ()} if os.geteuid() == 0 else {}
        )
        told = subprocess.run(
            [self.folder / "bin" / "sh", "-c", DRIVER, "sh", work, *scripts], env=self.env, cwd="/", check=False,
            capture_output=True, stdin=subprocess.DEVNULL, timeout=120, **user,
        )  # fmt: skip
        return outcomes(told.stdout, str(work))


class VirtualShell:
    """The shell of a virtual phone behind a real adb server."""

    def __init__(self, server: AdbServer, address: str) -> None:
        self.server = server
        self.address = address
        self._numbers = count()

    def run(self, scripts: Sequence[str]) -> list[Outcome]:
        work = f"/data/local/tmp/work{next(self._numbers)}"
        command = " ".join(map(shlex.quote, ("sh", "-c", DRIVER, "sh", work, *scripts)))
        told = self.server.run(
            "-s", self.address, "shell", f"mkdir {work}; {command}", timeout_s=120
        )
        return outcomes(told.stdout, work)


@pytest.fixture(scope="module")
def real_shell() -> Iterator[RealShell]:
    with tempfile.TemporaryDirectory(prefix="shell-") as folder:
        yield RealShell(Path(folder))


@pytest.fixture(scope="module")
def virtual_shell(
    adb_server: AdbServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VirtualShell]:
    from benchfarm_virtual.phones import VirtualPhones

    phones = VirtualPhones(adb_public_keys=[adb_server.public_key], time_factor=1.0)
    phone = phones.add("pixel-3")
    adb_server.connect(phone.address)
    yield VirtualShell(adb_server, phone.address)
    adb_server.run("disconnect", phone.address)
    phones.close()


def compared(
    real: RealShell, virtual: VirtualShell, todo: Sequence[str]
) -> list[tuple[str, Outcome, Outcome]]:  # fmt: skip
    """Run snippets on both, some batches at once; return each with what the real shell and the
    virtual one did.
    """
    batches = [
        todo[start : start + SNIPPETS_A_CALL] for start in range(0, len(todo), SNIPPETS_A_CALL)
    ]
    with ThreadPoolExecutor(2 * len(batches)) as pool:
        expected = pool.map(real.run, batches)
        actual = pool.map(virtual.run, batches)
        return [
            row
            for batch, one, other in zip(batches, expected, actual, strict=True)
            for row in zip(batch, one, other, strict=True)
        ]


def different(rows: Sequence[tuple[str, Outcome, Outcome]]) -> str:
    return "\n".join(
        f"{snippet}\n  real:    {one}\n  virtual: {other}"
        for snippet, one, other in rows
        if one != other
    )


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.txt")))
def test_snippets_do_on_a_virtual_phone_what_they_do_in_mksh(name, real_shell, virtual_shell):
    rows = compared(real_shell, virtual_shell, snippets(FOLDER / f"{name}.txt"))
    # A busy computer may have starved one of them; what differs again when nothing runs beside it
    # differs.
    again = [
        compared(real_shell, virtual_shell, [snippet])[0]
        for snippet, one, other in rows
        if one != other
    ]
    assert not different(again), different(again)


def test_known_differences_are_still_ones(real_shell, virtual_shell):
    rows = compared(real_shell, virtual_shell, list(KNOWN))
    assert [KNOWN[snippet] for snippet, one, other in rows if one == other] == []
