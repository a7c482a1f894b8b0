"""The well-known models of the published tables, which can be downloaded."""

from __future__ import annotations

import csv
import shutil
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import HostStorageError, ModelError
from orchestrator.records.model import Accuracy


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
    with Path(__file__).with_name("published.csv").open(encoding="utf-8", newline="") as stream:
        return {
            row["name"]: PublishedModel(
                name=row["name"],
                title=row["title"],
                url=row["url"],
                accuracy=Accuracy(
                    percent=float(row["top1_percent"]),
                    metric="ImageNet top-1",
                    source=row["accuracy_source"],
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
            found = [
                member for member in tar if member.isfile() and member.name.endswith(".tflite")
            ]
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
        raise ModelError(
            f"{label}: the archive is damaged: {error}", hint="fetch it again"
        ) from error
    except OSError as error:
        if error.errno is None:  # gzip's own word for damage
            raise ModelError(
                f"{label}: the archive is damaged: {error}", hint="fetch it again"
            ) from error
        raise HostStorageError(f"{target} can't be written: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
