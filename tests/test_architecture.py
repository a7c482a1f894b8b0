"""The import graph is a test: who may know whom, which library belongs to whom, what --help may
load."""

import ast
import functools
import gc
import importlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPO = Path(__file__).parent.parent
PACKAGE = REPO / "orchestrator"
#: The virtual phones, a distribution of its own that knows nothing of benchfarm.
VIRTUAL = REPO / "virtual" / "src" / "benchfarm_virtual"
#: The only modules of benchfarm that know of them.
VIRTUAL_DOORS = {"app/virtual_phones.py"}

#: What the command line knows types and words of, and never calls a function of.
BELOW_APP = {
    "analysis", "artifacts", "delegates", "devices", "engine", "models", "planning", "programs",
    "reading", "store",
}  # fmt: skip
#: So many parameters may a function have, besides self or cls.
PARAMETERS_MOST = 8

#: What each part may import of the rest of benchfarm (itself always), from the bottom up: none
#: that stands after it.
FOUNDATION = {"errors", "units", "clock", "fields"}
RECORDS = FOUNDATION | {"records"}
PORTS = RECORDS | {"ports", "installation", "files", "scripts", "processes"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "units": set(),
    "sysfs": {"units"},
    "fields": {"errors", "units"},
    "clock": {"errors"},
    "files": {"errors"},
    "processes": {"clock", "errors", "files"},
    "documents": {"errors"},
    "records": FOUNDATION,
    "installation": {"errors", "records"},
    "ports": RECORDS,
    "scripts": {"errors", "ports", "records"},
    "delegates": RECORDS | {"installation"},
    "reading": RECORDS | {"delegates"},
    "program": RECORDS | {"delegates", "installation", "ports", "reading"},
    "analysis": RECORDS | {"delegates", "sysfs"},
    "tables": PORTS | {"analysis", "delegates"},
    "models": PORTS,
    "devices": PORTS | {"sysfs"},
    "store": PORTS | {"documents"},
    "settings": {"errors", "files", "installation", "records", "store"},
    "passes": PORTS | {"analysis", "delegates", "models", "program", "tables"},
    "programs": PORTS | {"delegates", "passes", "program", "reading"},
    "config": PORTS | {"documents", "passes", "program"},
    "artifacts": PORTS | {"documents", "programs"},
    "planning": RECORDS | {"delegates", "passes", "programs"},
    "report": PORTS | {"analysis", "delegates", "passes", "programs", "tables"},
    "engine": PORTS
    | {"planning", "analysis", "delegates", "passes", "programs", "store", "devices"},
}
#: app puts everything together and holds the use cases, cli shows them, plugins has the names that
#: extensions use of all, and the core finds these by entry points.
for upper in ("app", "cli", "plugins", "extensions"):
    ALLOWED[upper] = set(ALLOWED)
ALLOWED["__init__"] = {"app", "errors", "records"}
#: What a plugin may import, benchfarm's own extensions too: the seam, and the parts that hold data,
#: show it or judge it (docs/reference/plugins.md).
OF_PLUGINS = PORTS | {
    "plugins", "settings", "documents", "analysis", "delegates", "reading", "store", "tables", "report",
    "passes",
}  # fmt: skip

#: Names that are imported -> the distribution that has them, where the two differ.
DISTRIBUTIONS = {
    "backports": "backports-zstd",
    "elftools": "pyelftools",
    "google": "protobuf",
    "prometheus_client": "prometheus-client",
    # What FastAPI always brings along, as its own documented interface.
    "starlette": "fastapi",
    "yaml": "pyyaml",
}
#: Library -> the parts that own it. Several where both sides of a seam need it and must not share
#: code.
OWNERS = {
    "adbutils": {"devices"},
    "psutil": {"processes.py"},
    "sqlalchemy": {"store"},
    "psycopg": {"store", "extensions/farm"},
    "psycopg_pool": {"extensions/farm"},
    "procrastinate": {"extensions/farm"},
    "pandas": {"tables/renderers.py", "report/exports.py", "app/lab.py"},
    "jinja2": {"tables/html.py", "report/render.py"},
    # An extension's commands are typer's too.
    "typer": {"cli", "extensions"},
    "click": {"cli"},
    "rich": {"cli", "tables/escapes.py"},
    "tensorflow": {"extensions/models"},
    "keras": {"extensions/models"},
    "ai_edge_litert": {"models"},
    "pydantic": {
        "config",
        "documents.py",
        "fields.py",
        "records/build_spec.py",
        "records/device.py",
        "records/plan.py",
        "extensions/farm/manifest.py",
        "extensions/interop",
        "extensions/runtimes",
    },
    "regex": {"extensions/runtimes/declaration.py"},
    "yaml": {"config"},
    "requests": {"artifacts", "extensions/history/notifying.py"},
    "urllib3": {"artifacts"},
    "elftools": {"artifacts"},
    "backports": {"store"},
    "compression": {"store"},
    "platformdirs": {"settings.py"},
    "fastapi": {"extensions/history"},
    "starlette": {"extensions/history"},
    "uvicorn": {"extensions/history"},
    "prometheus_client": {"extensions/history/metrics.py"},
}
FORBIDDEN_NAMES = {
    "utils",
    "util",
    "helpers",
    "helper",
    "common",
    "base",
    "misc",
    "manager",
    "core",
}
#: Variables of these names say nothing of their value: a noun does (``runs``, ``path``, ``limits``).
NO_NOUNS = {
    "asked", "begun", "found", "kept", "known", "named", "own", "said", "seen", "told", "wanted",
}  # fmt: skip
HEAVY = (
    "pandas",
    "tensorflow",
    "sqlalchemy",
    "adbutils",
    "requests",
    "PIL",
    "numpy",
    "rich",
    "yaml",
    "pydantic",
    "jinja2",
    "fastapi",
    "uvicorn",
)
#: Modules of our own that a command's help needn't wait for.
UNUSED_BY_HELP = (
    "orchestrator.extensions",
    "orchestrator.passes.specification",
    "orchestrator.app.plugin_kinds",
    "orchestrator.records.run",
    "orchestrator.tables.table",
)
TABLES_OF_RUNS = ("renderers", "results", "rows", "runs")
#: What none needs: the use cases do, each of which its command loads when it runs.
UNUSED_BY_EVERY_HELP = (
    "orchestrator.analysis",
    "orchestrator.app.measuring",
    "orchestrator.app.stored",
    "orchestrator.app.workspace",
    "orchestrator.config",
    "orchestrator.delegates",
    "orchestrator.devices",
    "orchestrator.engine",
    "orchestrator.models",
    "orchestrator.passes.specification",
    "orchestrator.planning",
    "orchestrator.ports",
    "orchestrator.programs",
    "orchestrator.reading",
    "orchestrator.report",
    "orchestrator.store",
)


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text("utf-8")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    # What is collected meanwhile may be a greenlet of a browser's, whose end confuses CPython
    # 3.11's parser.
    gc.disable()
    try:
        return ast.parse(text_of(path))
    finally:
        gc.enable()


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree_of(path)))


def dotted(node: ast.AST) -> str:
    """Return a name, or names with points between them; empty where it is anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if not isinstance(node, ast.Attribute):
        return ""
    owner = dotted(node.value)
    return owner and f"{owner}.{node.attr}"


@functools.cache
def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "_data" not in path.parts)


@functools.cache
def virtual_modules() -> list[Path]:
    return sorted(VIRTUAL.rglob("*.py"))


def place_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def part_of(path: Path) -> str:
    return place_of(path).partition("/")[0].removesuffix(".py")


def calls() -> Iterator[tuple[Path, ast.Call, str]]:
    """Yield each call with the names of the called, empty where they are no names."""
    for path in modules():
        for node in nodes_of(path):
            if isinstance(node, ast.Call):
                yield path, node, dotted(node.func)


def printed_by(code: str) -> tuple[str, str]:
    """Return the output and the errors of an interpreter of its own."""
    environ = {key: text for key, text in os.environ.items() if key != "BENCHFARM_STORE"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environ
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr.strip()


def command(*words: str, then: str) -> str:
    """Return code that runs a command, and then a statement."""
    return (
        f"import sys; sys.argv = ['benchfarm', *{words!r}]\n"
        "from orchestrator.cli import main\n"
        f"try:\n    main()\nexcept SystemExit:\n    pass\n{then}"
    )


def loaded(names: Iterable[str]) -> str:
    """Return a statement that writes to the errors which of the modules are loaded."""
    return f"print([name for name in {[*names]!r} if name in sys.modules], file=sys.stderr)"


@functools.cache
def imports_of(path: Path) -> list[tuple[str, int]]:
    found = []
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            found.append((node.module, node.lineno))
            if node.module == "orchestrator":
                found += [(f"orchestrator.{alias.name}", node.lineno) for alias in node.names]
    return found


def test_an_extension_imports_what_any_plugin_may() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in modules()
        if part_of(path) == "extensions"
        for name, line in imports_of(path)
        if name.startswith("orchestrator.")
        and name.split(".")[1] not in OF_PLUGINS | {"extensions", "__version__"}
    ]
    assert not found, "import it from orchestrator.plugins, which lists what plugins may use"


def test_the_seam_holds_what_plugins_use_and_nothing_else() -> None:
    """A name that no extension and no example needs would be promised for nobody."""
    users = [path for path in modules() if part_of(path) == "extensions"]
    users += (REPO / "examples" / "plugin").rglob("*.py")
    used = {
        alias.name
        for path in users
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom) and node.module == "orchestrator.plugins"
        for alias in node.names
    }
    homes = importlib.import_module("orchestrator.plugins")._HOMES
    assert homes.keys() - used == set()


def test_no_two_parts_may_import_each_other() -> None:
    """Neither by a third one, nor for type checkers alone."""
    below: set[str] = set()
    for part, allowed in ALLOWED.items():
        assert allowed <= below, (
            f"{part} imports what isn't below it: what both need belongs below them"
        )
        below.add(part)


def test_a_module_imports_only_what_its_layer_may_know() -> None:
    for path in modules():
        part = part_of(path)
        assert part in ALLOWED, f"{part} has no place in the layers yet"
        for name, line in imports_of(path):
            words = name.split(".")
            if words[0] == "orchestrator" and words[1:2] not in ([], [part], ["__version__"]):
                assert words[1] in ALLOWED[part], (
                    f"{path.name}:{line} imports {name}: layers go one way, so that each can be read "
                    "and tested without those above it (ALLOWED)"
                )
            owners = OWNERS.get(words[0])
            if owners is not None:
                where = place_of(path)
                assert any(where == owner or where.startswith(f"{owner}/") for owner in owners), (
                    f"{where}:{line}: {name}"
                )


def imported(paths: list[Path]) -> dict[str, str]:
    """The third parties' packages that modules import -> one of the modules."""
    # compression is Python's own from 3.14 on.
    own = {"benchfarm", "benchfarm_virtual", "orchestrator", "compression"}
    own |= sys.stdlib_module_names
    return {
        canonicalize_name(DISTRIBUTIONS.get(top, top)): str(path.relative_to(REPO))
        for path in paths
        for top in (name.partition(".")[0] for name, _ in imports_of(path))
        if top not in own
    }


def declared(file: str, *, extras_too: bool) -> set[str]:
    project = tomllib.loads((REPO / file).read_text("utf-8"))["project"]
    extras = project.get("optional-dependencies", {}).values() if extras_too else ()
    texts = [*project["dependencies"], *(text for extra in extras for text in extra)]
    return {canonicalize_name(Requirement(text).name) for text in texts}


def test_every_package_that_is_imported_is_declared_and_every_declared_one_is_used() -> None:
    undeclared = {
        name: path
        for file, paths in (
            ("pyproject.toml", modules()),
            ("virtual/pyproject.toml", virtual_modules()),
        )
        for name, path in imported(paths).items()
        if name not in declared(file, extras_too=True)
    }
    assert not undeclared
    # adbutils is used by its adb program; urllib3 is bounded for requests.
    assert declared("pyproject.toml", extras_too=False) <= imported(modules()).keys() | {
        "adbutils",
        "urllib3",
    }


def test_the_core_names_no_extension_and_no_extension_another() -> None:
    """What only some users need comes and goes as a folder."""
    found = set()
    for path in modules():
        where = path.relative_to(PACKAGE)
        named = set(re.findall(r"orchestrator\.extensions(?:\.(\w+))?", text_of(path)))
        own = where.parts[1] if where.parts[0] == "extensions" else "core"
        found |= {(own, other) for other in named - {own, ""}}
    assert not found, "the core knows extensions by entry points alone: it works without them"


def test_no_statement_names_a_table_of_procrastinate() -> None:
    """Its queue is reached by its public API; what isn't there isn't ours."""
    named = {
        path
        for path in modules()
        if re.search(r"procrastinate_(jobs|events|workers)", text_of(path))
    }
    assert not named


def test_virtual_phones_and_benchfarm_know_each_other_by_one_door() -> None:
    """A misunderstanding of phones that both shared could not be found by tests."""
    of_benchfarm = {
        (path, name)
        for path in virtual_modules()
        for name, _ in imports_of(path)
        if "orchestrator" in name
    }
    assert not of_benchfarm
    doors = {
        place_of(path)
        for path in modules()
        if any(name.split(".")[0] == "benchfarm_virtual" for name, _ in imports_of(path))
    }
    assert doors == VIRTUAL_DOORS


def test_the_command_line_decides_nothing() -> None:
    """It reads options, calls ``app/`` and shows what came of it; of what lies below it knows types
    and words.
    """
    found = {
        f"{path.stem}: {alias.name}"
        for path in (PACKAGE / "cli").rglob("*.py")
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(tuple(f"orchestrator.{part}" for part in BELOW_APP))
        for alias in node.names
        if alias.name[0].islower() or alias.name in {"FarmQueue", "AdbServer"}
    }
    assert found == set(), (
        "cli/ reads options and shows results; what decides belongs to app/, where Python reaches it, too"
    )


def parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return [item.arg for item in named if item is not None and item.arg not in {"self", "cls"}]


def is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        isinstance(item, ast.Call) and dotted(item.func) == "command"
        for item in function.decorator_list
    )


def test_no_function_has_more_parameters_than_one_keeps_in_mind() -> None:
    """A command's parameters are its options, which typer gives by name."""
    too_many = [
        f"{place_of(path)}:{node.lineno}: {node.name}"
        for path in modules()
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not is_command(node)
        and len(parameters_of(node)) > PARAMETERS_MOST
    ]
    assert not too_many, (
        f"over {PARAMETERS_MOST} parameters: some of them are one thing that wants a record of its own"
    )


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


def needed_by(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield what is imported when a module or a function of it runs: module and name, empty for the
    module itself."""
    if isinstance(tree, ast.If) and "TYPE_CHECKING" in ast.unparse(tree.test):
        return
    if isinstance(tree, ast.Import):
        yield from ((alias.name, "") for alias in tree.names)
    elif isinstance(tree, ast.ImportFrom) and tree.module is not None and tree.level == 0:
        yield from ((tree.module, alias.name) for alias in tree.names)
    for node in ast.iter_child_nodes(tree):
        # No expression has an import in it.
        if not isinstance(node, ast.expr):
            yield from needed_by(node)


def test_no_module_needs_itself() -> None:
    """Of one circle of imports, also of those inside functions, no part can be read or moved
    without the others."""
    paths = {name_of(path): path for path in modules()}
    needs = {
        name: {
            f"{module}.{item}" if f"{module}.{item}" in paths else module
            for module, item in needed_by(tree_of(path))
        }
        & paths.keys() - {name}
        for name, path in paths.items()
    }
    # What nothing needs that is left, or what needs nothing that is left, is in no circle.
    while free := [
        name
        for name in needs
        if not needs[name] or not any(name in others for others in needs.values())
    ]:
        needs = {
            name: others.difference(free) for name, others in needs.items() if name not in free
        }
    assert needs == {}, "these import each other in a circle: none can be read or moved alone"


#: Where delegates and programs are at home; whoever else needs to know something of one asks its
#: record.
HOMES = {"delegates", "programs", "reading"}
#: What else spells the name of a delegate or a program, and why. It only gets shorter.
ELSEWHERE = {
    "records/case.py": "the vocabulary: the enumerations themselves, and what is meant where nobody names one",
    "records/verdict.py": "the kernels of this computer's reference run, one of which is called like a delegate",
    "extensions/interop/device_lab.py": "a program's own module",
    "extensions/iphone/litert_ios.py": "a program's own module",
    "extensions/runtimes/litert_lm.py": "a program's own module",
    "extensions/interop/texts/splitting.py": "what the rows of performance options ask for",
    "extensions/runtimes/output.py": "where declared programs say that they ran",
    "extensions/interop/plain_text.py": "a program's own module",
    "extensions/interop/leaderboard.py": "backends as the leaderboard's lines name them",
    "extensions/energy/figure.py": "what rails of a chip are called",
    "extensions/energy/measuring.py": "the part of the chip whose rail a delegate needs",
    "artifacts/executables.py": "the machine of libraries for Qualcomm's DSP",
}
#: Names that mean nothing else; "cpu" and "gpu" are parts of a phone, "native" and "external" are
#: words.
TELLING = {
    "xnnpack", "nnapi", "hexagon", "npu", "coreml", "apk", "litert", "perf-options",
    "litert-native", "litert-ios",
}  # fmt: skip


def test_the_names_of_delegates_and_programs_stay_at_home() -> None:
    """A delegate or a program is added and understood in one file."""
    found = {
        place_of(path)
        for path in modules()
        if part_of(path) not in HOMES
        for node in nodes_of(path)
        if (
            isinstance(node, ast.Attribute)
            and dotted(node.value) in {"DelegateName", "ToolName"}
            and node.attr.isupper()
        )
        or (isinstance(node, ast.Constant) and node.value in TELLING)
    }
    assert found == ELSEWHERE.keys(), (
        "a delegate's or a program's name outside its module: ask its record (DELEGATES[name], program(tool)), so that "
        "another one can be added in one file; ELSEWHERE has the exceptions"
    )


#: What else names a pass, and why. It only gets shorter.
PASSES_ELSEWHERE = {
    "records/case.py": "the vocabulary: the enumeration itself, and which one a case's figure comes from",
    "analysis/drift.py": "what the reference workload says of the runs between two of its own",
    "report/assembly.py": "profiles, which several tables, maps and comparisons are made of",
    "store/usage.py": "the query that finds comparisons of outputs, for history",
}


def test_the_names_of_passes_stay_at_home() -> None:
    """A pass is added and understood in one file; what depends on which one it is asks its record."""
    found = {
        place_of(path)
        for path in modules()
        if part_of(path) != "passes" and path.name != "run_pass.py"
        for node in nodes_of(path)
        if (
            isinstance(node, ast.Attribute) and dotted(node.value) == "Pass" and node.attr.isupper()
        )
        or (
            isinstance(node, ast.Call)
            and dotted(node.func) == "Pass"
            and isinstance(node.args[0], ast.Constant)
        )
    }
    assert found == PASSES_ELSEWHERE.keys(), (
        "a pass's name outside its module: ask its record (pass_of(name)), so that another can be added in one file"
    )


#: Where Python may hold HTML: GitHub's folds in Markdown, of words of ours alone; and the two
#: modules that write elements, where all text goes through ``plain``.
WITH_HTML = {"tables/comparisons.py", "tables/html.py", "report/drawing.py"}
#: Where text may be called safe: what those two write, and the scripts of the templates.
WITH_MARKUP = {"tables/html.py", "report/drawing.py"}
TAGS = (
    "a|abbr|b|bdi|body|br|button|code|dd|del|details|dialog|div|dl|dt|em|figcaption|figure|form|h[1-6]|head|html|i|iframe|"
    "img|input|label|li|link|meta|ol|option|p|path|pre|rect|script|section|select|small|span|strong|style|"
    "summary|sup|svg|table|tbody|td|th|thead|title|tr|ul"
)
HTML = re.compile(rf"(?<!\?P)</?(?:{TAGS})(?:\s[^<>]*)?/?>|<(?:{TAGS}|path)\s+[\w-]+=")


def test_html_is_made_by_templates_and_two_modules_only() -> None:
    for path in modules():
        where = place_of(path)
        told = {id(node.value) for node in nodes_of(path) if isinstance(node, ast.Expr)}
        for node in nodes_of(path):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in told
            ):
                assert where in WITH_HTML or not HTML.search(node.value), (
                    f"{where}:{node.lineno}: {node.value[:80]!r}"
                )
            called = isinstance(node, ast.Call) and dotted(node.func)
            if called in {"Markup", "Html"}:
                assert where in WITH_MARKUP, f"{where}:{node.lineno}: text is called safe"


def test_templates_call_nothing_safe_that_comes_from_data() -> None:
    templates = PACKAGE.parent / "reports" / "templates"
    safe = {
        (path.name, match)
        for path in templates.glob("*.j2")
        for match in re.findall(r"[^{ ]+\s*\|\s*safe", text_of(path))
    }
    assert safe == set()


def test_a_module_has_a_name_that_says_something() -> None:
    for path in [*modules(), *virtual_modules()]:
        assert path.stem not in FORBIDDEN_NAMES, f"{path}: a file is a noun that people look for"


def test_values_are_called_by_nouns() -> None:
    """Fields may be stored, so they keep their names."""
    for path in modules():
        fields = {
            id(item.target)
            for node in nodes_of(path)
            if isinstance(node, ast.ClassDef)
            for item in node.body
            if isinstance(item, ast.AnnAssign)
        }
        for node in nodes_of(path):
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    place = f"{path}:{node.lineno}: {name}"
                    assert name not in NO_NOUNS or id(node) in fields, place
                case ast.FunctionDef():
                    docstring = ast.get_docstring(node) or ""
                    assert not re.match(r"(Return|Yield) what\b", docstring), f"{path}: {docstring}"


def test_only_the_command_line_prints_exits_and_reads_the_environment() -> None:
    for path in [*modules(), *virtual_modules()]:
        where = path.relative_to(VIRTUAL if path.is_relative_to(VIRTUAL) else PACKAGE).as_posix()
        if where.startswith("cli/") or where == "__main__.py":
            continue
        for node in nodes_of(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"print", "exit", "quit", "input", "breakpoint"}, (
                    f"{where}:{node.lineno}"
                )
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                called = f"{node.value.id}.{node.attr}"
                assert called not in {"sys.exit", "os._exit"}, f"{where}:{node.lineno}"
                # clock.py reads $TZ, as the C library's clock does.
                if where not in {"settings.py", "processes.py", "clock.py"}:
                    assert called not in {"os.environ", "os.getenv"}, f"{where}:{node.lineno}"


@pytest.mark.parametrize(
    # The options of a command are keys of the plan, which pydantic checks.
    ("words", "needed"),
    [
        (["--help"], []),
        (["bench", "--help"], ["pydantic"]),
        (["explain", "--help"], []),
        (["results", "list", "--help"], ["orchestrator.tables.table"]),
        (["device", "check", "--help"], ["orchestrator.tables.table"]),
    ],
)
def test_help_loads_nothing_heavy(words: list[str], needed: list[str]) -> None:
    help_text, errors = printed_by(command(*words, then=loaded((*HEAVY, *UNUSED_BY_HELP))))
    assert "Usage: benchfarm" in help_text
    assert errors == str(needed)


def test_no_commands_help_loads_what_only_the_command_needs() -> None:
    help_texts, errors = printed_by(
        "import sys\n"
        "from orchestrator.cli.commands import ROOT\n"
        "ROOT.load()\n"
        "def show(command, words):\n"
        "    ROOT.main([*words, '--help'], prog_name='benchfarm', standalone_mode=False)\n"
        "    for name, inner in getattr(command, 'commands', {}).items():\n"
        "        show(inner, [*words, name])\n"
        f"show(ROOT, [])\n{loaded({*HEAVY, *UNUSED_BY_EVERY_HELP} - {'pydantic'})}"
    )
    assert help_texts.count("Usage: benchfarm") > 60
    assert errors == "[]"


def test_what_only_asks_the_store_loads_neither_numbers_library_nor_planning(
    tmp_path: Path,
) -> None:
    unused = ("numpy", "pandas", "orchestrator.planning", "orchestrator.reading.report")
    ask = command("--home", str(tmp_path), "status", then=loaded(unused))
    output, errors = printed_by(ask)
    assert "no campaign is running" in output
    assert errors == "[]"


@pytest.mark.parametrize(
    ("imported", "unused"),
    [
        # A notebook that only loads results.
        ("from orchestrator import Lab", ("sqlalchemy", "yaml", "orchestrator.devices")),
        # 'benchfarm devices' asks no store.
        ("import orchestrator.app.phones, orchestrator.app.measuring", ("sqlalchemy",)),
        # What measures waits for no report before there is a run.
        (
            (
                "import orchestrator.app.measuring\n"
                "from orchestrator.config.plan import plan_from_options\n"
                "from orchestrator.models.inspect import sample_models\n"
                "plan_from_options(models=sample_models())"
            ),
            ("orchestrator.report", *(f"orchestrator.tables.{name}" for name in TABLES_OF_RUNS)),
        ),
    ],
)
def test_no_import_loads_what_only_a_call_needs(imported: str, unused: tuple[str, ...]) -> None:
    assert printed_by(f"import sys; {imported}\n{loaded(unused)}") == ("", "[]")


def test_only_the_farm_needs_the_packages_of_its_extra() -> None:
    printed_by(
        "import importlib, pkgutil, sys\n"
        "sys.modules |= dict.fromkeys(('procrastinate', 'psycopg', 'psycopg_pool'))\n"
        "from orchestrator import app, cli\n"
        "for part in (app, cli):\n"
        "    for module in pkgutil.iter_modules(part.__path__, f'{part.__name__}.'):\n"
        "        if '.farm' not in module.name:\n"
        "            importlib.import_module(module.name)\n"
    )


def test_every_program_that_the_product_starts_gets_an_environment() -> None:
    """So that none sees a secret of ours."""
    starts = {"Popen", "run", "check_output", "call"}
    found = [
        f"{place_of(path)}:{node.lineno}"
        for path, node, called in calls()
        if called in {"os.system", *(f"subprocess.{name}" for name in starts)}
        and "env" not in {item.arg for item in node.keywords}
    ]
    assert found == []


def test_what_reaches_a_terminal_goes_through_one_function() -> None:
    writes = ("sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer", "sys.stderr.buffer")
    found = {
        f"{place_of(path)}:{node.lineno}"
        for path, node, called in calls()
        # The library's line of progress in a notebook is written through the same function's rule.
        if place_of(path) not in {"cli/output.py", "app/lab.py"}
        and (
            called in {"print", "typer.echo", "click.echo", "typer.secho", "print_exc"}
            or called.startswith(writes)
        )
    }
    assert not found


def test_the_names_that_plugins_and_users_import_are_there() -> None:
    """They are loaded by their home's name when they are first used, which no type checker sees."""
    for module in ("orchestrator", "orchestrator.plugins"):
        public = importlib.import_module(module)
        homes = public._HOMES
        missing = [name for name in homes if getattr(public, name, None) is None]
        assert not missing, f"{module}: _HOMES names homes that don't have these"
