"""shell, exec and their streams, by the plain adb command."""

import hashlib
import threading

PAYLOAD = bytes(range(256)) * 12_000


def test_server_lists_the_phone_with_product_model_and_device(link):
    line = next(
        line for line in link.server.run("devices", "-l").stdout.decode().splitlines() if link.phone.address in line
    )
    assert " device " in line
    assert "product:blueline" in line
    assert "model:Pixel_3" in line


def test_shell_keeps_stdout_stderr_and_the_exit_code_apart(link):
    result = link.adb("shell", "echo out; echo err >&2; exit 7")
    assert (result.stdout, result.stderr, result.returncode) == (b"out\n", b"err\n", 7)


def test_shell_hands_stdin_on_and_tells_its_end(link):
    result = link.adb("shell", "-T", "cat", stdin=PAYLOAD)
    assert result.stdout == PAYLOAD


def test_shell_output_of_many_megabytes_arrives_whole(link):
    result = link.adb("shell", "head -c 20000000 /dev/zero")
    assert len(result.stdout) == 20_000_000
    assert result.returncode == 0


def test_exec_out_changes_no_byte(link):
    link.adb("shell", "-T", "cat > /data/local/tmp/bytes", stdin=PAYLOAD)
    result = link.adb("exec-out", "cat /data/local/tmp/bytes")
    assert hashlib.sha256(result.stdout).digest() == hashlib.sha256(PAYLOAD).digest()


def test_shell_without_protocol_merges_stderr_and_loses_the_exit_code(link):
    result = link.adb("shell", "-x", "echo out; echo err >&2; exit 7")
    assert result.stdout == b"out\nerr\n"
    assert result.returncode == 0


def test_shell_in_a_terminal_ends_lines_with_cr_lf(link):
    assert link.adb("shell", "-tt", "echo typed").stdout == b"typed\r\n"


def test_several_streams_run_at_once_without_mixing(link):
    results = {}

    def run(number):
        results[number] = link.adb("shell", f"seq {number}000 {number}999").stdout

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, output in results.items():
        assert output.split() == [str(n).encode() for n in range(number * 1000, number * 1000 + 1000)]


def test_a_slow_reader_of_one_stream_holds_no_other_up(link):
    stuck = link.popen("shell", "head -c 60000000 /dev/zero")
    try:
        assert stuck.stdout.read(1) == b"\0"
        assert link.shell("echo free") == "free\n"
    finally:
        stuck.kill()
        stuck.communicate()


def test_legacy_phone_has_a_terminal_for_a_shell_and_no_exit_codes(make_link):
    link = make_link(legacy=True)
    result = link.adb("shell", "echo out; echo err >&2; exit 7")
    assert result.stdout == b"out\r\nerr\r\n"
    assert result.returncode == 0
    assert b"shell_v2" not in link.server.run("-s", link.phone.address, "features").stdout


def test_features_are_those_that_are_served(link):
    features = link.adb("features").stdout.decode().split()
    assert {"shell_v2", "cmd"} <= set(features)
    assert not {"delayed_ack", "stat_v2", "abb"} & set(features)


def test_shell_without_a_command_says_that_there_is_nothing_to_type_in(link):
    result = link.adb("shell", stdin=b"echo typed\n")
    assert b"adb shell COMMAND" in result.stdout + result.stderr
    assert b"typed" not in result.stdout


def test_unknown_service_is_closed_and_the_phone_goes_on(link):
    assert link.adb("jdwp").returncode != 0
    assert link.shell("echo alive") == "alive\n"
