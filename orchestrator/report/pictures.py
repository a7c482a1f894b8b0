"""What Vega draws: its script for the page, and each chart as an SVG or PNG file, kept for the next report."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from orchestrator.child_environment import child_environment
from orchestrator.errors import HostStorageError
from orchestrator.files import make_private
from orchestrator.report.chart_rows import ChartRow, chart_rows
from orchestrator.report.chart_specs import ChartSpec, drawn_height, label_lines
from orchestrator.report.data import ReportData
from orchestrator.report.page_policy import pack_bytes


def kept_text(folder: Path | None, name: str, *, is_whole: Callable[[str], bool], make: Callable[[], str]) -> str:
    """Return the text of a file of the folder, made and kept there when it isn't whole.

    A folder that can't be read or written is passed over. ``name`` has to name the versions of all that it is made of.
    """
    if folder is None:
        return make()
    path = folder / name
    try:
        kept = path.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        kept = ""
    if kept.endswith("\n") and is_whole(kept[:-1]):
        return kept[:-1]
    made = make()
    try:
        make_private(folder)
        # Another report may be made at the same time: whole under its name, or not at all.
        with tempfile.NamedTemporaryFile("w", dir=folder, encoding="ascii", delete=False) as stream:
            stream.write(f"{made}\n")
        os.replace(stream.name, path)  # noqa: PTH105
    except OSError:
        return made
    return made


#: Held while that which every report shows is made.
_MAKING: Final = threading.Lock()


@cache
def chart_specs(cache_folder: Path | None = None) -> tuple[ChartSpec, ...]:
    """Return all charts, in the page's order; with a folder, they are kept there for the next report."""
    files = (Path(__file__).with_name("charts.py"), Path(__file__).with_name("chart_specs.py"))
    source = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    with _MAKING:
        kept = kept_text(cache_folder, f"charts-{version('altair')}-{source}.json", is_whole=_is_whole, make=_made)
    return tuple(ChartSpec(**{**fields, "needs": tuple(fields["needs"])}) for fields in json.loads(kept))


@cache
def _made() -> str:
    # Takes half a second, which a report that finds them kept does without.
    from orchestrator.report.charts import make_charts

    return json.dumps([dataclasses.asdict(chart) for chart in make_charts()])


def _is_whole(text: str) -> bool:
    return text.startswith("[{") and text.endswith("}]")


#: Vega-Embed alone: it holds Vega and Vega-Lite, which this bundle doesn't hand out under names of their own.
_SNIPPET: Final = "window.vegaEmbed=vegaEmbed;"
_BEST_LEVEL: Final = 9
_PICTURE_WIDTH: Final = 900
_PNG_SCALE: Final = 2.0
#: Pictures are for slides: nobody puts hundreds of them there, and each takes a fraction of a second.
_MOST_OF_ONE_KIND: Final = 40
_VIRTUAL_NOTE: Final = "Virtual phones: no measurement"


_MAKES_BOTH: Final = (
    "import sys, pathlib; from orchestrator.report.pictures import chart_specs, packed_runtime; "
    "chart_specs(pathlib.Path(sys.argv[1])); packed_runtime(pathlib.Path(sys.argv[1]))"
)


def packed_runtime(cache_folder: Path | None = None) -> str:
    """Return Vega-Embed with Vega and Vega-Lite as a script, folded as packing.pack_bytes does.

    Putting it together takes more than a second; with a folder, it is kept there for the next report. Nothing is
    downloaded. A folder that can't be read or written is passed over.
    """
    with _MAKING:
        return kept_text(cache_folder, _runtime_name(), is_whole=lambda text: text.startswith("H4sI"), make=_bundle)


def keep_ahead(cache_folder: Path) -> None:
    """Have a process of its own make what every report shows, unless it is kept; a report meanwhile waits for it.

    A computer's first report takes two seconds for that, and the bundler lets no other thread work meanwhile.
    """
    with _MAKING:
        if not (cache_folder / _runtime_name()).is_file():
            # Who needs it makes it where this failed.
            with suppress(OSError):
                subprocess.run(
                    [sys.executable, "-c", _MAKES_BOTH, str(cache_folder)],
                    env=child_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    check=False,
                )


def _runtime_name() -> str:
    return f"vega-{version('vl-convert-python')}.js.gz.txt"


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
    for chart in chart_specs():
        for value, rows in list(_parted(chart, sets.get(chart.dataset, ())).items())[:_MOST_OF_ONE_KIND]:
            stem = _file_stem(f"{chart.name}-{value}" if value else chart.name, used)
            yield Picture(
                stem=stem, title=f"{chart.title}: {value}" if value else chart.title, spec=_whole(chart, value, rows)
            )


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


def has_chart_data(chart: ChartSpec, rows: Sequence[ChartRow]) -> bool:
    """Whether a chart has something to draw: the accuracy charts need accuracies, for example."""
    return any(all(row[field] is not None for field in chart.needs) for row in rows)


def _parted(chart: ChartSpec, rows: Sequence[ChartRow]) -> Mapping[str, list[ChartRow]]:
    parts: dict[str, list[ChartRow]] = {}
    for row in rows:
        if all(row[field] is not None for field in chart.needs):
            parts.setdefault(str(row[chart.by]) if chart.by else "", []).append(row)
    return parts


def _whole(chart: ChartSpec, value: str, rows: Sequence[ChartRow]) -> Mapping[str, Any]:
    title: dict[str, Any] = {"text": f"{chart.title}: {value}" if value else chart.title, "anchor": "start"}
    if any(row["is_virtual"] for row in rows):
        title["subtitle"] = _VIRTUAL_NOTE
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        **chart.spec,
        "title": title,
        "width": _PICTURE_WIDTH,
        "background": "white",
        "datasets": {**chart.spec.get("datasets", {}), "rows": list(rows)},
        "params": [
            param | ({"value": label_lines(chart, rows)} if param["name"] == "label_lines" else {})
            for param in chart.spec["params"]
        ],
        **({"height": height} if (height := drawn_height(chart, rows)) is not None else {}),
    }


def _file_stem(name: str, used: set[str]) -> str:
    """Return a name that is safe in any folder and that no other picture has."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:100] or "chart"
    stem, number = plain, 2
    while stem.lower() in used:
        stem, number = f"{plain}-{number}", number + 1
    used.add(stem.lower())
    return stem
