"""What the options of ``benchfarm model build`` mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.cli.shares import percent_of
from orchestrator.errors import UsageError
from orchestrator.models.building import VARIANTS, BuildOrder
from orchestrator.models.networks import NAMES
from orchestrator.records.model import Accuracy

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
