"""What is added in one place, and that none of the few others is forgotten: a delegate, a pass, a
finding, an export format. ``make omissions`` leaves out each place and shows what tells."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
import yaml

from benchfarm_virtual.programs.delegates import ANDROID_FLAGS
from benchfarm_virtual.programs.litert import LITERT_FLAGS
from orchestrator.analysis.findings import CODES
from orchestrator.app.exporting import EXPORTERS
from orchestrator.delegates import DELEGATES, FlagFamily, flags_of, requested_delegates
from orchestrator.installation import is_own, load, plugins
from orchestrator.plugins import Exporter
from orchestrator.records.case import DelegateName, Pass
from orchestrator.records.failures import RUN_FAILURES
from tests.omissions import PLACES, Place
from tests.samples.extensions import needs_extension
from tests.samples.places import REPO

PACKAGE = REPO / "orchestrator"
#: Where codes are defined, with what to do about each; it is found elsewhere.
OF_CODES = re.compile(r"^_FINDINGS\b.*?^\)$", re.MULTILINE | re.DOTALL)
#: Findings whose meaning says already when they are made.
MEANING_IS_RULE = frozenset(
    {
        "virtual-device",
        "emulator",
        "not-completed",
        "delegate-partial",
        "flags-ignored",
        "sources-disagree",
        "log-cut",
        "files-refused",
        "rebooted",
        "start-unknown",
        "cache-not-used",
        "foreground-changed",
        "charging-changed",
        "battery-draining",
        "imported",
        "imported-unread",
    }
)
#: A string of one word, as the formatter writes it.
WORD = re.compile(r'"([\w-]+)"')


def assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names of a module and what each is."""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            yield ast.unparse(node.target), node.value
        elif isinstance(node, ast.Assign):
            yield from ((ast.unparse(target), node.value) for target in node.targets)


@pytest.mark.parametrize(
    ("folder", "record", "kind"),
    [("delegates", "DELEGATE", DelegateName), ("passes", "PASS", Pass)],
)
def test_each_module_with_a_record_is_a_member_and_each_member_has_one(
    folder: str, record: str, kind: type[DelegateName | Pass]
) -> None:
    modules = {
        path.stem
        for path in (PACKAGE / folder).glob("*.py")
        if record in {name for name, _ in assigned(ast.parse(path.read_text("utf-8")))}
    }
    assert modules == {member.value for member in kind}


def test_each_delegate_is_recognised_in_what_programs_print() -> None:
    """Without a name in outputs, each of its runs would be one that nothing is known of."""
    nameless = [
        name.value
        for name, own in DELEGATES.items()
        if not (own.called or own.is_builtin or own.is_named_by_flag)
    ]
    assert nameless == []


def test_the_flags_of_a_delegate_are_read_as_a_request_for_it() -> None:
    """Without it, a run that fell back would be one that asked for the CPU, or for another one."""
    for name, own in DELEGATES.items():
        for family, flags in own.flags.items():
            asked = {*requested_delegates({flag: value or "true" for flag, value in flags.items()})}
            # LiteRT runs XNNPACK on the CPU by itself, and those of a library are named by the plan.
            is_asked = not own.is_named_by_flag and (
                not name.is_cpu or flags.get("use_xnnpack") == "true"
            )
            assert asked == ({name.value} if is_asked else set()), f"{name}, {family}"
        flags = own.flags.get(FlagFamily.BENCHMARK_MODEL, {})
        echoed = {flag for flag, value in flags.items() if value == "true"}
        assert echoed <= {*own.echoes.values()}, f"{name}: its `echoes` lack {sorted(echoed)}"


def test_each_delegate_has_a_failure_of_its_own() -> None:
    """Without one, a run that couldn't set it up would be told as some other failure."""
    told = {failure.code.partition("-")[0] for failure in RUN_FAILURES if failure.texts}
    asked = {name.value for name, own in DELEGATES.items() if not own.is_builtin}
    # Apple's says no more than any delegate that can't be applied: delegate-failed.
    assert asked - told == {"coreml"}, "its NAME-init-failed in orchestrator/records/failures.toml"


def test_no_two_delegates_are_called_alike() -> None:
    """Of two, one would get the other's runs."""
    owners: dict[str, list[str]] = {}
    for name, own in DELEGATES.items():
        for called in own.called:
            owners.setdefault(called, []).append(name.value)
    assert {called: names for called, names in owners.items() if len(names) > 1} == {}


def test_each_delegate_is_one_that_some_device_profile_has() -> None:
    """Without one no run of it is ever begun."""
    texts = [path.read_text("utf-8") for path in (REPO / "device_profiles").glob("*.yaml")]
    listed = {name for text in texts for name in yaml.safe_load(text).get("delegates", ())}
    asked = {name.value for name in DelegateName if DELEGATES[name].is_in_profiles}
    assert not asked - listed, f"no device profile has it under 'delegates:': {asked - listed}"


def test_each_delegate_is_on_the_virtual_phone() -> None:
    """By the flags of each program that it plays."""
    own = {
        FlagFamily.BENCHMARK_MODEL: {flag.name for flag in ANDROID_FLAGS},
        FlagFamily.LITERT: {flag.name for flag in LITERT_FLAGS},
    }
    for family, known in own.items():
        used = {flag for name in DelegateName for flag in flags_of(name, family)}
        where = "virtual/src/benchfarm_virtual/programs/delegates.py: a record with its flags"
        assert used <= known, f"{where}: {sorted(used - known)}"


def test_each_pass_of_an_extension_is_an_entry_point() -> None:
    known = {entry.value for entry in plugins("passes").values()}
    modules = {
        f"orchestrator.extensions.{path.parent.name}.{path.stem}:PASS"
        for path in (PACKAGE / "extensions").rglob("*.py")
        if "PASS" in {name for name, _ in assigned(ast.parse(path.read_text("utf-8")))}
    }
    assert modules == known, "a line under benchfarm.passes in pyproject.toml"


def test_each_finding_is_made_somewhere() -> None:
    texts = (OF_CODES.sub("", path.read_text("utf-8")) for path in PACKAGE.rglob("*.py"))
    made = {word for text in texts for word in WORD.findall(text)}
    assert [code for code in CODES if code not in made] == []


def test_each_finding_has_its_rule_in_words() -> None:
    silent = {code for code, item in CODES.items() if not item.rule}
    assert silent == MEANING_IS_RULE, (
        "write when it is made in its `made`, then `make docs`; or name it above"
    )


@needs_extension("interop")
def test_each_finding_is_named_by_a_test() -> None:
    """Some are made by what tests of extensions read."""
    folders = (REPO / "tests", REPO / "virtual" / "tests")
    texts = (path.read_text("utf-8") for top in folders for path in top.rglob("test_*.py"))
    named = {word for text in texts for word in WORD.findall(text)}
    assert [code for code in CODES if code not in named] == [], (
        "no test names it: write a case in tests/unit/analysis/test_quality.py"
    )


def test_each_finding_that_is_made_has_a_code_with_its_meaning() -> None:
    texts = (path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    made = {
        call.args[0].value
        for text in texts
        for call in (ast.walk(ast.parse(text)) if "finding(" in text else ())
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "finding"
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }
    assert made
    assert made <= CODES.keys()


def test_each_format_says_what_it_is() -> None:
    """Ours; a row of docs/reference/exports.md comes from it."""
    entries = [entry for entry in plugins("exporters").values() if is_own(entry)]
    own = EXPORTERS | {entry.name: load(entry, Exporter) for entry in entries}
    assert [name for name, exporter in own.items() if not exporter.about] == []


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place.change}, {place.what}")
def test_each_place_that_a_first_change_needs_is_where_it_is_looked_for(
    place: Place,
) -> None:
    path = REPO / place.file
    texts = [other.text for other in PLACES if other.file == place.file and other is not place]
    assert place.after in "".join([path.read_text("utf-8") if path.exists() else "", *texts])
