"""The files of a plan on this computer: its models, and those that its flags name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from orchestrator.errors import ModelError, PlanError
from orchestrator.files import sha256_of
from orchestrator.models.inspect import identify_model, sample_models
from orchestrator.planning.expansion import FlagFiles
from orchestrator.records.case import Model
from orchestrator.records.plan import Plan


def identify_models(plan: Plan) -> list[Model]:
    """Check every model of a plan; raises ModelError for one that can't be used."""
    models = []
    for entry in plan.models:
        model = identify_model(entry.path, name=entry.name)
        if entry.sha256 is not None and entry.sha256 != model.sha256:
            raise ModelError(
                f"{entry.path}: its sha256 is {model.sha256}, the plan requires {entry.sha256}",
                hint="get the file that the plan means, or change the plan",
            )
        models.append(model)
    return models


def reference_model() -> Model:
    """Return the model of the reference workload that came with this benchfarm."""
    return identify_model(sample_models()[0])


#: The flag whose file names a library that it needs in its folder.
_SETTINGS_FLAG: Final = "stable_delegate_settings_file"
_LARGEST_SETTINGS_BYTES: Final = 1 << 20


def find_flag_files(plan: Plan) -> dict[str, FlagFiles]:
    """Return the host's files of each flag value ``@path`` of a plan.

    Raises:
        PlanError: a file can't be read, two of one case have the same name, or a stable delegate's
            settings don't say which library they are for.
    """
    files: dict[str, FlagFiles] = {}
    for flags in plan.matrix.flags:
        sha256s: dict[str, str] = {}
        for flag, value in flags:
            if not value.startswith("@") or len(value) == 1:
                continue
            if value not in files:
                files[value] = _files_of(flag, Path(value[1:]))
            for name, sha256 in files[value].files:
                if sha256s.setdefault(name, sha256) != sha256:
                    raise PlanError(
                        f"flag {flag}: another file of these flags is called {name!r}, too",
                        hint="rename one of them: both would lie in one folder of the phone",
                    )
    return files


def _files_of(flag: str, path: Path) -> FlagFiles:
    paths = [path, *(_library_of(path) if flag == _SETTINGS_FLAG else [])]
    try:
        contents = {item: sha256_of(item) for item in paths}
    except OSError as error:
        raise PlanError(f"flag {flag}: {error.filename} can't be read: {error.strerror}") from error
    return FlagFiles(
        name=path.name,
        files=tuple((item.name, sha256) for item, sha256 in contents.items()),
        paths={sha256: item for item, sha256 in contents.items()},
    )


def _library_of(settings: Path) -> list[Path]:
    """Return the library that a stable delegate's settings name, when it lies beside them on this
    computer.

    The phone's loader finds a bare name in the folder where both are placed; an absolute path is
    the phone's own.
    """
    where = f"flag {_SETTINGS_FLAG}: {settings}"
    try:
        with settings.open("rb") as file:
            values = json.loads(file.read(_LARGEST_SETTINGS_BYTES))
        library = values["stable_delegate_loader_settings"]["delegate_path"]
    except OSError as error:
        raise PlanError(f"{where} can't be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise PlanError(
            f"{where} doesn't name a delegate's library",
            hint='it needs {"stable_delegate_loader_settings": {"delegate_path": "libmine.so"}}',
        ) from error
    if str(library).startswith("/"):
        return []
    if "/" in str(library) or not settings.with_name(str(library)).is_file():
        raise PlanError(
            f"{where}: the library {str(library)!r} doesn't lie beside it",
            hint="write its bare name and put it into the same folder, or write an absolute path on the phone",
        )
    return [settings.with_name(str(library))]
