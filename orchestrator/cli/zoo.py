"""``benchfarm model build``, ``fetch`` and ``list``: models to measure, and the manifest that knows them."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bootstrap import Farm
from orchestrator.cli.files import percent_of
from orchestrator.cli.progress import tell
from orchestrator.cli.result import CommandResult, table
from orchestrator.errors import ArtifactError, ModelError, UsageError
from orchestrator.models.building import VARIANTS, BuildOrder
from orchestrator.models.networks import NAMES
from orchestrator.records.model import Accuracy, ManifestEntry
from orchestrator.report.escapes import one_line
from orchestrator.units import format_bytes

if TYPE_CHECKING:
    from orchestrator.artifacts.download import Downloader
    from orchestrator.bootstrap import Settings
    from orchestrator.models.building import BuildOrder, BuiltModel, FailedBuild
    from orchestrator.models.published import PublishedModel


RANDOM_NOTE = "weights are random: right for latency, which doesn't depend on them, and its outputs mean nothing"


def _places(settings: Settings, out: Path | None) -> tuple[Path, Path]:
    """Return the folder for files and the manifest."""
    from orchestrator.config.model_manifest import MANIFEST_NAME

    if out is not None:
        return out.absolute(), out.absolute() / MANIFEST_NAME
    return settings.data_folder / "models", settings.data_folder / MANIFEST_NAME


def build(
    settings: Settings, orders: Sequence[BuildOrder], *, out: Path | None, accuracy: Accuracy | None
) -> CommandResult:
    """Build models and write the manifest as they come; exit code 1 when some couldn't be, ModelError when none could.

    What was built before an interruption is there and in the manifest.
    """
    from orchestrator.config.model_manifest import add_to_manifest, load_manifest
    from orchestrator.models.building import FailedBuild, build_models

    folder, manifest = _places(settings, out)
    load_manifest(manifest)  # a manifest with faults is told before minutes of building
    entries: list[ManifestEntry] = []
    say = partial(tell, settings.log_format, "model-built")

    def keep(order: BuildOrder, outcome: BuiltModel | FailedBuild) -> None:
        if isinstance(outcome, FailedBuild):
            say(f"{outcome.name}: not built")
            return
        entries.append(_entry(order, outcome, accuracy))
        add_to_manifest(manifest, entries[-1:])
        say(f"{outcome.name}: {format_bytes(outcome.size_bytes)}")

    done = build_models(orders, folder, environ=settings.environ, on_done=keep)
    failures = [item for built in done for item in built.failures]
    if not entries and failures:
        also = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise ModelError(f"{failures[0].name}: {failures[0].reason}{also}", hint=failures[0].hint)
    rows = [
        (item.name, format_bytes(item.size_bytes), item.sha256[:12], str(item.path))
        for built in done
        for item in built.models
    ]
    lines = [table(("model", "size", "sha256", "file"), rows, right=(1,))]
    for item in failures:
        lines.append(one_line(f"{item.name} couldn't be built: {item.reason}"))
        lines += [f"  {item.hint}"] if item.hint else []
    notes = Counter(note for entry in entries for note in entry.note.split("; ") if note)
    lines += [f"{count} of {len(entries)}: {note}" for note, count in notes.items()]
    lines.append(f"how to build them again is in {manifest}")
    data = {"models": entries, "failures": failures, "manifest": manifest}
    return CommandResult(text="\n".join(lines), data=data, exit_code=1 if failures else 0)


def _entry(order: BuildOrder, model: BuiltModel, accuracy: Accuracy | None) -> ManifestEntry:
    from orchestrator.models.inspect import inspect_model

    notes = [RANDOM_NOTE] if order.is_named and order.weights == "random" else []
    precision = inspect_model(model.path).precision
    variant = model.build["variant"]
    if variant != "float32" and precision == "float32":
        notes.append(f"{variant} changed nothing: no weights were large enough for the converter to make smaller")
    return ManifestEntry(
        name=model.name,
        sha256=model.sha256,
        path=model.path,
        command=_command(order, model.build),
        build=model.build,
        accuracy=accuracy,
        note="; ".join(notes),
    )


def _command(order: BuildOrder, build: Mapping[str, str]) -> str:
    words = ["benchfarm", "model", "build", order.source, "--variant", build["variant"], "--seed", str(order.seed)]
    words += ["--batch", build.get("batch", "as-is")]
    words += ["--size", build["size"]] if "size" in build else []
    words += ["--weights", order.weights] if order.weights != "random" else []
    words += ["--representative", order.representative] if order.representative else []
    words += ["--signature", order.signature] if order.signature != "serving_default" else []
    return shlex.join([*words, *(["--flex"] if order.flex else [])])


def fetch(
    settings: Settings, names: Sequence[str], *, out: Path | None, mirror: str, accept_changed: bool
) -> CommandResult:
    """Download models of the published tables, each held to the content that it had at first sight.

    Raises:
        UsageError: a name isn't known.
        ArtifactError: a download failed, or isn't what it was; what was fetched before it is kept.
    """
    from orchestrator.models.published import published_models

    known = published_models()
    for name in names:
        if name not in known:
            raise UsageError(f"no published model is called {name!r}", hint=f"choose of {', '.join(known)}")
    with Farm(settings) as farm:
        downloader = farm.model_downloader(mirror=mirror)
        entries = [
            _fetched(settings, known[name], downloader, out, accept_changed=accept_changed)
            for name in dict.fromkeys(names)
        ]
    rows = [(entry.name, entry.sha256[:12], str(entry.path), status) for entry, status in entries]
    text = table(("model", "sha256", "file", ""), rows)
    return CommandResult(text=text, data=[{"status": status, "model": entry} for entry, status in entries])


def _fetched(
    settings: Settings, model: PublishedModel, downloader: Downloader, out: Path | None, *, accept_changed: bool
) -> tuple[ManifestEntry, str]:
    from orchestrator.config.model_manifest import add_to_manifest, load_manifest
    from orchestrator.models.inspect import identify_model
    from orchestrator.models.published import take_model

    folder, manifest = _places(settings, out)
    before = next((entry for entry in load_manifest(manifest).values() if entry.name == model.name), None)
    target = folder / f"{model.name}.tflite"
    if before is not None and before.url == model.url and not accept_changed and target.exists():
        try:
            identify_model(target, sha256=before.sha256)
            return before, "is here"
        except ModelError:
            pass  # damaged or replaced: fetch it again, and hold it to the same content
    arrival = target.with_name(f".{target.name}.new")
    try:
        with downloader.fetched(model.url) as downloaded:
            assert downloaded is not None, "no earlier content was named"
            take_model(downloaded.path, arrival, label=model.url)
        sha256 = identify_model(arrival).sha256
        changed = before is not None and before.url == model.url and before.sha256 != sha256
        if changed and before is not None and not accept_changed:
            raise ArtifactError(
                f"{model.name}: {model.url} has another content than at first sight: "
                f"its sha256 is {sha256}, was {before.sha256}",
                hint="find out why; --accept-changed takes the new one",
            )
        arrival.replace(target)
    finally:
        arrival.unlink(missing_ok=True)
    entry = ManifestEntry(
        name=model.name,
        sha256=sha256,
        path=target,
        command=shlex.join(["benchfarm", "model", "fetch", model.name]),
        url=model.url,
        accuracy=model.accuracy,
    )
    add_to_manifest(manifest, [entry])
    return entry, "changed" if changed else "fetched again" if before is not None else "first seen"


def list_models(settings: Settings, folder: Path | None) -> CommandResult:
    """List the models of the manifest, and the names that can be built and fetched."""
    from orchestrator.config.model_manifest import load_manifest
    from orchestrator.models.networks import NAMES
    from orchestrator.models.published import published_models

    if folder is not None and not folder.is_dir():
        raise UsageError(f"there is no folder {str(folder)!r}", hint="name the folder of a models.yaml")
    _, manifest = _places(settings, folder)
    entries = sorted(load_manifest(manifest).values(), key=lambda entry: entry.name)
    rows = [
        (
            entry.name,
            entry.sha256[:12],
            f"{entry.accuracy.percent:g} % {entry.accuracy.metric}" if entry.accuracy else "",
            str(entry.path) if entry.path.exists() else f"{entry.path} (isn't there)",
        )
        for entry in entries
    ]
    lines = [table(("model", "sha256", "accuracy", "file"), rows)] if rows else [f"no models in {manifest} yet"]
    published = published_models()
    lines += [f"can be built: {', '.join(NAMES)}", f"can be fetched: {', '.join(published)}"]
    data = {"manifest": manifest, "models": entries, "buildable": list(NAMES), "fetchable": list(published)}
    return CommandResult(text="\n".join(lines), data=data)


_AS_IS = "as-is"


def orders(
    *,
    sources: Sequence[str],
    variants: Sequence[str],
    batches: Sequence[str],
    sizes: Sequence[str],
    like: BuildOrder,
) -> list[BuildOrder]:
    """Return one order ``like`` another for each source; raises UsageError for what can't be."""
    for variant in variants:
        if variant not in VARIANTS:
            raise UsageError(f"{variant!r} is no variant", hint=f"choose of {', '.join(VARIANTS)}")
    return [
        replace(
            like,
            source=_source(source),
            variants=tuple(dict.fromkeys(variants)) or ("float32",),
            batches=() if tuple(batches) == (_AS_IS,) else _numbers("--batch", batches) or (1,),
            sizes=_numbers("--size", sizes),
            weights=like.weights if like.weights in {"random", "imagenet"} else _whole(like.weights),
            representative=_whole(like.representative) if like.representative else "",
        )
        for source in dict.fromkeys(sources)
    ]


def _whole(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def _source(text: str) -> str:
    """Return a name as it is and a file's whole path, so that the manifest's command works from everywhere."""
    path = Path(text).expanduser()
    return text if text in NAMES or not path.exists() else str(path.absolute())


def _numbers(option: str, values: Sequence[str]) -> tuple[int, ...]:
    for value in values:
        if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= 65536:
            raise UsageError(f"{option} {value!r} isn't a number from 1 to 65536")
    return tuple(dict.fromkeys(int(value) for value in values))


def known_accuracy(typed: str | None, metric: str, source: str) -> Accuracy | None:
    """Return an accuracy with its source; a figure that nobody vouches for isn't taken."""
    if typed is None:
        if source:
            raise UsageError("--accuracy-source is for --accuracy", hint="give the figure, too")
        return None
    if not source.strip():
        raise UsageError("an accuracy needs its source", hint="give --accuracy-source 'who measured it how'")
    percent = percent_of(typed, "--accuracy")
    if not 0 <= percent <= 100:
        raise UsageError(f"--accuracy {typed} isn't between 0% and 100%")
    return Accuracy(percent=percent, metric=metric, source=source)
