"""``benchfarm model build``, ``fetch`` and ``list``: models to measure, and the manifest that knows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app import model_files
from orchestrator.bootstrap import Settings
from orchestrator.cli.files import percent_of
from orchestrator.cli.progress import tell
from orchestrator.cli.result import CommandResult, table
from orchestrator.errors import UsageError
from orchestrator.models.building import VARIANTS, BuildOrder
from orchestrator.models.networks import NAMES
from orchestrator.records.model import Accuracy
from orchestrator.report.escapes import one_line
from orchestrator.units import format_bytes

if TYPE_CHECKING:
    from orchestrator.bootstrap import Settings
    from orchestrator.models.building import BuildOrder


def build(
    settings: Settings, orders: Sequence[BuildOrder], *, out: Path | None, accuracy: Accuracy | None
) -> CommandResult:
    """Build models; exit code 1 when some couldn't be, ModelError when none could."""
    say = partial(tell, settings.log_format, "model-built")
    done = model_files.build(settings, orders, out=out, accuracy=accuracy, on_done=say)
    rows = [(item.name, format_bytes(item.size_bytes), item.sha256[:12], str(item.path)) for item in done.models]
    lines = [table(("model", "size", "sha256", "file"), rows, right=(1,))]
    for item in done.failures:
        lines.append(one_line(f"{item.name} couldn't be built: {item.reason}"))
        lines += [f"  {item.hint}"] if item.hint else []
    notes = Counter(note for entry in done.entries for note in entry.note.split("; ") if note)
    lines += [f"{count} of {len(done.entries)}: {note}" for note, count in notes.items()]
    lines.append(f"how to build them again is in {done.manifest}")
    data = {"models": done.entries, "failures": done.failures, "manifest": done.manifest}
    return CommandResult(text="\n".join(lines), data=data, exit_code=1 if done.failures else 0)


def fetch(
    settings: Settings, names: Sequence[str], *, out: Path | None, mirror: str, accept_changed: bool
) -> CommandResult:
    """Download models of the published tables; see ``model_files.fetch``."""
    entries = model_files.fetch(settings, names, out=out, mirror=mirror, accept_changed=accept_changed)
    rows = [(entry.name, entry.sha256[:12], str(entry.path), status) for entry, status in entries]
    text = table(("model", "sha256", "file", ""), rows)
    return CommandResult(text=text, data=[{"status": status, "model": entry} for entry, status in entries])


def list_models(settings: Settings, folder: Path | None) -> CommandResult:
    """List the models of the manifest, and the names that can be built and fetched."""
    known = model_files.known_models(settings, folder)
    rows = [
        (
            entry.name,
            entry.sha256[:12],
            f"{entry.accuracy.percent:g} % {entry.accuracy.metric}" if entry.accuracy else "",
            str(entry.path) if entry.path.exists() else f"{entry.path} (isn't there)",
        )
        for entry in known.models
    ]
    lines = [table(("model", "sha256", "accuracy", "file"), rows)] if rows else [f"no models in {known.manifest} yet"]
    lines += [f"can be built: {', '.join(known.buildable)}", f"can be fetched: {', '.join(known.fetchable)}"]
    return CommandResult(text="\n".join(lines), data=known)


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
