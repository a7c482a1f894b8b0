"""Folders of this computer leave it in no text, and nothing else is changed."""

import pytest

from orchestrator.app.exporting import Redaction

OWN = Redaction(
    [
        "/tmp",
        "/home/anna/models",
        "/home/anna",
        "/data/größe",
        None,
        "",
        "relative",
        "/usr2/eve",
        "/usr/lib",
    ]
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("--graph=/home/anna/models/a b.tflite", "--graph=a b.tflite"),
        ("Graph: [/home/anna/models//x.tflite]", "Graph: [x.tflite]"),
        ("PATH=/usr/bin:/home/anna/bin", "PATH=/usr/bin:bin"),
        ("in /home/anna/models, it", "in (a folder), it"),
        ("/home/annabel/x and /home/anna.old/x", "/home/annabel/x and /home/anna.old/x"),
        ("/data/local/tmp/benchfarm/x", "/data/local/tmp/benchfarm/x"),
        ("/tmp/x.tflite", "x.tflite"),
        ("/usr2/eve/x /usr/lib/x", "x /usr/lib/x"),
        ('"/data/gr\\u00f6\\u00dfe/x" /data/größe/x', '"x" x'),
        ("http://example.test/tmp/x 1/2", "http://example.test/tmp/x 1/2"),
    ],
)
def test_a_file_is_called_by_what_follows_the_folder(text: str, shown: str) -> None:
    assert OWN.hide(text) == shown
    assert OWN.hide_bytes(text.encode()) == shown.encode()
    assert OWN.hide_all({"/tmp/k": [text, 1, None]}) == {"/tmp/k": [shown, 1, None]}


def test_what_is_no_text_stays_byte_for_byte() -> None:
    assert OWN.hide_bytes(b"\0/tmp/x") == b"\0/tmp/x"
    assert OWN.hide_bytes(b"\xff /tmp/x\r\n") == b"\xff x\r\n"
