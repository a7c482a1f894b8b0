"""Whatever comes over adb, the shell answers with an exit code: no script breaks it or leaves anything behind."""

from __future__ import annotations

import threading

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.tests.unit.userland.userland_phone import TestPhone

WORDS = st.sampled_from(
    [
        "a", "$x", '"$x y"', "'q r'", "*", "[a", "${x:-d}", "${x#a}", "$((1+x))", "$((x/0))", "$(echo s)",
        "`echo t`", "-n", "--", "-", '"a$(ls)b"', "$@", "é", "-1", "-z", "1", "=", "%d", "s/a/b/", "+%s",
        "/", "..", "/proc/self/status", "${y?no}", "^a", "f",
    ]
)  # fmt: skip
COMMANDS = st.sampled_from(
    [
        "echo", "cat", "ls", "head", "grep", "test", "[", "printf", "export", "set", "shift", "trap", "cd", "eval",
        "exec", ".", "wait", "kill", "date", "stat", "mkdir", "rm", "mv", "touch", "sha256sum", "ps", "taskset",
        "logcat -d", "dumpsys", "settings", "cmd", "pm", "am", "run-as", "sh -c", "sh",
    ]
)  # fmt: skip
SIMPLE = st.tuples(
    COMMANDS, st.lists(WORDS, max_size=3), st.sampled_from(["", " >f", " 2>&1", " <f", " >&-", " </dev/null"])
).map(lambda drawn: " ".join([drawn[0], *drawn[1]]) + drawn[2])
SCRIPTS = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("; ".join),
        st.tuples(inner, inner).map(" | ".join),
        st.tuples(inner, inner).map(" && ".join),
        inner.map("( {} )".format),
        inner.map("{{ {}; }}".format),
        inner.map("x=$( {} )".format),
        inner.map("! {}".format),
        inner.map("for i in a b; do {}; done".format),
        inner.map("f() {{ {}; }}; f a".format),
        st.tuples(inner, inner).map(lambda two: f"if {two[0]}; then {two[1]}; fi"),
        inner.map("{} & wait".format),
    ),
    max_leaves=5,
)


def answer(script: str, tmp_path_factory) -> int:
    faults: list[threading.ExceptHookArgs] = []
    before, threading.excepthook = threading.excepthook, faults.append
    phone = TestPhone(tmp_path_factory.mktemp("phone"))
    try:
        status = phone.call(f"cd /data/local/tmp; {script}").join()
        assert not faults, faults[0].exc_value
        for process in phone.userland.processes.live():
            assert process.done.wait(60), process.argv
        return status
    finally:
        threading.excepthook = before
        phone.userland.close()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=SCRIPTS)
def test_every_script_ends_with_an_exit_code(tmp_path_factory, script):
    assert 0 <= answer(script, tmp_path_factory) <= 255


@settings(max_examples=100, deadline=None)
@given(
    script=st.text(st.sampled_from("ab $(){}'\"`;&|<>\n\\#!*?[]=-0é\x00"), max_size=30).filter(
        lambda text: "/" not in text
    )
)
def test_garbage_is_at_worst_a_syntax_error(tmp_path_factory, script):
    assert 0 <= answer(script, tmp_path_factory) <= 255
