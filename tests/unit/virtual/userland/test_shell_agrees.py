"""The phone's shell against a real one, script by script: same output, same exit code."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.virtual.userland.userland_phone import TestPhone

SCRIPTS = (Path(__file__).parent / "shell_scripts.txt").read_text("utf-8").rstrip("\n").split("\n%%\n")
REAL = shutil.which("dash") or "/bin/sh"

#: What mksh and bash have and dash hasn't.
BASH_SCRIPTS = [
    "echo a{b,c}d {x,y}{1,2}",
    "[[ abc == a* ]] && echo match; [[ abc == 'a*' ]] || echo literal",
    "[[ -n x && ( -z y || 1 -lt 2 ) ]] && echo nested; [[ ! -e /nope ]] && echo not",
    "[[ a1b =~ ^a[0-9]b$ ]] && echo regex",
    "x=aXbXc; echo ${x/X/-} ${x//X/-} ${x/#a/^} ${x/%c/$} ${x:1:3} ${x:2}",
    "echo $'a\\tb\\x41\\101\\'q'",
    "cat <<< \"here $((1+1))\"",
    "((3 > 2)) && echo arithmetic; x=1; ((x++)); echo $x; ((x == 5)) || echo differs",
    "echo both &> f; cat f; echo more &>> f; cat f; (echo err >&2) |& cat",
    "function named { echo $1; }; named arg",
    "x=a; x+=b; echo $x",
    "set -o pipefail; false | true; echo $?",
    "{ echo a >&3; echo b >>f; echo c >&3; } 3>>f; cat f",
    "(exit 3); r=$?; echo $r; r=$(false); echo $?; a=$? b=$(false); echo $a $?",
    "x=5; echo $((x++)) $((++x)) $x $((x--, x))",
    "let x=2+3; echo $x",
    "source /dev/null; echo ok",
    "read a b <<< 'one two three'; echo \"$b\"",
    "while :; do break; done; echo after",
    "trap 'echo got' USR1; kill -USR1 $$; echo after",
    "f() { echo ${FUNCNAME:-none} >/dev/null; return 7; }; f || echo $?",
    "wait; jobs; echo none",
    "if (true) then echo joined; fi",
    "printf '%q\\n' plain",
]  # fmt: skip


def run_both(script: str, real: str, folder: Path) -> tuple[tuple[int, bytes], tuple[int, bytes]]:
    there = folder / "real"
    there.mkdir()
    host = subprocess.run(
        [real, "-c", script], cwd=there, capture_output=True, timeout=120, stdin=subprocess.DEVNULL,
        env={"PATH": "/usr/bin:/bin", "HOME": "/", "LC_ALL": "C.UTF-8"}, check=False,
    )  # fmt: skip
    phone = TestPhone(folder / "phone")
    phone.run("mkdir /data/local/tmp/w")
    call = phone.call(f"cd /data/local/tmp/w\n{script}")
    status = call.join()
    phone.userland.close()
    expected = host.returncode if host.returncode >= 0 else 128 - host.returncode
    return (expected, host.stdout), (status, bytes(call.out.data))


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_does_what_a_real_sh_does(script, tmp_path):
    expected, actual = run_both(script, REAL, tmp_path)
    assert actual == expected


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash to compare with")
@pytest.mark.parametrize("script", BASH_SCRIPTS)
def test_script_does_what_bash_does(script, tmp_path):
    expected, actual = run_both(script, "bash", tmp_path)
    assert actual == expected
