"""The pass ``cold``, from the command line to the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Lab

STAGES = ["first-load", "process-cold", "cache-warm"]


@pytest.mark.parametrize("tool", ["native", "apk"])
def test_a_warm_start_uses_the_cache_that_the_first_load_wrote(
    lab: Lab, model: Path, tool: str
) -> None:
    words = ("--pass", "cold", "-d", "xnnpack,gpu", "--tool", tool, "-n", "1", "--json")
    result = lab.cli("bench", model, "-s", lab.serials[1], *words).ok().json
    runs = {(run["case"]["delegate"], run["invocation"]): run["report"] for run in result["runs"]}
    assert len(runs) == 6
    for delegate in ("xnnpack", "gpu"):
        assert [runs[delegate, number]["extra"]["start_stage"] for number in range(1, 4)] == STAGES
        assert runs[delegate, 1]["extra"]["cache_bytes_before"] == 0
        assert runs[delegate, 3]["extra"]["cache_bytes_before"] > 0
        assert runs[delegate, 3]["init_us"] < runs[delegate, 1]["init_us"]
    assert "from serialized data" in runs["gpu", 3]["extra"]["from_cache"]
    assert not [run for run in result["runs"] if run["verdict"]["quality"] != "trusted"]
    shown = lab.cli("report", "--format", "json", result["campaign_id"]).ok().json["results"]
    assert [[start["stage"] for start in row["starts"]] for row in shown] == [STAGES, STAGES]
    assert all(row["median_us"] is None for row in shown)
