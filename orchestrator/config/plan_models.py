"""The models that a plan names: files, patterns, and names from a manifest."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import (
    BeforeValidator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from orchestrator.config.faults import Faults, Section
from orchestrator.config.fields import Sha256, Text
from orchestrator.config.model_manifest import MANIFEST_NAME
from orchestrator.records.model import ManifestEntry
from orchestrator.records.plan import PlanModel

#: The context under which validators find the folder that paths start from.
FOLDER: Final = "folder"
#: The context under which they find the models that manifests name.
NAMED: Final = "named"
#: The context under which they find the models that manifests name.


def _model_files(pattern: object, info: ValidationInfo) -> tuple[Path, ...]:
    """Return the files that a model's path means; a path with * ? or [ may mean several."""
    if not isinstance(pattern, str) or not pattern.strip():
        raise ValueError("must be the path of a .tflite file")
    folder: Path = (info.context or {}).get(FOLDER, Path())
    try:
        path = folder / Path(pattern).expanduser()
        if path.is_dir():
            raise ValueError(f"{str(path)!r} is a folder; for all models in it write {pattern.rstrip('/')}/*.tflite")
        files = [path] if path.exists() else []
        if not files and glob.has_magic(pattern):
            found = (Path(name) for name in glob.glob(str(path), recursive=True))  # noqa: PTH207 - Path.glob refuses absolute ones
            files = sorted(file for file in found if file.is_file())
            if not files:
                raise ValueError(f"no file matches {str(path)!r}")
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{pattern!r} can't be looked up: {error}") from error
    named: Mapping[str, ManifestEntry] = (info.context or {}).get(NAMED, {})
    if not files and pattern in named:
        path = named[pattern].path
        if not path.is_file():
            raise ValueError(
                f"{pattern!r} is a name in {path.parent / MANIFEST_NAME}, but there is no file {str(path)!r}"
            )
        files = [path]
    if not files:
        raise ValueError(f"there is no file {str(path)!r}")
    for file in files:
        if _is_not_utf8(str(file)):
            raise ValueError(f"the name {str(file)!r} isn't UTF-8; rename the file")
    return tuple(files)


def _is_not_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


class ModelSection(Section):
    """One model, or several by a pattern."""

    path: Annotated[
        tuple[Path, ...],
        BeforeValidator(_model_files),
        WithJsonSchema({"type": "string", "description": "A .tflite file, or a pattern of several"}),
    ]
    name: Text | None = None
    sha256: Sha256 | None = None

    @model_validator(mode="after")
    def _one_file_for_one_name(self) -> ModelSection:
        if len(self.path) > 1 and (self.name or self.sha256):
            raise ValueError(f"name and sha256 are for one model, but the path means {len(self.path)} files")
        return self


class PathOrModel:
    """Lets a model be written as its path alone."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401
        return core_schema.no_info_before_validator_function(
            lambda value: {"path": value} if isinstance(value, str) else value, handler(source)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler(schema)]}


def pins_of(written: object, named: Mapping[str, ManifestEntry]) -> Mapping[Path, str]:
    """Return the sha256 of the files that a plan names by a manifest's name and not by their path."""
    values = written if isinstance(written, list) else [written]
    names = [value.get("path") if isinstance(value, dict) else value for value in values]
    return {named[name].path.resolve(): named[name].sha256 for name in names if isinstance(name, str) and name in named}


def models_of(sections: Iterable[ModelSection], faults: Faults, pins: Mapping[Path, str]) -> tuple[PlanModel, ...]:
    """Return each file once; two files can't have one name, as reports and people tell them by it."""
    models: dict[Path, PlanModel] = {}
    by_name: dict[str, Path] = {}
    for number, section in enumerate(sections):
        for path in section.path:
            known = models.get(path.resolve())
            name = section.name or (known.name if known else path.stem)
            other = by_name.setdefault(name, path.resolve())
            if known is not None and section.name and known.name != section.name:
                faults.add(("models", number), f"{str(path)!r} is named twice, as {known.name!r} and {name!r}")
            elif other != path.resolve():
                message = (
                    f"{str(path)!r} and {str(other)!r} would both be called {name!r}; rename one, or give it another "
                    "name in a plan: {path: FILE, name: NAME}"
                )
                faults.add(("models", number), message)
            else:
                sha256 = section.sha256 or (known.sha256 if known else None) or pins.get(path.resolve())
                models[path.resolve()] = PlanModel(name=name, path=path, sha256=sha256)
    return tuple(models.values())
