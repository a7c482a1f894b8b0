"""``benchfarm parse``: pipes, and texts of other programs."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

from tests.samples.command import Cli
from tests.samples.places import BENCHFARM


def test_what_litert_lm_printed_is_read_as_prefill_and_decode(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "lm.txt"
    path.write_text(
        "Benchmarking model: a.litertlm (/a.litertlm)\nBackend                    : cpu\n"
        "Number of tokens in prefill: 128\nNumber of tokens in decode : 64\n----- Results -----\n"
        "Prefill speed:        30183.56 tokens/s\nDecode speed:         0.00 tokens/s\n"
    )
    told = cli("parse", path)
    assert "30184 tokens/s (33.1 us a token) over 128 tokens" in told.stdout
    assert "no-inferences: the program printed a decode speed of 0.00 tokens/s" in told.stdout
    assert [item["name"] for item in cli("parse", path, "--json").json] == ["prefill", "decode"]


def test_a_process_substitution_is_read_like_a_file(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text(
        "STARTING!\nInference timings in us: Init: 5, First inference: 5, Warmup (avg): 5, Inference (avg): 5\n"
    )
    command = f"{shlex.quote(str(BENCHFARM))} parse --json <(cat {shlex.quote(str(log))})"
    done = subprocess.run(["bash", "-c", command], env=cli.environ(), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["inference_avg_us"] == 5
