"""An output in the forms in which people keep and send one: quoted, listed, compressed, inside JSON
or HTML."""

import gzip
import html
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import OutputParseError
from orchestrator.extensions.interop.texts import forms
from orchestrator.extensions.interop.texts.output import iterate_file, parse_text
from tests.samples.outputs import RUN

LINES = RUN.replace("\n\n", "\n").splitlines()


def each(form: str) -> str:
    return "".join(form.format(line) + "\n" for line in LINES)


def zipped(**members: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "/"), text)
    return file.getvalue()


def notebook(text: str) -> str:
    output = {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Latency\n", "of a model"]},
        {
            "cell_type": "code",
            "execution_count": 1,
            "outputs": [output],
            "source": ["!adb shell ./run.sh"],
        },
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}, indent=1)


def studio_export(text: str) -> str:
    header = {
        "logLevel": "INFO",
        "pid": 4669,
        "tid": 4669,
        "tag": "tflite",
        "timestamp": {"seconds": 1, "nanos": 2},
    }
    return json.dumps(
        {
            "metadata": {},
            "logcatMessages": [{"header": header, "message": line} for line in text.splitlines()],
        }
    )


FORMS: dict[str, bytes] = {
    "quoted": each("> {}").encode(),
    "quoted logcat": each("> 06-18 10:20:41.572  4669  4669 I tflite  : {}").encode(),
    "Android Studio without date": each(
        "13:52:45.328 20824-20847 tflite                  org.example  I  {}"
    ).encode(),
    "Android Studio without date and process": each(
        "13:52:45.328 20824-20847 tflite   I  {}"
    ).encode(),
    "tag only": each("I tflite  : {}").encode(),
    "logcat without numbers": each("06-08 12:09:32.317 I tflite   : {}").encode(),
    "numbered list": each("1. `INFO: {}`").encode(),
    "JSON object": json.dumps(
        {"device": "a", "steps": [{"stdout": RUN, "code": 0}]}, indent=2
    ).encode(),
    "JSON lines": "".join(json.dumps({"time": 1, "line": line}) + "\n" for line in LINES).encode(),
    "notebook": notebook(RUN).encode(),
    "Android Studio's export": studio_export(RUN).encode(),
    "HTML": (
        "<html><body><p>" + "<br/>".join(html.escape(line) for line in LINES) + "</p></body></html>"
    ).encode(),
    "HTML with line ends": (
        "<pre>" + "".join(f"<span>{html.escape(line)}</span><br>\n" for line in LINES) + "</pre>"
    ).encode(),
    "gzip": gzip.compress(RUN.encode()),
    "zip": zipped(logs__run_txt=RUN),
    "zip of gzip's neighbour": zipped(readme="nothing", run=RUN),
}


@pytest.mark.parametrize("form", sorted(FORMS))
def test_every_form_gives_what_the_plain_text_gives(form: str, tmp_path: Path) -> None:
    (plain,) = parse_text(RUN)
    (report,) = parse_text(FORMS[form])
    assert {k: v for k, v in report.extra.items() if k not in {"pid", "logged_at"}} == plain.extra
    assert replace(report, extra=plain.extra) == plain
    path = tmp_path / "log"
    path.write_bytes(FORMS[form])
    assert tuple(iterate_file(path)) == (report,)


def test_a_gzip_file_that_was_cut_off_gives_what_it_still_holds() -> None:
    text = RUN + "".join(f"{number:x} something else\n" for number in range(20_000))
    (report,) = parse_text(gzip.compress(text.encode())[:-2000])
    assert report.inference_mean_us == 11293


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x1c\x00\x00\x00TFL3" + b"\0" * 40, "the file is no text"),
        (b"\x1f\x8bnot really", "gzip file is damaged"),
        (b"PK\x03\x04not really", "zip archive can't be read"),
        (json.dumps({"latency": [1, 2, 3]}).encode(), "nothing in the JSON"),
        (json.dumps([["cell", 1.5], ["cell", 2]]).encode(), "nothing in the JSON"),
        (b"[" * 100_000, "nothing in the text"),
    ],
    ids=["model", "gzip", "zip", "object", "array", "deep"],
)
def test_what_holds_no_output_is_refused_by_its_name(data: bytes, said: str) -> None:
    with pytest.raises(OutputParseError, match=said) as refused:
        parse_text(data)
    assert refused.value.hint


def test_what_unpacks_to_too_much_is_refused_before_it_fills_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forms, "MOST_UNPACKED_BYTES", 1 << 21)
    bomb = b"x" * (1 << 23)
    for data in (gzip.compress(bomb), zipped(a=bomb.decode())):
        with pytest.raises(OutputParseError, match="unpacks to more than 2 MiB"):
            parse_text(data)


@pytest.mark.parametrize(
    "head", ['{"event": "start", "job": 12}\n', '["a", "b"]\n\n', '"started"\n']
)
@pytest.mark.parametrize("end", ["", '{"event": "end"}\n', "{not JSON\n"])
def test_lines_beside_documents_of_json_are_read(head: str, end: str) -> None:
    (plain,) = parse_text(RUN)
    (report,) = parse_text(head + RUN + end)
    assert report == plain


def test_a_last_line_below_json_may_lack_digits() -> None:
    text = (
        RUN[: RUN.index("Memory footprint")]
        + "Memory footprint delta from the start of the tool (MB): init=3.5 overall=4"
    )
    for data in (text, '{"job": 1}\n' + text):
        (report,) = parse_text(data)
        assert report.overall_memory_mib is None
