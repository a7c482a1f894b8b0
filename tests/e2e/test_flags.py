"""Flags are checked against the very program before anything runs, and explained."""

from __future__ import annotations

import re
from pathlib import Path

from tests.e2e.conftest import Lab
from tests.samples.command import Cli


def test_wrong_flags_are_refused_all_at_once_and_nothing_is_stored(lab: Lab, model: Path) -> None:
    before = lab.cli.json("results list")
    words = "--flag use_cachin=true --flag run_delay=3x --flag nnapi_accelerator_name=dsp"
    done = lab.cli(f"bench {words} -s {lab.serial}", model)
    assert done.exit_code == 2
    for said in (
        "did you mean --use_caching?",
        "--run_delay=3x",
        "--use_nnapi=true",
        "nothing was run",
    ):
        assert said in done.stderr, done.stderr
    assert lab.cli.json("results list") == before


def test_a_combination_without_effect_is_skipped_and_named(lab: Lab, model: Path) -> None:
    words = "-d xnnpack,gpu -t 1,16 --flag gpu_backend=cl -n 1"
    done = lab.cli(f"bench --min-secs 0.1 {words} -s {lab.serial}", model).ok()
    assert f"not run on {lab.serial}: xnnpack" in done.stdout
    assert "--gpu_backend does nothing without" in done.stdout
    assert f"not run on {lab.serial}: gpu, 16 threads, native: 16 threads" in done.stdout


def test_what_a_program_says_of_its_flags_is_kept_and_shown(lab: Lab) -> None:
    asked = lab.cli.json("flags use_xnnpack -s", lab.serial)
    assert asked["learned"] is True
    (flag,) = asked["flags"]
    assert (flag["type"], flag["default"]) == ("bool", "false")
    assert flag["trap"]
    kept = lab.cli.home / "cache" / "flags" / f"{asked['build_sha256']}.txt"
    assert "--use_xnnpack=" in kept.read_text("utf-8")


def test_this_computer_is_asked_alone_while_phones_are_attached(lab: Lab) -> None:
    asked = lab.cli("flags -s host")
    assert asked.exit_code == 4
    assert asked.stderr.startswith("benchfarm: ")
    assert "x86_64" in asked.stderr, asked.stderr


def test_each_program_has_its_own_flags(cli: Cli) -> None:
    flags = cli.json("flags --tool litert-lm")["flags"]
    assert {item["name"] for item in flags} >= {"prefill_tokens", "decode_tokens", "cache"}
    assert "gpu_backend" not in {item["name"] for item in flags}


def test_flags_are_explained_without_any_device(cli: Cli) -> None:
    listed = cli("flags").ok().stdout
    assert "num_threads" in listed
    one = cli("flags gpu_backend=gl").ok().stdout
    for said in (
        "default +empty$",
        "builds +with the delegate gpu$",
        "one of +cl, gl",
        "needs +--use_gpu, without which it does nothing$",
        "trap +any value but .*OpenGL stands in",
    ):
        assert re.search(rf"^{said}", one, re.MULTILINE), one
    owned = cli("flags use_gpu").ok().stdout
    assert "can't be set as a flag: matrix.delegates or --delegate sets it" in owned
    assert cli.json("flags gpu_backend")["flags"][0]["default"] == ""
    wrong = cli("flags gpu_backen")
    assert wrong.exit_code == 2
    assert "did you mean 'gpu_backend'?" in wrong.stderr
    assert "which signature" in cli("flags --tool litert signature_to_run_for").ok().stdout
    for tool in ("nativ", "text"):
        assert "litert-native" in cli("flags --tool", tool).stderr
