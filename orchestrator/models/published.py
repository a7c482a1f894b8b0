"""The well-known models of the published tables, and how to take one out of the archive that it is downloaded in."""

from __future__ import annotations

import csv
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import IO, Final

from orchestrator.errors import HostStorageError, ModelError
from orchestrator.records.model import Accuracy

#: No model is larger than what a flatbuffer with its weights behind it has had so far; an archive may claim anything.
_MODEL_BYTES_MAX: Final = 8 << 30
_MEMBERS_MAX: Final = 10_000


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
    path = Path(str(resources.files("orchestrator.models"))) / "published.csv"
    with path.open(encoding="utf-8", newline="") as stream:
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
    """Write the only .tflite file of an archive (tar, gzipped or not, or zip), or the file itself, to ``target``.

    Nothing else is unpacked, and names inside of the archive decide no path.

    Raises:
        ModelError: it is damaged, or holds no such file or several.
        HostStorageError: no space left.
    """
    draft = target.with_name(f".{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if zipfile.is_zipfile(archive):
            _from_zip(archive, draft, label)
        elif tarfile.is_tarfile(archive):
            _from_tar(archive, draft, label)
        else:
            with archive.open("rb") as source:
                _copy(source, draft, label)
        draft.replace(target)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ModelError(f"{label}: the archive is damaged: {error}", hint="fetch it again") from error
    except OSError as error:
        if error.errno is None:  # gzip's own word for damage
            raise ModelError(f"{label}: the archive is damaged: {error}", hint="fetch it again") from error
        raise HostStorageError(f"{target} can't be written: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)


def _from_tar(archive: Path, draft: Path, label: str) -> None:
    found: list[str] = []
    with tarfile.open(archive) as tar:
        for number, member in enumerate(tar):
            if number >= _MEMBERS_MAX:
                raise ModelError(f"{label}: the archive has more than {_MEMBERS_MAX} members")
            if member.isfile() and member.name.endswith(".tflite"):
                found.append(member.name)
                _require_one(found, label)
                source = tar.extractfile(member)
                assert source is not None, "a regular file"
                _copy(source, draft, label)
    _require_any(found, label)


def _from_zip(archive: Path, draft: Path, label: str) -> None:
    with zipfile.ZipFile(archive) as bundle:
        found = [info.filename for info in bundle.infolist() if info.filename.endswith(".tflite")]
        _require_one(found, label)
        _require_any(found, label)
        with bundle.open(found[0]) as source:
            _copy(source, draft, label)


def _require_one(found: list[str], label: str) -> None:
    if len(found) > 1:
        raise ModelError(f"{label}: the archive has several models: {', '.join(map(repr, found[:5]))}")


def _require_any(found: list[str], label: str) -> None:
    if not found:
        raise ModelError(f"{label}: the archive has no .tflite file")


def _copy(source: IO[bytes], draft: Path, label: str) -> None:
    size = 0
    with draft.open("wb") as stream:
        while part := source.read(1 << 20):
            size += len(part)
            if size > _MODEL_BYTES_MAX:
                raise ModelError(f"{label}: the model has no end: {size} bytes came")
            stream.write(part)
