"""Models that can be had: the samples that come with benchfarm, and the well-known ones of the published tables."""

from __future__ import annotations

import csv
import json
import shutil
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from orchestrator.errors import HostStorageError, ModelError
from orchestrator.files import sha256_of
from orchestrator.records.model import Accuracy

_SAMPLES: Final = "samples"
_MANIFEST: Final = "manifest.json"


def sample_models(folder: Path | None = None) -> tuple[Path, ...]:
    """Return the sample models in a folder (by default those that come with benchfarm), float32 first.

    Raises:
        ModelError: a file is missing or isn't the one that the manifest names (a damaged installation).
    """
    folder = folder or _data() / _SAMPLES
    hint = "install benchfarm again"
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        expected = {name: str(entry["sha256"]) for name, entry in manifest["models"].items()}
        for name, sha256 in expected.items():
            if sha256_of(folder / name) != sha256:
                raise ModelError(f"{folder / name} isn't the sample model that was shipped", hint=hint)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"the sample models in {folder} can't be read: {error}", hint=hint) from error
    return tuple(folder / name for name in expected)


def _data() -> Path:
    return Path(str(resources.files("orchestrator.models")))


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """One model of the published tables."""

    name: str
    #: As the tables call it.
    title: str
    url: str
    accuracy: Accuracy


def published_models() -> Mapping[str, PublishedModel]:
    """Return them by name."""
    with (_data() / "published.csv").open(encoding="utf-8", newline="") as stream:
        return {
            row["name"]: PublishedModel(
                name=row["name"],
                title=row["title"],
                url=row["url"],
                accuracy=Accuracy(
                    percent=float(row["top1_percent"]), metric="ImageNet top-1", source=row["accuracy_source"]
                ),
            )
            for row in csv.DictReader(stream)
        }


def take_model(archive: Path, target: Path, *, label: str) -> None:
    """Write the only .tflite file of a tar archive to ``target``.

    Nothing else is unpacked, and names inside of the archive decide no path.

    Raises:
        ModelError: it is damaged, or holds no such file or several.
        HostStorageError: no space left.
    """
    draft = target.with_name(f".{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as tar:
            found = [member for member in tar if member.isfile() and member.name.endswith(".tflite")]
            if len(found) != 1:
                names = ", ".join(repr(member.name) for member in found[:5])
                raise ModelError(
                    f"{label}: the archive has {f'several models: {names}' if found else 'no .tflite file'}"
                )
            source = tar.extractfile(found[0])
            assert source is not None, "a regular file"
            with draft.open("wb") as stream:
                shutil.copyfileobj(source, stream)
        draft.replace(target)
    except (tarfile.TarError, zlib.error, EOFError) as error:
        raise ModelError(f"{label}: the archive is damaged: {error}", hint="fetch it again") from error
    except OSError as error:
        if error.errno is None:  # gzip's own word for damage
            raise ModelError(f"{label}: the archive is damaged: {error}", hint="fetch it again") from error
        raise HostStorageError(f"{target} can't be written: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
