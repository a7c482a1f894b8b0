"""Six first changes, made in a copy of this checkout; then each place that they need is left out,
and a test or mypy must tell.

``make omissions``. The changes: a delegate, a column, a key of plans, a finding, a pass and an
export format. With all places in, everything passes; what tells of a missing one is printed. The
exit code is 1 if nothing tells of one.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.samples.checkout_copy import copy_checkout, install_entry_points, run_in
from tests.samples.places import DATA, REPO

#: What is asked, the fastest first.
CHECKS = (
    ["pytest", "-q", "-x", "-p", "no:cacheprovider", "--force-reruns", "0", "tests/unit/test_one_place.py"],
    ["mypy"],
    *(
        ["pytest", "-q", "-x", "-p", "no:cacheprovider", "--force-reruns", "0", *tests]
        for tests in (
            ["tests/unit/programs/test_flag_book.py", "-k", "by_itself"],
            ["virtual/tests/unit/test_programs_behaviour.py", "-k", "created"],
            ["tests/unit/test_plan_keys.py", "tests/unit/config/test_plan.py::test_example_holds_every_key_and_loads"],
            ["tests/unit/test_tables.py", "tests/unit/report/test_labels.py", "tests/unit/analysis/test_quality.py"],
            # Their limit of words is used up by those that are there.
            ["tests/test_docs.py", "--deselect", "tests/test_docs.py::test_the_pages_stay_short"],
        )
    ),
)  # fmt: skip


#: What stands in the line that says most of a failure, the best first.
MARKS = ("FAILED", "ERROR", "error:", "Error")


@dataclass(frozen=True, kw_only=True)
class Place:
    """A text in a file: after ``after``, or as a new file where that is empty."""

    change: str
    what: str
    file: str
    text: str
    after: str = ""
    #: Whether the change is nothing without it, so that it can't be forgotten.
    is_change: bool = False

    def put(self, folder: Path) -> None:
        """Write the text; nothing into what was left out itself."""
        path = folder / self.file
        if not self.after:
            path.write_text(self.text, "utf-8")
        elif path.exists():
            text = path.read_text("utf-8")
            path.write_text(text.replace(self.after, self.after + self.text, 1), "utf-8")


PLACES: Sequence[Place] = tuple(
    Place(**place) for place in yaml.safe_load((DATA / "first_changes.yaml").read_text("utf-8"))
)


def made(folder: Path, without: Place | None) -> None:
    """Make the changes but for one place, and write what is written by ``make docs``."""
    for name in {place.file for place in PLACES}:
        (folder / name).unlink(missing_ok=True)
        if (REPO / name).is_file():
            shutil.copy2(REPO / name, folder / name)
    for place in PLACES:
        if place is not without:
            place.put(folder)
    install_entry_points(folder)
    run_in(folder, "docs/write_commands.py")


def told(folder: Path) -> str:
    """Return the first line that tells of a fault, empty where all checks pass."""
    for check in CHECKS:
        done = run_in(folder, "-m", *check)
        if done.returncode != 0:
            lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
            first = next(
                (line for mark in MARKS for line in lines if mark in line),
                "",
            )
            return f"{check[0]}: {first.strip()[:160]}"
    return ""


def main() -> int:
    """Print what tells of each omission; return 1 if nothing tells of one, or of a whole change."""
    with tempfile.TemporaryDirectory(prefix="benchfarm-omissions-") as name:
        folder = Path(name)
        copy_checkout(folder)
        made(folder, None)
        if fault := told(folder):
            print(f"with all places in: {fault}")
            return 1
        print("with all places in: everything passes")
        silent = 0
        for place in PLACES:
            if place.is_change:
                continue
            made(folder, place)
            fault = told(folder)
            silent += not fault
            print(f"{place.change}, without {place.what}: {fault or 'NOTHING TELLS'}", flush=True)
    return int(silent > 0)


if __name__ == "__main__":
    raise SystemExit(main())
