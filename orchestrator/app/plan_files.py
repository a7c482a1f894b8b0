"""The plan file that somebody begins with: what is usual, and what else may be said, as comments."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from orchestrator.records.device import DeviceFacts
from orchestrator.tables.escapes import one_line

_TEXT: Final = """\
# What it means:  benchfarm plan show {file}      Run it:  benchfarm run {file}
# A key that is left out has its default. All keys: docs/reference/plans.md

# Paths start from this file's folder. A pattern such as "models/*.tflite" takes every file that it matches.
models:
{models}

# Each combination is a case.
matrix:
  delegates: auto # what each phone and its program have; or some of [cpu, xnnpack, gpu, nnapi, npu]; or all
  # threads: [1, 4] # default with auto
  # tools: [native, apk] # default: native, the command-line program

{devices}

passes: [timing] # also memory, parity (are the outputs right?), profile (time of each operator), cold (starts)

# As many processes of each case as its 95 % interval needs: at least 8, until it is within 2 %, at most 40.
invocations: {{ first: 8, most: 40 }}
precision: 2 %
# budget: 2 h # of each phone for the whole campaign; the last cases of the plan are left out

# limits: # what a phone must be like before a process starts; these are the defaults
#   battery_min: 20 %
#   battery_heat_max: 40 \N{DEGREE SIGN}C
# reference_check: true # a reference workload before, between and after; default: from 10 minutes on
"""


def initial_plan(devices: Sequence[DeviceFacts], models: Sequence[str], path: Path) -> str:
    """Return the text of a plan for some phones, which is to be written to a path."""
    named = [f"  - {json.dumps(_from(path.absolute().parent, model))}" for model in models] or [
        "  - model.tflite # name yours"
    ]
    return _TEXT.format(
        file=shlex.quote(str(path)), models="\n".join(named), devices=_devices(devices)
    )


def _from(folder: Path, model: str) -> str:
    path = Path(model).expanduser().absolute()
    return os.path.relpath(path, folder) if path.is_relative_to(folder) else str(path)


def _devices(devices: Sequence[DeviceFacts]) -> str:
    if not devices:
        return "# No phone was attached: every phone that is there when it runs is measured.\n# devices: {serials: [X]}"
    lines = ["devices:", "  serials: # without it, every usable phone"]
    for facts in devices:
        profile = f"profile {facts.profile}" if facts.profile else ""
        about = ", ".join(filter(None, (facts.title, facts.system, facts.soc, profile)))
        lines.append(f"    - {json.dumps(str(facts.serial))} # {one_line(about)}")
    return "\n".join([*lines, "  # host: true # this computer too"])
