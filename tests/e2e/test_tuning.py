"""A search on a phone finds the fastest configuration, leaves wrong ones out, and says how it stands."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.e2e.conftest import Lab


def test_a_search_ends_with_the_fastest_in_a_third_of_the_processes(lab: Lab, model: Path) -> None:
    words = ("tune", model, "--device", lab.serials[1], "-d", "cpu,xnnpack,gpu", "-t", "1,4", "--min-secs", "0.2")
    done = lab.cli(*words, "--flags", "xnnpack_force_fp16=true", "--json").ok().json
    (search,) = done["searches"]
    assert search["best"] == "xnnpack, 4 threads, native, xnnpack_force_fp16=true"
    assert search["is_over"]
    assert 3 * search["invocations"] <= search["full_invocations"]
    best = next(arm for arm in search["arms"] if arm["configuration"] == search["best"])
    assert best["parity"] == "same"
    shown = lab.cli("tune", "--campaign", done["campaign_id"]).ok().stdout
    assert "fastest is xnnpack, 4 threads, native, xnnpack_force_fp16=true" in shown
    assert "no measurements" in shown
    assert lab.cli("run", "--resume", "--campaign", done["campaign_id"]).exit_code == 2


def test_a_search_that_is_killed_goes_on_to_the_same_end_and_repeats_nothing(lab: Lab, model: Path) -> None:
    words = ("tune", model, "--device", lab.serials[0], "-d", "cpu,xnnpack", "-t", "1,4", "--min-secs", "0.2")
    with lab.cli.start(*words, "--flags", "xnnpack_force_fp16=true") as search:
        assert search.stderr is not None
        told, campaign = 0, ""
        for line in search.stderr:
            found = re.search(r"campaign (\S+) 'tune'", line)
            campaign = found[1] if found else campaign
            told += " native" in line and " ms" in line
            if told == 3:
                break
        search.kill()
    before = {run["run_id"] for run in lab.cli("results", "runs", campaign, "--json").ok().json}
    assert len(before) >= 3
    assert not lab.cli("tune", "--campaign", campaign, "--json").json["searches"][0]["is_over"]
    resumed = lab.cli("run", "--resume", "--campaign", campaign, "--json").ok().json
    assert (resumed["status"], resumed["left"]) == ("finished", 0)
    runs = lab.cli("results", "runs", campaign, "--json").ok().json
    assert before < {run["run_id"] for run in runs}
    places = [json.dumps([run["case"], run["run_pass"], run["invocation"]], sort_keys=True) for run in runs]
    assert len(places) == len(set(places))
    (standing,) = lab.cli("tune", "--campaign", campaign, "--json").ok().json["searches"]
    assert (standing["is_over"], standing["best"]) == (True, "xnnpack, 4 threads, native, xnnpack_force_fp16=true")


def test_a_winner_with_wrong_outputs_leaves_and_the_next_one_is_found(lab: Lab, model: Path) -> None:
    lab.fault(lab.serials[1], "delegate-wrong", "subject=xnnpack", "times=0")
    words = ("tune", model, "--device", lab.serials[1], "-d", "cpu,xnnpack", "-t", "4", "--min-secs", "0.2")
    done = lab.cli(*words, "--flags", "xnnpack_force_fp16=true", "--json").json
    (search,) = done["searches"]
    assert search["best"] == "cpu, 4 threads, native"
    assert {arm["configuration"]: arm["status"] for arm in search["arms"]} == {
        "cpu, 4 threads, native": "live",
        "xnnpack, 4 threads, native": "wrong",
        "xnnpack, 4 threads, native, xnnpack_force_fp16=true": "wrong",
    }


def test_a_campaign_that_is_no_search_is_told(lab: Lab, model: Path) -> None:
    bench = (
        lab.cli(
            "bench", model, "-d", "xnnpack", "-s", lab.serials[0], "-t", "1", "-n", "1", "--min-secs", "0.1", "--json"
        )
        .ok()
        .json
    )
    done = lab.cli("tune", "--campaign", bench["campaign_id"])
    assert done.exit_code == 2
    assert "is no search" in done.stderr
