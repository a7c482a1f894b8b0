"""Scripts about placed files, apps, notes and clocks, in real shells."""

import hashlib
import os
import re
from pathlib import Path

import pytest

from orchestrator.devices.link import parse_files
from orchestrator.files import LEFT_OUT
from orchestrator.ports import ShellResult
from orchestrator.scripts import framed, read_answer, script_command, section_mark
from tests.shells.conftest import Shell

BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
DATA = b"model\0\xff\n"
SHA256 = hashlib.sha256(DATA).hexdigest()
MD5 = hashlib.md5(DATA, usedforsecurity=False).hexdigest()


def test_files_are_read_whole_whatever_their_names_are(shell: Shell) -> None:
    names = ["a b", "'$x`y`*", "-n", "missing", "empty", "large"]
    for name, data in zip(names, (DATA, b"two\n", b"no end", None, b"", bytes(101)), strict=True):
        if data is not None:
            (shell.folder / name).write_bytes(data)
    paths = [shell.folder / name for name in names]
    answer = shell.ask(
        read=script_command("read_files", section_mark(), 101, *paths), more="echo more"
    )
    assert (answer.exit_code, answer.text("more")) == (0, "more\n")
    assert parse_files(answer, 6) == [DATA, b"two\n", b"no end", None, b"", bytes(101)]
    assert (
        parse_files(shell.ask(read=script_command("read_files", section_mark(), 100, *paths)), 6)
        is None
    )
    shell.tool("sha256sum", "exit 127")
    assert parse_files(
        shell.ask(read=script_command("read_files", section_mark(), 101, *paths)), 6
    ) == parse_files(answer, 6)


def test_what_a_shell_and_its_tools_say_beside_is_no_part_of_an_answer(shell: Shell) -> None:
    (shell.folder / "made").write_bytes(DATA)
    shell.warn()
    scripts = framed(
        {
            "boot": "cat /proc/sys/kernel/random/boot_id",
            "read": script_command("read_files", section_mark(), 100, "made"),
        }
    )
    done = shell.run(f"echo Welcome; printf no-end; {scripts}")
    result = ShellResult(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)
    answer = read_answer(result)
    assert answer is not None
    assert (answer.value("boot"), parse_files(answer, 1)) == (BOOT, [DATA])
    assert b"WARNING: linker: cat" in answer.stderr
    # Each byte less and it isn't whole any more.
    assert read_answer(ShellResult(exit_code=0, stdout=done.stdout[:-2], stderr=b"")) is None
    assert read_answer(ShellResult(exit_code=0, stdout=b"", stderr=b"")) is None


def test_sections_come_apart_whatever_their_scripts_do(shell: Shell) -> None:
    answer = shell.ask(
        plain="echo one; echo two",
        no_line_end="printf end",
        failing="false",
        loud="echo to-stderr >&2; ls /no/such/file",
        reading="cat",
        looks_like_a_mark="echo; echo --deadbeefdeadbeef:plain",
        binary=r"printf 'a\000\r\n'",
    )
    assert dict(answer.sections) == {
        "plain": b"one\ntwo\n",
        "no_line_end": b"end",
        "failing": b"",
        "loud": b"",
        "reading": b"",
        "looks_like_a_mark": b"\n--deadbeefdeadbeef:plain\n",
        "binary": b"a\0\r\n",
    }


@pytest.mark.parametrize("leave", ["exit 3", "cd /no/such || exit 3", "( exit 1 ); exit 3"])
def test_an_answer_is_whole_however_its_scripts_end(shell: Shell, leave: str) -> None:
    answer = shell.ask(before="echo 1", leaving=f"echo 2; {leave}", after="echo 3")
    assert (answer.exit_code, answer.texts()) == (3, {"before": "1\n", "leaving": "2\n"})
    for signal in ("KILL", "TERM"):
        gone = shell.run(
            framed({"gone": f"echo 1; kill -{signal} $$; sleep 0.1", "after": "echo 2"})
        )
        assert (
            read_answer(
                ShellResult(exit_code=gone.returncode & 255, stdout=gone.stdout, stderr=b"")
            )
            is None
        )


@pytest.mark.parametrize("has_sha256sum", [True, False])
def test_a_file_goes_to_its_place_and_is_compared_once(shell: Shell, has_sha256sum: bool) -> None:
    if not has_sha256sum:
        shell.tool("sha256sum", "exit 127")
    folder = shell.folder / "work folder"
    blob = folder / "models" / SHA256[:16]

    def look(accepted: str = "") -> list[str]:
        script = script_command("place_look", blob, "m x.tflite", SHA256, "755", accepted)
        return shell.run(f"{script}\necho pushed").stdout.decode().splitlines()

    assert look() == ["absent", "pushed"]
    draft = blob / ".ab.part"
    draft.write_bytes(DATA)
    told = (
        shell.call("place_settle", draft, blob, "m x.tflite", SHA256, "755", "")
        .stdout.decode()
        .strip()
    )
    assert told == (SHA256 if has_sha256sum else MD5)
    assert draft.exists() is not has_sha256sum
    if not has_sha256sum:
        assert (
            shell.call("place_settle", draft, blob, "m x.tflite", SHA256, "755", MD5).returncode
            == 0
        )
    # The same question once more, when it has gone to its place.
    again = shell.call("place_settle", draft, blob, "m x.tflite", SHA256, "755", MD5)
    assert (again.returncode, again.stdout.decode().strip()) == (0, told)
    placed = blob / "m x.tflite"
    assert placed.read_bytes() == DATA
    assert os.access(placed, os.X_OK)
    assert look() == ["same"]
    # Another time means that it may be another file: it is compared again.
    os.utime(placed, (1, 1))
    assert look(MD5 if not has_sha256sum else "") == [SHA256 if has_sha256sum else MD5]
    assert look() == ["same"]


def test_a_file_that_arrived_damaged_stays_out_of_its_place(shell: Shell) -> None:
    blob = shell.folder / "models" / "b"
    blob.mkdir(parents=True)
    (blob / ".x.part").write_bytes(b"damaged")
    told = (
        shell.call("place_settle", blob / ".x.part", blob, "m", SHA256, "644", "")
        .stdout.decode()
        .strip()
    )
    assert told == hashlib.sha256(b"damaged").hexdigest()
    assert not (blob / "m").exists()


@pytest.mark.parametrize(
    ("boot", "owner", "runs"),
    [(BOOT, "mine", True), (BOOT, "theirs", False), ("earlier", "theirs", True)],
)
def test_a_command_runs_only_while_the_phone_is_held(
    shell: Shell, boot: str, owner: str, runs: bool
) -> None:
    (shell.folder / "owner").write_text(f"{owner} {BOOT} 99999999 words\n")
    done = shell.call(
        "hold", shell.folder, boot, "mine", 60, 73, "not ours any more", then="echo ran"
    )
    assert (done.returncode, done.stdout) == ((0, b"ran\n") if runs else (73, b""))
    assert (b"not ours any more" in done.stderr) is not runs
    assert (shell.folder / "owner.beats").exists() is (runs and boot == BOOT)


@pytest.mark.parametrize("root", ["itself", "su 0", "su -c", "nobody"])
def test_a_command_is_run_as_root_by_the_way_that_the_phone_has(shell: Shell, root: str) -> None:
    shell.tool("id", f"echo {0 if root == 'itself' else 2000}")
    by_user = '[ "$1" = 0 ] || exit 1; shift; case "$1" in id) echo 0;; *) "$@";; esac'
    by_word = '[ "$1" = -c ] || exit 1; exec sh -c "$2"'
    shell.tool("su", {"su 0": by_user, "su -c": by_word}.get(root, "exit 13"))
    done = shell.call("as_root", 'echo "it\'s" $((1 + 1))')
    assert (done.returncode, done.stdout) == ((13, b"") if root == "nobody" else (0, b"it's 2\n"))


def test_apps_that_run_are_stopped_and_forgotten_by_tracers(shell: Shell) -> None:
    shell.tool("pidof", '[ "$1" = org.two ] && echo 7')
    shell.tool("am", 'echo "am $*"')
    assert shell.call("stop_apps", "org.one", "org.two").stdout == b"am force-stop org.two\n"
    shell.tool("getprop", 'case "$1" in *app_0) echo org.two;; *app_1) echo com.theirs;; esac')
    shell.tool("setprop", 'echo "setprop $1 <$2>"')
    assert (
        shell.call("forget_apps", "org.one", "org.two").stdout == b"setprop debug.atrace.app_0 <>\n"
    )


def test_a_package_is_told_by_its_first_apk(shell: Shell) -> None:
    apk = shell.folder / "base.apk"
    apk.write_bytes(DATA)
    shell.tool("pm", f'[ "$2" = org.one ] && echo "package:{apk}" && echo package:/other')
    shell.tool("dumpsys", "echo '  versionCode=7 minSdk=1'; echo other; echo '  versionName=1.2'")
    told = shell.call("package", "org.one").stdout.decode()
    lines = r" +versionCode=7 .*\n +versionName=1\.2\n$"
    assert re.match(rf"path {re.escape(str(apk))}\nhash {SHA256}.*\n{lines}", told)
    assert shell.call("package", "org.none").stdout == b""


def test_a_phone_that_keeps_a_shell_out_of_top_app_ends_it_with_the_reason(shell: Shell) -> None:
    shell.tool("su", "exit 1")
    shell.tool("settaskprofile", "exit 1")
    done = shell.call("top_app", "mode", 97, then="echo ran")
    assert (done.returncode, done.stdout) == (97, b"")
    assert b"mode not reached" in done.stderr
    assert (shell.folder / "mode").exists()


def test_what_this_computer_lacks_is_left_out(shell: Shell) -> None:
    shell.tool("dumpsys", 'echo "mWakefulness=Awake $*"')
    names = (
        "cpu_clusters", "state_files", "foreground", "snapshot_files", "snapshot_state", "root_user",
    )  # fmt: skip
    told = {
        name: shell.run(
            f"{{ {script_command(name)}\n}} 2>/dev/null </dev/null; echo end"
        ).stdout.decode()
        for name in names
    }
    assert all(text.endswith("end\n") for text in told.values()), told
    assert f"/proc/sys/kernel/random/boot_id:{BOOT}\n" in told["state_files"]
    light = "doze light=mWakefulness=Awake deviceidle enabled light\n"
    assert light in told["snapshot_state"]


def test_a_long_output_keeps_whole_lines_of_both_ends(shell: Shell) -> None:
    path, lines = shell.folder / "out", [b"%07d\n" % number for number in range(50_000)]
    path.write_bytes(b"".join(lines))
    (shell.folder / "err").write_bytes(b"short\n")
    for _ in range(2):  # as over a link that broke
        assert shell.call("shorten", 1, shell.folder, "out", "err", "missing").returncode == 0
    kept = path.read_bytes()
    cut = LEFT_OUT.search(kept)
    assert cut is not None
    assert b"".join(lines).startswith(kept[: cut.start()])
    assert b"".join(lines).endswith(kept[cut.end() + 1 :])
    assert 120_000 < len(kept) < 132_000
    assert (shell.folder / "err").read_bytes() == b"short\n"
    assert not list(shell.folder.glob("*.short"))
