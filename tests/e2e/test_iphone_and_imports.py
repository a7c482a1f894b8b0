"""The commands for what somebody else starts, as they are installed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.samples.command import Cli
from tests.samples.imported_reports import firebase_json
from tests.samples.iphone_output import FULL, console


def test_an_iphone_is_exported_imported_and_reported_beside_an_android_phone(
    cli: Cli, tmp_path: Path, model: Path
) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"models: [{json.dumps(str(model))}]\nmatrix: {{delegates: coreml, threads: 2}}\n"
        "devices: {profiles: [pixel-4, iphone-xs]}\ninvocations: 1\n"
    )
    (case,) = cli("ios", "export", plan, "--out", tmp_path / "out", "--json").ok().json["cases"]
    text = console(
        case["params"],
        size_bytes=model.stat().st_size,
        delegate_lines=f"INFO: {FULL.format(name='COREML')}\n",
    )
    (tmp_path / "out" / case["folder"] / "results" / "1.txt").write_text(text)
    done = cli("ios", "import", tmp_path / "out", "--json").ok().json
    assert [run["outcome"] for run in done["runs"]] == ["completed"]
    record = tmp_path / "record.json"
    record.write_text(firebase_json("xnnpack_2threads", 4900))
    other = cli("import", record, "--device", "LAB-7", "--profile", "pixel-4", "--model", model, "--json").ok().json
    both = cli("report", done["campaign_id"], other["campaign_id"], "--format", "text").ok().stdout
    assert "iPhone XS" in both
    assert "Pixel 4" in both


def test_a_text_of_another_case_ends_with_one_clear_error(cli: Cli, tmp_path: Path, model: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(f"models: [{json.dumps(str(model))}]\ndevices: {{profiles: iphone-xs}}\n")
    (case,) = cli("ios", "export", plan, "--out", tmp_path / "out", "--json").ok().json["cases"]
    text = console({**case["params"], "num_threads": "1"}, size_bytes=model.stat().st_size)
    (tmp_path / "out" / case["folder"] / "results" / "1.txt").write_text(text)
    done = cli("ios", "import", tmp_path / "out")
    assert done.exit_code == 2
    assert "Num threads: [1]" in done.stderr
    assert cli("campaigns", "--json").ok().json == []
