"""Model files, built or fetched; the manifest records how to make each of them again."""

from __future__ import annotations

import contextlib
import csv
import shlex
import shutil
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import HostStorageError, ModelError, UsageError, choices
from orchestrator.files import draft_of, expanded, write_file
from orchestrator.plugins import (
    MANIFEST_NAME,
    Accuracy,
    ManifestEntry,
    Settings,
    add_to_manifest,
    identify_model,
    inspect_model,
    load_manifest,
    sample_models,
)
from orchestrator.records import frozen
from orchestrator.units import format_bytes

if TYPE_CHECKING:
    from orchestrator.extensions.models.building import BuildOrder, BuiltModel, FailedBuild
    from orchestrator.plugins import Downloader
    from orchestrator.records.case import Model


RANDOM_NOTE = "weights are random: right for latency, which doesn't depend on them, and its outputs mean nothing"


def places(settings: Settings, out: Path | None) -> tuple[Path, Path]:
    """Return the folder for files and the manifest."""
    if out is not None:
        return out.absolute(), out.absolute() / MANIFEST_NAME
    return settings.data_folder / "models", settings.data_folder / MANIFEST_NAME


#: The common name of the models that come with benchfarm.
SAMPLES = "samples"


def build_orders(sources: Sequence[str], order: BuildOrder) -> list[BuildOrder]:
    """Return an order for each of the sources; raises UsageError for an impossible one."""
    from orchestrator.extensions.models.building import check_order

    orders = [replace(order, source=_source(source)) for source in dict.fromkeys(sources)]
    names = [name for each in orders for name in each.names]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(
            f"two sources would both be written to {twice[0]}.tflite",
            hint="build them one by one, each with an --out of its own, or rename one",
        )
    for each in orders:
        check_order(each)
    return orders


def _source(text: str) -> str:
    """Return a name unchanged, or a file's absolute path, so that the manifest's command works from
    any folder.
    """
    from orchestrator.extensions.models.building import NAMES

    path = expanded(Path(text))
    return text if text in NAMES or not path.exists() else str(path.absolute())


def sizes_of(option: str, values: Sequence[str]) -> tuple[int, ...]:
    """Return the values of an option as numbers; raises UsageError."""
    for value in values:
        if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= 65536:
            raise UsageError(f"{option} {value!r} isn't a number from 1 to 65536")
    return tuple(dict.fromkeys(int(value) for value in values))


@frozen
class Built:
    """The results of build orders."""

    entries: list[ManifestEntry]
    models: list[BuiltModel]
    failures: list[FailedBuild]
    manifest: Path


def build(
    settings: Settings,
    orders: Sequence[BuildOrder],
    out: Path | None,
    *,
    on_done: Callable[[str], None],
) -> Built:
    """Build models and add each to the manifest at once; call ``on_done`` for each.

    Models that were built before an interruption stay. Raises ModelError when none could be built.
    """
    from orchestrator.extensions.models.building import FailedBuild, build_models

    folder, manifest = places(settings, out)
    load_manifest(manifest)  # a manifest with faults is reported before minutes of building
    done = Built(entries=[], models=[], failures=[], manifest=manifest)
    for order in orders:
        for outcome in build_models(order, folder, environ=settings.environ):
            if isinstance(outcome, FailedBuild):
                done.failures.append(outcome)
                on_done(f"{outcome.name}: not built")
                continue
            done.models.append(outcome)
            done.entries.append(_entry(order, outcome))
            add_to_manifest(manifest, done.entries[-1:])
            on_done(f"{outcome.name}: {format_bytes(outcome.size_bytes)}")
    if not done.entries:
        also = f" (and {len(done.failures) - 1} more)" if len(done.failures) > 1 else ""
        first = done.failures[0]
        raise ModelError(f"{first.name}: {first.reason}{also}", hint=first.hint)
    return done


def _entry(order: BuildOrder, model: BuiltModel) -> ManifestEntry:
    notes = [RANDOM_NOTE] if order.is_named else []
    variant = model.build["variant"]
    if variant != "float32" and inspect_model(model.path).precision == "float32":
        notes.append(
            f"{variant} changed nothing: no weights were large enough for the converter to quantise"
        )
    return ManifestEntry(
        name=model.name,
        sha256=model.sha256,
        path=model.path,
        command=_command(order, model.build),
        build=model.build,
        note="; ".join(notes),
    )


def _command(order: BuildOrder, build: Mapping[str, str]) -> str:
    words = [
        "benchfarm",
        "model",
        "build",
        order.source,
        "--variant",
        build["variant"],
        "--seed",
        str(order.seed),
    ]
    words += ["--batch", build["batch"], *(["--size", build["size"]] if "size" in build else [])]
    return shlex.join([*words, *(["--flex"] if order.flex else [])])


def fetch(settings: Settings, names: Sequence[str], *, out: Path | None) -> list[ManifestEntry]:
    """Download models of the published tables; each must have the content of its first download.

    Raises:
        UsageError: a name isn't known.
        ArtifactError, ModelError: a download failed, or its content has changed; models that were
            fetched before it are kept.
    """
    from orchestrator.plugins import Workspace

    published = published_models()
    for name in names:
        if name not in published:
            raise UsageError(
                f"no published model is called {name!r}", hint=choices(name, published)
            )
    with Workspace(settings) as workspace:
        downloader = workspace.downloader()
        folder, manifest = places(settings, out)
        return [
            _fetch_one(published[name], downloader, folder, manifest)
            for name in dict.fromkeys(names)
        ]


def _fetch_one(
    row: Mapping[str, str], downloader: Downloader, folder: Path, manifest: Path
) -> ManifestEntry:
    name, url = row["name"], row["url"]
    before = next((item for item in load_manifest(manifest).values() if item.name == name), None)
    sha256 = before.sha256 if before is not None and before.url == url else None
    target = folder / f"{name}.tflite"
    if before is not None and sha256 is not None and target.exists():
        with contextlib.suppress(ModelError):  # damaged or replaced
            identify_model(target, sha256=sha256)
            return before
    with downloader.fetched(url) as downloaded, draft_of(target) as draft:
        take_model(downloaded.path, draft, label=url)
        model = identify_model(draft, sha256=sha256)
    entry = ManifestEntry(
        name=name,
        sha256=model.sha256,
        path=target,
        command=shlex.join(["benchfarm", "model", "fetch", name]),
        url=url,
        accuracy=Accuracy(
            percent=float(row["top1_percent"]),
            metric="ImageNet top-1",
            source=row["accuracy_source"],
        ),
    )
    add_to_manifest(manifest, [entry])
    return entry


def listed_models(settings: Settings, folder: Path | None) -> tuple[Path, list[ManifestEntry]]:
    """Return a folder's manifest, or the data folder's, and its models; raises UsageError."""
    if folder is not None and not folder.is_dir():
        raise UsageError(
            f"there is no folder {str(folder)!r}", hint="name the folder of a models.yaml"
        )
    _, manifest = places(settings, folder)
    return manifest, sorted(load_manifest(manifest).values(), key=lambda entry: entry.name)


def samples(out: Path | None) -> list[Model]:
    """Return the sample models where they are, or copied to ``out``.

    Raises UsageError, HostStorageError.
    """
    paths = list(sample_models())
    if out is not None:
        copies = [out / path.name for path in paths]
        for path, copy in zip(paths, copies, strict=True):
            if copy.exists() and copy.read_bytes() != path.read_bytes():
                raise UsageError(
                    f"{copy} is there already and is another file", hint="name another folder"
                )
            write_file(copy, path.read_bytes(), makes_folder=True)
        paths = copies
    return [identify_model(path) for path in paths]


def published_models() -> dict[str, dict[str, str]]:
    """Return the rows of the published tables by the models' names."""
    with Path(__file__).with_name("published.csv").open(encoding="utf-8", newline="") as stream:
        return {row["name"]: row for row in csv.DictReader(stream)}


def take_model(archive: Path, target: Path, *, label: str) -> None:
    """Write the only .tflite file of a tar archive to ``target``.

    Nothing else is unpacked, and names inside of the archive decide no path.

    Raises:
        ModelError: it is damaged, or holds no such file or several.
        HostStorageError: no space left.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as tar:
            members = [
                member for member in tar if member.isfile() and member.name.endswith(".tflite")
            ]
            if len(members) != 1:
                raise ModelError(f"{label}: the archive has {len(members)} .tflite files, not one")
            source = tar.extractfile(members[0])
            assert source is not None, "a regular file"
            with target.open("wb") as stream:
                shutil.copyfileobj(source, stream)
    except (tarfile.TarError, zlib.error, EOFError) as error:
        raise ModelError(f"{label}: the archive is damaged: {error}") from error
    except OSError as error:
        if error.errno is None:  # gzip's own word for damage
            raise ModelError(f"{label}: the archive is damaged: {error}") from error
        raise HostStorageError(f"{target} can't be written: {error.strerror}") from error
