"""Plans from files, options and keywords: one model (``records.plan``), and the rules that need
more than its text.

``docs/reference/plans.md`` describes the format.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import TypeAdapter

from orchestrator.config.declarations import ManifestEntry, named_models, tool_of
from orchestrator.config.yaml_file import (
    Faults,
    Location,
    OptionSource,
    Source,
    checked,
    read_yaml,
)
from orchestrator.errors import UsageError, choices
from orchestrator.fields import unknown_word_message
from orchestrator.files import expanded
from orchestrator.installation import plugins
from orchestrator.passes import pass_of, plan_keys, plan_pass_names
from orchestrator.records.case import USUAL_TOOL, DelegateName, Pass
from orchestrator.records.device import FIELDS, parse_predicate
from orchestrator.records.plan import (
    DelegateChoice,
    Plan,
    PlanKey,
    PlanModel,
    PlanOptions,
    PlanTerms,
    keys_of,
)
from orchestrator.units import as_list, split

#: Characters of a model's name in a campaign's default name, at most.
_NAME_CHARS: Final = 80


def load_plan(path: Path, *, home: Path | None = None) -> Plan:
    """Read a plan file; paths in it start from its folder.

    A model may also be named as ``models.yaml`` beside the plan, or in ``home``, names it; its
    content must then be what the manifest says.

    Raises:
        PlanError: with one line for each fault: ``file:line:column: key: what is wrong``.
    """
    file = read_yaml(path)
    read = replace(_checked(file, path.absolute().parent, home), text=file.text)
    return read if read.name else replace(read, name=path.stem)


def plan_from_options(
    in_python: bool = False,
    called: Mapping[str, str] | None = None,
    /,
    **options: Any,  # noqa: ANN401 - each key has its own type
) -> Plan:
    """Return the plan of command-line options; empty and default values are left out of it.
    ``plan.text`` is a plan file that means the same from any folder.

    Paths are relative to the current folder; patterns aren't expanded, as the shell has done that.
    ``called`` maps keys that weren't given as options to the names that messages use for them.

    Raises:
        PlanError: with one line for each fault, which names the option, or the keyword
            ``in_python``.
        UsageError: a build that is of no tool in use, or a keyword that isn't known.
    """
    keys = plan_keys()
    if unknown := options.keys() - keys.keys():
        raise UsageError(
            f"there is no option {', '.join(sorted(unknown))}",
            hint=f"there are {', '.join(sorted(keys))}",
        )
    names: dict[Location, str] = {
        key.at: name if in_python else (called or {}).get(name, key.option)
        for name, key in keys.items()
    }
    source = OptionSource(label="options" if in_python else "command line", names=names)
    faults = Faults(source)
    option_values: PlanOptions = {"models": [], **options}
    if option_values.get("name") is None:
        option_values["name"] = _default_name(
            [Path(path).stem for path in as_list(option_values["models"])]
        )
    if option_values.get("sustained") and not option_values.get("passes"):
        option_values["passes"] = ["sustained"]
    builds = option_values.get("builds") or {}
    if not isinstance(builds, Mapping):
        option_values["builds"] = builds_of(
            [builds] if isinstance(builds, str) else builds, split(option_values.get("tools"))
        )
    for name, key in keys.items():
        if name not in option_values:
            continue
        try:
            value = _plan_value(key, option_values[name])
        except ValueError as error:
            faults.add(key.at, str(error))
            continue
        is_unset = value in (None, "", [], {}, key.default)
        # An empty list is refused, as in a file: it may be a filter that found nothing.
        is_empty = option_values[name] in ([], ())
        if name in {"name", "models"} or is_empty or not is_unset:
            section = source.value
            for part in key.at[:-1]:
                section = section.setdefault(part, {})
            section[key.at[-1]] = value
    faults.raise_if_any()
    text = yaml.dump(
        _plain(source.value), Dumper=_PlanDumper, sort_keys=False, allow_unicode=True, width=10_000
    )
    return replace(_checked(source, Path.cwd()), text=text)


def terms_from_options(**options: str) -> PlanTerms:
    """Return the terms of a plan's work from options; raises PlanError as `plan_from_options`."""
    names: dict[Location, str] = {(name,): plan_keys()[name].option for name in options}
    return checked(OptionSource(label="command line", names=names, value={**options}), PlanTerms)


def plan_json_schema() -> dict[str, Any]:
    """Return the JSON schema of plan files, for editors that check while one types."""
    schema = TypeAdapter(Plan).json_schema()
    for section in (schema, *schema["$defs"].values()):
        if section.get("type") == "object":
            section["additionalProperties"] = False
    single, several = schema["properties"]["passes"]["anyOf"]
    single["enum"] = several["items"]["enum"] = list(plan_pass_names())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "benchfarm plan",
    }


def keys_table() -> Iterator[tuple[str, str, str]]:
    """Yield the key, meaning and default of each key, as docs/reference/plans.md has them."""
    for key in keys_of(Plan):
        yield (
            ".".join(key.at),
            key.key.means or re.sub(r" \(default[^)]*\)|\.$", "", key.key.about),
            key.key.default or _format_default(key.default),
        )


def _format_default(value: object) -> str:
    match value:
        case bool():
            return f"`{str(value).lower()}`"
        case tuple():
            return ", ".join(f"`{item}`" for item in value)
        case float():
            return f"`{value:g}`"
        case _:
            return f"`{value}`"


def _checked(source: Source, folder: Path, home: Path | None = None) -> Plan:
    """Return the plan of a source's values; ``folder`` is absolute. Raises PlanError with all their
    faults.
    """
    manifest_models = named_models([folder, *([home] if home is not None else [])])
    rules: dict[str, Callable[..., object]] = {
        "model": lambda value: _pattern(value, folder, manifest_models),
        "delegate": _delegate,
        "pass": _pass,
        "predicate": _predicate,
        "fact": _fact,
        "program": partial(_program, folder=folder),
        "flag": partial(_flag_value, folder=folder),
        "build": partial(_build_path, folder=folder),
        "folder": partial(_input_folder, folder=folder),
    }
    # Load declared programs' files first, so that ``builds`` may use their names.
    matrix = source.value.get("matrix") if isinstance(source.value, Mapping) else None
    for tool in as_list(matrix.get("tools") or ()) if isinstance(matrix, Mapping) else ():
        with suppress(ValueError):
            rules["program"](tool)
    plan = checked(source, Plan, context=rules)
    faults = Faults(source)
    _check_together(plan, source.value, faults)
    models = _resolve_models(plan.models, faults, folder, manifest_models)
    faults.raise_if_any()
    return replace(plan, models=models, folder=folder)


def _check_together(plan: Plan, values: Mapping[str, object], faults: Faults) -> None:
    """Add a fault for each key that has no effect together with the others."""
    if plan.invocations.is_fixed and "precision" in values:
        faults.add(
            ("precision",),
            "precision says when a case has enough invocations, but their number is fixed "
            f"({plan.invocations.first}); leave one of the two out",
        )
    for key in keys_of(Plan):
        name, only_in = key.at[0], key.key.only_in
        if only_in and name in values and only_in not in plan.passes:
            faults.add(key.at, f"{name} is for the pass {only_in!r} alone; add it to passes")


def _plan_value(key: PlanKey, value: Any) -> Any:  # noqa: ANN401 - each key has its own type
    """Return a keyword's value as a plan file has it; paths are relative to the current folder.

    Raises ValueError.
    """
    match key.at:
        case ("models",):
            return [{"path": _absolute(item)} for item in as_list(value)]
        case ("matrix", "tools"):
            return [_absolute(tool) if _is_declaration(tool) else tool for tool in split(value)]
        case ("matrix", "flags"):
            return _flag_sets(value)
        case ("builds",):
            return {
                tool: _absolute(build) if "/" in build else build
                for tool, build in (value or {}).items()
            }
        case ("parity_inputs",):
            return _absolute(value)
        case _ if key.is_list:
            return split(value) if key.key.commas else list(map(str, as_list(value)))
        case _:
            return value


def _is_declaration(tool: object) -> bool:
    """Whether a program is named by the file that declares it."""
    return isinstance(tool, str) and tool.endswith(".yaml")


def _absolute(value: object) -> str:
    return str(_path(value, Path.cwd())) if value else ""


def _path(value: object, folder: Path) -> Path:
    """Return the path of a file named in a folder; raises ValueError."""
    try:
        return folder / expanded(Path(str(value)))
    except UsageError as error:
        raise ValueError(str(error)) from None


def _flag_sets(value: object) -> list[dict[str, str]]:
    """Return one set of ``name=value`` flags; raises ValueError."""
    if isinstance(value, Mapping):
        return [{str(name): str(item) for name, item in value.items()}] if value else []
    flags: dict[str, str] = {}
    for flag in as_list(value):
        name, equals, text = str(flag).partition("=")
        if not equals:
            raise ValueError(f"{flag!r} lacks a value; write name=value")
        if name in flags:
            raise ValueError(f"{name} is given twice; keep one of them")
        flags[name] = text
    return [flags] if flags else []


def builds_of(texts: Sequence[str], tools: Sequence[str]) -> dict[str, str]:
    """Return the builds of ``--build``: tool -> name, sha256 or path of its program.

    A text is ``TOOL=NAME`` or, where one tool is used, ``NAME``.

    ``tools`` are the requested ones; ``native`` if empty. Raises UsageError.
    """
    # A declared program may be named by its file.
    tools = [Path(tool).stem if _is_declaration(tool) else tool for tool in tools]
    used = list(dict.fromkeys(tools)) or [USUAL_TOOL.value]
    builds: dict[str, str] = {}
    for text in texts:
        tool, equals, build = text.partition("=")
        # A path may hold the sign as well; a tool's name holds no slash.
        if not equals or "/" in tool:
            tool, build = used[0], text
            if len(used) > 1:
                raise UsageError(
                    f"--build {text!r} doesn't say which of {', '.join(used)} it is for",
                    hint=f"write TOOL=NAME: --build {used[0]}={text}",
                )
        if builds.setdefault(tool, build) != build:
            raise UsageError(
                f"--build names two programs for {tool}: {builds[tool]} and {build}",
                hint="keep one",
            )
    if unused := [tool for tool in builds if tools and tool not in used]:
        raise UsageError(
            f"--build is for {', '.join(unused)}, and --tool says {', '.join(used)}",
            hint="let both name the same tool",
        )
    return builds


def _default_name(models: Sequence[str]) -> str:
    """Return a campaign's default name: the first model's, and the number of further models."""
    first = "".join(letter if letter.isprintable() else "?" for letter in "".join(models[:1]))[
        :_NAME_CHARS
    ].strip()
    return f"{first or 'bench'} and {len(models) - 1} more" if len(models) > 1 else first or "bench"


#: What every reader of YAML takes for the same number.
_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?", re.ASCII)


class _PlanDumper(yaml.SafeDumper):
    """Quotes and escapes what isn't printable: in other styles some line ends would be folded to
    spaces. A number as an option has it, a text, stands there as a number.
    """

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Return the node of a text."""
        if _NUMBER.fullmatch(text):
            kind = "float" if "." in text else "int"
            return self.represent_scalar(f"tag:yaml.org,2002:{kind}", text)
        return self.represent_scalar(
            "tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"'
        )


_PlanDumper.add_representer(str, _PlanDumper.represent_text)


def _plain(value: object) -> object:
    """Return a value as plain dicts, lists and scalars, for YAML."""
    match value:
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case Enum():
            return value.value
        case _ if is_dataclass(value):
            return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
        case _:
            return value


def _predicate(value: object) -> object:
    """Return a valid predicate about devices; raises ValueError."""
    if isinstance(value, str) and value.strip():
        try:
            parse_predicate(value)
        except UsageError as error:
            raise ValueError(str(error)) from error
    return value


def _delegate(value: object) -> object:
    """Return a delegate, or the word for several, in whatever case it is written.

    Raises ValueError.
    """
    by_word: dict[str, object] = {
        **{name.value: name for name in DelegateName},
        **dict.fromkeys(plugins("delegates")),
        **{name.value: name for name in DelegateChoice},
    }
    word = str(value).strip().lower()
    if word not in by_word:
        raise ValueError(unknown_word_message(str(value), by_word))
    return by_word[word] or DelegateName(word)


def _pass(name: object) -> object:
    """Return the name of a pass that a plan may ask for; raises ValueError."""
    if name not in plan_pass_names():
        raise ValueError(f"there is no pass {name!r}; {choices(str(name), plan_pass_names())}")
    # A plugin's that is broken is refused as such.
    pass_of(Pass(name))
    return name


def _fact(value: object) -> object:
    """Return the name of a fact or of a system property; raises ValueError."""
    if not isinstance(value, str) or "." in value or not value.strip():
        return value
    if value.lower() not in FIELDS:
        raise ValueError(
            f"{value!r} isn't a fact of phones such as profile, model or soc, nor a system property"
        )
    return value.lower()


def _pattern(value: object, folder: Path, manifest_models: Mapping[str, ManifestEntry]) -> Path:
    """Return a model's path unchanged if it matches a file; raises ValueError."""
    if not isinstance(value, str | Path) or not str(value).strip():
        raise ValueError("must be the path of a .tflite file")
    _model_files(str(value), folder, manifest_models)
    return Path(value)


def _model_files(
    pattern: str, folder: Path, manifest_models: Mapping[str, ManifestEntry]
) -> list[Path]:
    """Return the files of a model's path; a path with * ? or [ may match several.

    Raises ValueError.
    """
    path = _path(pattern, folder)
    try:
        files = [path] if path.is_file() else []
        if not files and glob.has_magic(pattern):
            # Only what is written is a pattern, not the folder.
            relative = str(expanded(Path(pattern)))
            matches = glob.glob(relative, root_dir=folder, recursive=True)  # noqa: PTH207 - Path.glob refuses absolute ones
            files = sorted(file for name in matches if (file := folder / name).is_file())
        if not files and pattern in manifest_models:
            path = manifest_models[pattern].path
            files = [path] if path.is_file() else []
    except OSError as error:
        raise ValueError(f"{pattern!r} can't be looked up: {error}") from error
    if not files:
        # Most likely the second value of an option: --threads 1 4.
        hint = (
            "several values of an option are written with commas: --threads 1,4"
            if Path(pattern).name.isdigit()
            else "all models of a folder are FOLDER/*.tflite"
        )
        raise ValueError(f"there is no file {str(path)!r}; {hint}")
    for file in files:
        # Bytes that are no UTF-8 are surrogates in a name.
        if str(file) != str(file).encode("utf-8", "replace").decode():
            raise ValueError(f"the name {str(file)!r} isn't UTF-8; rename the file")
    return files


def _input_folder(value: object, *, folder: Path) -> object:
    if not isinstance(value, str | Path) or not str(value).strip():
        raise ValueError("must be the path of a folder")
    path = _path(value, folder).resolve()
    if not path.is_dir():
        raise ValueError(f"{path} is no folder")
    return path


def _file(path: str, folder: Path) -> str:
    file = _path(path, folder)
    if not file.is_file():
        raise ValueError(f"there is no file {str(file)!r}")
    return str(file)


def _program(value: object, *, folder: Path) -> object:
    """Return the program that a name or a file means; raises ValueError."""
    return tool_of(str(_path(value, folder)) if _is_declaration(value) else value)


def _build_path(value: object, *, folder: Path) -> object:
    """Return a build's name unchanged, or a path (a text with a slash) made absolute."""
    return _file(value, folder) if isinstance(value, str) and "/" in value else value


def _flag_value(value: object, *, folder: Path) -> object:
    """Return a flag's value; for ``@path``, a file of this computer, with an absolute path."""
    is_path = isinstance(value, str) and value.startswith("@")
    return f"@{_file(str(value)[1:], folder)}" if is_path else value


def _resolve_models(
    models: Sequence[PlanModel],
    faults: Faults,
    folder: Path,
    manifest_models: Mapping[str, ManifestEntry],
) -> tuple[PlanModel, ...]:
    """Return each model file once; adds a fault where two files have the same name."""
    plan_paths = {model.path for model in models}
    pins = {
        entry.path.resolve(): entry.sha256
        for name, entry in manifest_models.items()
        if Path(name) in plan_paths
    }
    by_path: dict[Path, PlanModel] = {}
    by_name: dict[str, Path] = {}
    for number, model in enumerate(models):
        files = _model_files(str(model.path), folder, manifest_models)
        if len(files) > 1 and (model.name or model.sha256):
            message = f"name and sha256 are for one model, but the path matches {len(files)} files"
            faults.add(("models", number), message)
            continue
        for path in files:
            existing = by_path.get(path.resolve())
            name = model.name or (existing.name if existing else path.stem)
            other = by_name.setdefault(name, path.resolve())
            if existing is not None and existing.name != name:
                message = f"{str(path)!r} is named twice, as {existing.name!r} and {name!r}"
                faults.add(("models", number), message)
            elif other != path.resolve():
                message = (
                    f"{str(path)!r} and {str(other)!r} would both be called {name!r}; rename one, or give it another "
                    "name in a plan: {path: FILE, name: NAME}"
                )
                faults.add(("models", number), message)
            sha256 = model.sha256 or (existing.sha256 if existing else None)
            sha256 = sha256 or pins.get(path.resolve())
            by_path[path.resolve()] = PlanModel(name=name, path=path, sha256=sha256)
    return tuple(by_path.values())
