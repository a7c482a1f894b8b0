"""What Vega draws: its script for the page, and each chart as an SVG or PNG file."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from orchestrator.errors import HostStorageError
from orchestrator.files import make_private
from orchestrator.report.chart_rows import ChartRow, chart_rows
from orchestrator.report.charts import CHARTS, Chart
from orchestrator.report.data import ReportData
from orchestrator.report.page_policy import pack_bytes

#: Held while Vega's script is made.
_MAKING: Final = threading.Lock()
#: Vega-Embed alone: it holds Vega and Vega-Lite, which this bundle doesn't hand out under names of their own.
_SNIPPET: Final = "window.vegaEmbed=vegaEmbed;"
#: How base64 of gzip begins.
_GZIP_MARK: Final = "H4sI"
_BEST_LEVEL: Final = 9
_PICTURE_WIDTH: Final = 900
_PNG_SCALE: Final = 2.0
#: Pictures are for slides: nobody puts hundreds of them there, and each takes a fraction of a second.
_MOST_OF_ONE_KIND: Final = 40
_VIRTUAL_NOTE: Final = "Virtual phones: no measurement"


def packed_runtime(cache_folder: Path | None = None) -> str:
    """Return Vega-Embed with Vega and Vega-Lite as a script, packed as page_policy.pack_bytes does.

    Bundling takes more than a second; with a folder, the script is kept there for the next report. Nothing is
    downloaded. A folder that can't be read or written is ignored.
    """
    with _MAKING:
        if cache_folder is None:
            return _bundle()
        path = cache_folder / f"vega-{version('vl-convert-python')}.js.gz.txt"
        with suppress(OSError, UnicodeDecodeError):
            kept = path.read_text("ascii")
            if kept.startswith(_GZIP_MARK) and kept.endswith("\n"):
                return kept[:-1]
        made = _bundle()
        with suppress(OSError):
            make_private(cache_folder)
            # Another report may be made at the same time: whole under its name, or not at all.
            with tempfile.NamedTemporaryFile("w", dir=cache_folder, encoding="ascii", delete=False) as stream:
                stream.write(f"{made}\n")
            os.replace(stream.name, path)  # noqa: PTH105
        return made


@cache
def _bundle() -> str:
    import vl_convert

    return pack_bytes(vl_convert.javascript_bundle(_SNIPPET).encode(), _BEST_LEVEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One chart, drawn for one model or device."""

    stem: str
    title: str
    spec: Mapping[str, Any]


def pictures_of(data: ReportData) -> Iterable[Picture]:
    """Yield each chart that has data: one for each model or device, of at most forty of them."""
    sets = chart_rows(data)
    used: set[str] = set()
    for chart in CHARTS:
        parts: dict[str, list[ChartRow]] = {}
        for row in chart.drawable(sets.get(chart.dataset, ())):
            parts.setdefault(str(row[chart.by]), []).append(row)
        for value, rows in list(parts.items())[:_MOST_OF_ONE_KIND]:
            title = f"{chart.title}: {value}"
            yield Picture(stem=_file_stem(f"{chart.name}-{value}", used), title=title, spec=_whole(chart, title, rows))


def write_pictures(data: ReportData, folder: Path) -> tuple[Path, ...]:
    """Write each chart as SVG and PNG and return the files; raises HostStorageError when they can't be written."""
    import vl_convert

    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for picture in pictures_of(data):
            svg, png = folder / f"{picture.stem}.svg", folder / f"{picture.stem}.png"
            svg.write_text(vl_convert.vegalite_to_svg(dict(picture.spec)), encoding="utf-8")
            png.write_bytes(vl_convert.vegalite_to_png(dict(picture.spec), scale=_PNG_SCALE))
            written += [svg, png]
    except OSError as error:
        raise HostStorageError(f"the pictures can't be written to {folder}: {error}") from error
    return tuple(written)


def _whole(chart: Chart, title: str, rows: Sequence[ChartRow]) -> Mapping[str, Any]:
    note = {"subtitle": _VIRTUAL_NOTE} if any(row["is_virtual"] for row in rows) else {}
    height = chart.height(rows)
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        **chart.spec,
        "title": {"text": title, "anchor": "start", **note},
        "width": _PICTURE_WIDTH,
        "background": "white",
        "datasets": {"rows": list(rows)},
        "params": [
            param | ({"value": chart.label_lines(rows)} if param["name"] == "label_lines" else {})
            for param in chart.spec["params"]
        ],
        **({"height": height} if height is not None else {}),
    }


def _file_stem(name: str, used: set[str]) -> str:
    """Return a name that is safe in any folder and that no other picture has."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:100] or "chart"
    stem, number = plain, 2
    while stem.lower() in used:
        stem, number = f"{plain}-{number}", number + 1
    used.add(stem.lower())
    return stem
