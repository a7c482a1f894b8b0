"""Texts of others bring no markup, no formula and no control; an issue names nobody."""

import csv
import html
import io
import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.report.exports import without_private
from orchestrator.tables.escapes import (
    csv_text,
    display_width,
    fit_width,
    markdown_text,
    shell_word,
    visible,
    visible_block,
    without_folders,
    wrap,
)

any_text = st.text(st.characters(), max_size=80)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, 模型, 📱", "plain, 模型, 📱"),
        ("a\nb\tc\x00", "a\\nb\\tc\\0"),
        ("\x1b[31m", "\\u001b[31m"),
        ("gpj\u202egnp", "gpj\\u202egnp"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("\udcff", "\\udcff"),
        ("\u2028", "\\u2028"),
        ("👩\u200d🔬", "👩\u200d🔬"),
    ],
)
def test_hidden_characters_are_made_visible(text, shown):
    assert visible(text) == shown


@given(any_text)
def test_visible_text_is_one_line_that_can_be_written(text):
    shown = visible(text)
    assert len(shown.splitlines()) <= 1
    shown.encode()


@given(any_text)
def test_visible_block_keeps_its_lines(text):
    shown = visible_block(text)
    assert shown.count("\n") == text.count("\n")
    shown.encode()


@given(any_text, st.integers(2, 60))
def test_fitted_text_takes_exactly_its_width(text, width):
    assert display_width(fit_width(text, width)) == width


@given(any_text, st.integers(8, 60), st.integers(0, 200))
def test_wrapped_text_keeps_to_its_width_and_to_how_deep_it_begins(text, width, depth):
    lines = wrap(" " * depth + visible(text).strip(" "), width)
    indent = " " * min(depth, width // 2)
    assert all(display_width(line) <= width and line.startswith(indent) for line in lines)
    assert wrap("    no figure (1): no rails", 20) == ["    no figure (1):", "    no rails"]
    assert wrap("SLOWER  模型模型 b c", 12, following="    ") == [
        "SLOWER",
        "    模型模型",
        "    b c",
    ]


@pytest.mark.parametrize(
    "text",
    ["a b", "new\nline's \\ name", "a -b\tc", "\x1b[31m", "gpj\u202egnp", os.fsdecode(b"\xff\n")],
)
def test_a_word_of_a_command_is_seen_and_reads_as_it_is(text):
    word = shell_word(text)
    assert visible(word) == word
    environ = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, env=environ)
    assert os.fsdecode(done.stdout) == text


@given(any_text)
def test_csv_text_comes_back_in_one_cell_and_is_no_formula(text):
    stream = io.StringIO()
    csv.writer(stream).writerow([csv_text(text), "next"])
    ((cell, following),) = csv.reader(io.StringIO(stream.getvalue()))
    assert following == "next"
    assert not cell.startswith(("=", "+", "-", "@"))


@pytest.mark.parametrize(
    "text", ["a|b", "<b>", "`x`", "*x*", "[x](y)", "a\nb", "&lt;", "# x", "~~x~~"]
)
def test_markdown_text_has_no_markup(text):
    shown = markdown_text(text)
    assert "<" not in shown.replace("<!-- -->", "")
    assert "\n" not in shown
    unescaped = shown
    for char in "\\`*_{}[]()#+!|~$":
        unescaped = unescaped.replace(f"\\{char}", "")
    assert not set("`*_[]()#|~") & set(unescaped)


@pytest.mark.parametrize(
    ("text", "alive"),
    [
        ("@octocat broke it", "@octocat"),
        ("see https://evil.example/x", "https://"),
        ("see http://evil.example", "http://"),
        ("www.evil.example", "www.evil"),
        ("mail ann@evil.example", "ann@evil"),
        ("fixes #12", "#12"),
    ],
)
def test_markdown_text_mentions_nobody_and_links_to_nothing(text, alive):
    shown = markdown_text(text)
    # What a page looks through is the text that it shows, part by part.
    parts = html.unescape(shown.replace("\\", "")).split("<!-- -->")
    assert "".join(parts) == text
    assert not any(alive in part for part in parts)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "/home/ann/.venv/bin/python -m x --graph=/home/ann/m.tflite",
            ".../python -m x --graph=.../m.tflite",
        ),
        ("'/home/ann b/it is.tflite' \"/a/b c/d\"", "'.../it is.tflite' \".../d\""),
        ("INFO: Graph: [/home/ann/m.tflite]", "INFO: Graph: [.../m.tflite]"),
        ("see https://ai.google.dev/edge/litert, 3/4 of 8, ./m.tflite, ~/x/y, .../m", None),
    ],
)
def test_folders_of_absolute_paths_are_left_out(text, shown):
    assert without_folders(text) == (text if shown is None else shown)


PRIVATE = ("R58M123ABC", "alice", "alices-laptop", "/home/alice")


def test_names_paths_and_addresses_are_left_out() -> None:
    text = (
        "/home/alice/models/net.tflite on R58M123ABC (r58m123abc) by alice@example.org from alices-laptop\n"
        "LD_LIBRARY_PATH=/data/local/tmp/benchfarm/ab12:/data/local/tmp/x ./run --graph=/data/local/tmp/m/net.tflite\n"
        "connected 192.168.1.20:5555, 00:11:22:aa:bb:cc; /vendor/lib64/libOpenCL.so; /system/bin/sh\n"
        "file:///home/alice/report.html malice stays, 1.2.3 stays"
    )
    told = without_private(text, PRIVATE)
    for word in (
        *PRIVATE,
        "r58m123abc",
        "192.168",
        "00:11",
        "example.org",
        "/data/local",
        "benchfarm/ab12",
    ):
        assert word not in told.replace("malice", ""), word
    assert "net.tflite on PRIVATE (PRIVATE)" in told
    assert "--graph=./net.tflite" in told
    assert "/vendor/lib64/libOpenCL.so; /system/bin/sh" in told
    assert told.endswith("malice stays, 1.2.3 stays")
