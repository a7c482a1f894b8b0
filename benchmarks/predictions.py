"""Whether predictions of what delegates take get better by what phones printed, on models that were held out.

    python benchmarks/predictions.py [--models FOLDER] [--profile NAME ...] [--speed 60]

Every model is run once with XNNPACK, the GPU, NNAPI and Hexagon on each virtual phone. Then each run's prediction is
made twice, without any run of its own model or of one with the same operators: by the documents alone, and with what
the other models' runs said. Counted is how often full, partial or none was right, and how often the number of
operators was. Without --models the small networks are built in all variants (TensorFlow, about a minute). Virtual
phones: their delegates follow tables of their own, so this shows that learning works, not how right the documents are
about any phone.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from tuning import Home

NETWORKS = ("tiny_cnn", "tiny_residual", "tiny_mlp", "tiny_attention")
VARIANTS = "float32,float16,dynamic-range,int8,int16x8"
PROFILES = ("pixel-4", "galaxy-s21-exynos", "redmi-note-9")


def is_right(trial: dict[str, Any], which: str) -> tuple[bool, bool | None]:
    """Return whether a prediction had the extent right, and the number of operators (None when none was printed)."""
    taken, count = trial[which]["taken"], trial[which]["operator_count"]
    extent = "none" if not taken else "full" if taken == count else "partial"
    nodes = trial["delegated_nodes"]
    return extent == trial["extent"], None if nodes is None else nodes == taken


def main() -> None:
    """Run it and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=Path)
    parser.add_argument("--profile", action="append")
    parser.add_argument("--speed", type=float, default=60.0)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="benchfarm-predictions-"))
    home = Home(folder)
    try:
        models = options.models
        if models is None:
            models = folder / "zoo"
            home("model", "build", *NETWORKS, "--variant", VARIANTS, "--out", models)
        phones = home("lab", "up", *(options.profile or PROFILES), "--speed", options.speed)["phones"]
        serials = [word for phone in phones for word in ("-s", phone["serial"])]
        words = ("-d", "xnnpack,gpu,nnapi,hexagon", "-t", "4", "-n", "1", "--min-secs", "0.05")
        home("bench", *sorted(models.glob("*.tflite")), *serials, *words)
        trials = home("model", "predictions")["trials"]
    finally:
        home("lab", "down")
        shutil.rmtree(folder, ignore_errors=True)
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for trial in trials:
        groups[trial["delegate"]].append(trial)
    print(f"{'delegate':10} {'runs':>5}   {'extent right':>22}   {'operators right':>22}")
    for name, some in [*sorted(groups.items()), ("all", trials)]:
        told = []
        for place in (0, 1):
            pairs = [(is_right(t, "documented")[place], is_right(t, "predicted")[place]) for t in some]
            known = [pair for pair in pairs if pair[0] is not None]
            before, after = (sum(bool(pair[at]) for pair in known) for at in (0, 1))
            told.append(f"{before:4} -> {after:4} of {len(known):4}")
        print(f"{name:10} {len(some):5}   {told[0]:>22}   {told[1]:>22}")


if __name__ == "__main__":
    main()
