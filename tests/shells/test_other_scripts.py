"""Further scripts in real shells: who uses a phone, what was logged since a run began."""

import re

from tests.shells.conftest import Shell


def test_a_phone_is_held_by_one_until_he_releases_it(shell: Shell) -> None:
    shell.tool("getprop", "echo S1")
    folder = shell.folder / "ours"
    words = '{"host": "a \'b\'"}'

    def claim(token: str, take: str = "") -> str:
        return shell.call("claim", folder, token, 60, words, take, then="echo ours").stdout.decode()

    assert re.match(r"written\nserial S1\nboot \S+\n(stray .*\n)*free\n(.*\n)+ours\n$", claim("t1"))
    held = claim("t2")
    assert re.match(r"held (59|60) \d+ " + re.escape(words) + "\nserial S1\n", held)
    assert "ours" not in held
    assert claim("t1").startswith("written\n")
    assert claim("t2", take="1").startswith("written\n")
    assert shell.call("release", folder, "t1").returncode == 0
    assert claim("t1").startswith("held ")
    assert shell.call("release", folder, "t2").returncode == 0
    assert claim("t1").startswith("written\n")


def test_a_log_is_asked_for_since_the_run_s_begin(shell: Shell) -> None:
    shell.tool("logcat", 'echo "$@"')
    (shell.folder / "pid").write_text("77\n")
    told = shell.call("log_since", shell.folder, 500).stdout.decode()
    assert re.match(
        r"-d -v threadtime -b main -b system -b crash -t \d\d-\d\d \d\d:\d\d:\d\d\.000\n$", told
    )
    unknown = shell.call("log_since", shell.folder / "no-such", 500).stdout.decode()
    assert unknown == "-d -v threadtime -b main -b system -b crash -t 500\n"
