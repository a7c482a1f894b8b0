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

from tests.samples.checkout_copy import copy_checkout, install_entry_points, run_in
from tests.samples.places import REPO

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
            ["tests/test_docs.py"],
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


DELEGATE = '''"""WebGPU."""

from orchestrator.delegates import Delegate, FlagFamily
from orchestrator.records.case import DelegateName

DELEGATE = Delegate(
    name=DelegateName.WEBGPU,
    label="WebGPU",
    flags={FlagFamily.BENCHMARK_MODEL: {"use_webgpu": "true", "use_xnnpack": "false"}},
)
'''
VIRTUAL = "virtual/src/benchfarm_virtual/programs/delegates.py"
PLAYED = """\
    Delegate(
        name="webgpu",
        kernel="WebGpuDelegate",
        provider="WEBGPU",
        flag="use_webgpu",
        flags=(Flag("use_webgpu", "bool", False, "Use WebGPU", "apply the WebGPU delegate"),),
        operators=_GPU_OPS,
    ),
"""
FAILURE = """
[[run]]
code = "webgpu-init-failed"
meaning = "The WebGPU delegate could not be set up."
next_step = "Take another delegate."
[[run.texts]]
pattern = '(No WebGPU adapter.*)'
example = "No WebGPU adapter was found"
rank = 5
"""
PASS = '''"""The pass ``quick``: one short run."""

from orchestrator.passes.specification import PassSpec
from orchestrator.records.case import Pass

PASS = PassSpec(
    name=Pass.QUICK,
    about="One short run",
)
'''
COLUMN = """\
    Column("words_of_case", "words", lambda row: row.case.configuration, forms=DATA),
"""
KEY = """
    rest: Annotated[Seconds, Field(ge=0, le=600), Key("Seconds of rest before each process.")] = 0.0
"""
WAIT = """
        self._context.clock.wait(self._context.campaign.terms.rest, self._context.cancelled)
        self._check_cancelled()
"""
TIME = """
    least_s += terms.rest
"""
FINDING = """
    FindingCode("unlucky", INFO, "there were 13 inferences", "Measure again.", "exactly 13"),"""
RULE = """
    if inference.count == 13:
        yield finding("unlucky")"""
MADE = """

def test_thirteen_inferences_are_told() -> None:
    found = verdict(replace(GOOD, inference=replace(STEADY, count=13))).findings
    assert "unlucky" in {item.code for item in found}
"""
EXPORTER = """
    "omitted": Exporter(
        path=Path("benchfarm-results.omitted"),
        write=_parquet,
    ),"""
PLACES: Sequence[Place] = (
    Place(
        change="delegate", what="its module", file="orchestrator/delegates/webgpu.py", text=DELEGATE
    ),
    Place(
        change="delegate",
        what="its member",
        file="orchestrator/records/case.py",
        after='    EXTERNAL = "external"\n',
        text='    WEBGPU = "webgpu"\n',
    ),
    Place(
        change="delegate",
        what="what outputs call it",
        file="orchestrator/delegates/webgpu.py",
        after='    label="WebGPU",\n',
        text='    called={"webgpu_delegate": "webgpu"},\n',
    ),
    Place(
        change="delegate",
        what="how programs echo its flag",
        file="orchestrator/delegates/webgpu.py",
        after='    label="WebGPU",\n',
        text='    echoes={"Use WebGPU": "use_webgpu"},\n',
    ),
    Place(
        change="delegate",
        what="its failure",
        file="orchestrator/records/failures.toml",
        after="those that the engine gives itself, under `error`.\n",
        text=FAILURE,
    ),
    Place(
        change="delegate",
        what="its record on the virtual phone",
        file=VIRTUAL,
        after="DELEGATES: Final = (\n",
        text=PLAYED,
    ),
    Place(
        change="delegate",
        what="how it is made there",
        file=VIRTUAL,
        after='kernel="WebGpuDelegate",\n',
        text="        create=_create_hexagon,\n",
    ),
    Place(
        change="delegate",
        what="the import that the record there needs",
        file=VIRTUAL,
        after="from benchfarm_virtual.programs.flags import FLAGS, ",
        text="Flag, ",
        is_change=True,
    ),
    Place(
        change="column",
        what="the column",
        file="orchestrator/tables/results.py",
        after='    Column("case_key", "case", lambda row: row.key, forms=DATA),\n',
        text=COLUMN,
        is_change=True,
    ),
    Place(
        change="column",
        what="its name in the docs",
        file="docs/reference/exports.md",
        after="| `accuracy_percent` | what is known of the model |\n",
        text="| `words_of_case` | the case in words |\n",
    ),
    Place(
        change="plan key",
        what="the key",
        file="orchestrator/records/plan.py",
        after='they change no case\'s identity."""\n',
        text=KEY,
        is_change=True,
    ),
    Place(
        change="plan key",
        what="what it does",
        file="orchestrator/engine/case_runner.py",
        after="        before = fitness.state or self._device.state()\n",
        text=WAIT,
    ),
    Place(
        change="plan key",
        what="the time that it takes",
        file="orchestrator/planning/time_budget.py",
        after="    least_s = pass_of(invocation.run_pass).least_s(invocation.case, terms)\n",
        text=TIME,
    ),
    Place(
        change="plan key",
        what="the test of what it does",
        file="tests/unit/test_plan_keys.py",
        after='    "name": ("other", {}, lambda plan: plan.name),\n',
        text='    "rest": ("5 s", {}, measured),\n',
    ),
    Place(
        change="finding",
        what="its code and meaning",
        file="orchestrator/analysis/findings.py",
        after="_FINDINGS: Final = (",
        text=FINDING,
    ),
    Place(
        change="finding",
        what="the rule that makes it",
        file="orchestrator/analysis/findings.py",
        after='    """Yield the findings of a series of inferences."""',
        text=RULE,
    ),
    Place(
        change="finding",
        what="the test that makes it",
        file="tests/unit/analysis/test_quality.py",
        after="delegate=replace(GOOD.delegate, **changes))  # type: ignore[arg-type]\n",
        text=MADE,
    ),
    Place(change="pass", what="its module", file="orchestrator/passes/quick.py", text=PASS),
    Place(
        change="pass",
        what="its member",
        file="orchestrator/records/case.py",
        after='    REFERENCE = "reference"\n',
        text='    QUICK = "quick"\n',
    ),
    Place(
        change="pass",
        what="what makes its runs other than plain ones",
        file="orchestrator/passes/quick.py",
        after='    about="One short run",\n',
        text='    last_flags=lambda request: {"max_secs": "1"},\n',
    ),
    Place(
        change="export format",
        what="the exporter",
        file="orchestrator/app/exporting.py",
        after="EXPORTERS: Final = {",
        text=EXPORTER,
        is_change=True,
    ),
    Place(
        change="export format",
        what="what it is",
        file="orchestrator/app/exporting.py",
        after='path=Path("benchfarm-results.omitted"),\n',
        text='        about="a result a line",\n',
    ),
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
