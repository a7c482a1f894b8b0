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
