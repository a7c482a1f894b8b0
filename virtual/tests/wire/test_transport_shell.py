"""shell, exec and their streams, by the plain adb command."""

import threading


def test_several_streams_run_at_once_without_mixing(link):
    results = {}

    def run(number):
        results[number] = link.adb(
            "shell", f"n={number}000; while [ $n -le {number}999 ]; do echo $n; n=$((n+1)); done"
        ).stdout

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, output in results.items():
        assert output.split() == [
            str(n).encode() for n in range(number * 1000, number * 1000 + 1000)
        ]


def test_a_slow_reader_of_one_stream_holds_no_other_up(link):
    stuck = link.popen("shell", "cat /dev/zero")
    try:
        assert stuck.stdout.read(1) == b"\0"
        assert link.shell("echo free") == "free\n"
    finally:
        stuck.kill()
        stuck.communicate()


def test_features_are_those_that_are_served(link):
    features = link.adb("features").stdout.decode().split()
    assert {"shell_v2", "cmd"} <= set(features)
    assert not {"delayed_ack", "stat_v2", "abb"} & set(features)


def test_unknown_service_is_closed_and_the_phone_goes_on(link):
    assert link.adb("jdwp").returncode != 0
    assert link.shell("echo alive") == "alive\n"
