"""Advice from what was measured: in every format, with a list for apps, and virtual figures labelled."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.conftest import Lab


def test_advice_names_the_best_and_writes_a_list_for_apps(lab: Lab, model: Path, tmp_path: Path) -> None:
    page, listed = tmp_path / "report.html", tmp_path / "allowed.json"
    words = ("-d", "cpu,xnnpack", "-t", "4", "-n", "3", "--min-secs", "0.2", "--pass", "timing,parity", "--out", page)
    lab.cli("bench", model, *words).ok()
    text = lab.cli("advise", "--inferences", "100", "--allow-list", listed, "--need-parity").ok().stdout
    assert "best: use xnnpack, 4 threads, native" in text
    assert "its outputs agree with the reference" in text
    assert "one choice for all: xnnpack, 4 threads" in text
    assert "virtual" in text
    document = json.loads(listed.read_text("utf-8"))
    (known,) = document["models"].values()
    assert (document["format"], document["is_virtual"]) == ("benchfarm-allow-list", True)
    assert known["default"]["delegate"] == "xnnpack"
    assert {entry["match"]["device"] for entry in known["devices"]} == {"blueline", "flame"}
    assert {entry["parity"] for entry in known["devices"]} == {"same"}
    assert 'id="advice"' in page.read_text("utf-8")
    fleet = lab.cli("advise", "--fleet", "--json").ok().json["advice"]["lines"]
    assert [line["rule"] for line in fleet] == ["fleet"]
    refused = lab.cli("advise", "--format", "pdf")
    assert (refused.exit_code, "there is no format 'pdf'" in refused.stderr) == (2, True)
