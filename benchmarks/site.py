"""How long the history pages of a lab take to make, and how large they are, against plain tables of the same nights.

    python benchmarks/site.py --samples STORE [--nights 90] [--keep FILE]

The store is that of benchmarks/history.py: 7,200 series, one invocation a night, bodies from ``--samples``; with
``--keep`` it stays there for the next time. Measured: gathering (reading, changes, causes), the pages of all series,
the overview, writing them to an empty folder, and writing them again with nothing new. The alternative, in the same
run: each series as a page with a plain table of the same nights, and one table of all series, without charts or
styles. Campaigns' reports are left out: benchmarks/report.py measures those.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from html import escape
from pathlib import Path

from history import Year, sample_sections

from orchestrator.cli.site import gather
from orchestrator.ports import Store
from orchestrator.report import site_pages
from orchestrator.report.site import Site
from orchestrator.report.site_folder import SiteFolder
from orchestrator.store.opening import open_store


def plain(site: Site, folder: Path) -> int:
    """Write the alternative, and return its bytes."""
    size = 0
    lines = []
    for row in site.series:
        cells = "".join(
            f"<tr><td>{night.night}<td>{night.median_us:.1f}<td>{night.invocations}<td>{night.is_trusted}"
            f"<td>{escape(', '.join(night.campaigns))}"
            for night in site.nights_of(row)
        )
        lines.append(
            f"<tr><td><a href='{row.page}'>{escape(row.label)}</a><td>{row.last_us:.1f}<td>{row.against_window}"
        )
        size += (folder / row.page).write_text(
            f"<!doctype html><title>{escape(row.label)}</title><table>{cells}</table>"
        )
    return size + (folder / "index.html").write_text(f"<!doctype html><table>{''.join(lines)}</table>")


def write(site: Site, folder: Path) -> tuple[float, float, int]:
    """Write all pages but reports; return the seconds of series, of the overview, and the bytes."""
    target = SiteFolder(folder)
    shared = [site_pages.style_file(), site_pages.script_file()]
    target.check([*(item.path for item in shared), "index.html", *(f"series/{page}" for page in site.by_name)])
    for item in shared:
        target.write(item.path, item.content)
    begin = time.perf_counter()
    for path, html in site_pages.series_pages(site):
        target.write(path, html.encode())
    middle = time.perf_counter()
    target.write("index.html", site_pages.overview_page(site).encode())
    return middle - begin, time.perf_counter() - middle, target.finish().size_bytes


def main() -> None:
    """Fill a store, unless there is one, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nights", type=int, default=90)
    parser.add_argument("--samples", type=Path, required=True, help="a store that campaigns of virtual phones filled")
    parser.add_argument("--keep", type=Path, help="where the store is kept; filled when there is none yet")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = options.keep or Path(name) / "nights.sqlite"
        is_filled = path.exists()
        store = open_store(path)
        if not is_filled:
            year = Year(store, sample_sections(options.samples), options.nights, options.nights)
            for night in range(options.nights):
                year.night(night)
        measure(store)
        store.close()


def measure(store: Store) -> None:
    """Measure and print one JSON object."""
    begin = time.perf_counter()
    site, _ = gather(store, since=None, reports=0)
    gathered_s = time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as name:
        folder, other = Path(name) / "site", Path(name) / "plain"
        other.mkdir()
        first = write(site, folder)
        again = write(site, folder)
        begin = time.perf_counter()
        plain_bytes = plain(site, other)
        plain_s = time.perf_counter() - begin
        overview_bytes = (folder / "index.html").stat().st_size
    figures = {
        "series": len(site.series),
        "nights": len(site.nights),
        "changes": sum(len(row.changes) for row in site.series),
        "gathered_s": gathered_s,
        "series_pages_s": first[0],
        "overview_s": first[1],
        "again_s": sum(again[:2]),
        "plain_s": plain_s,
        "ratio_of_time_to_plain": sum(first[:2]) / plain_s,
        "size_mb": first[2] / 1e6,
        "overview_mb": overview_bytes / 1e6,
        "plain_mb": plain_bytes / 1e6,
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps({name: round(value, 2) for name, value in figures.items()}, indent=2))


if __name__ == "__main__":
    main()
