"""The command for what somebody else starts, as it is installed."""

from __future__ import annotations

from pathlib import Path

from tests.samples.command import Cli
from tests.samples.iphone_output import FULL, console


def test_an_iphone_is_imported_and_reported(cli: Cli, tmp_path: Path, model: Path) -> None:
    text = console(
        {
            "graph": "net.tflite",
            "num_threads": "2",
            "num_runs": "50",
            "min_secs": "1",
            "use_coreml": "true",
        },
        size_bytes=model.stat().st_size,
        delegate_lines=f"INFO: {FULL.format(name='COREML')}\n",
    )
    given = tmp_path / "console.txt"
    given.write_text(text)
    done = (
        cli(
            "import",
            given,
            "--serial",
            "lab-xs",
            "--profile",
            "iphone-xs",
            "--model",
            model,
            "--json",
        )
        .ok()
        .json
    )
    assert [run["outcome"] for run in done["runs"]] == ["completed"]
    shown = cli("report", done["campaign_id"], "--format", "text").ok().stdout
    assert "iPhone XS" in shown
