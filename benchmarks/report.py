"""How long a report takes to make, how large it is, and how soon a browser shows it, against a plain HTML table.

python benchmarks/report.py [CASES...]     # 200 and 5,000 cases, 50,000 rows; needs /usr/bin/chromium
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
import time
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "samples"))

from playwright.sync_api import Browser, sync_playwright
from sample_lab import large_lab, small_lab

from orchestrator.report.assembly import build_report_data
from orchestrator.report.data import ReportData
from orchestrator.report.render import render_html
from orchestrator.report.tables import flat_record

LIBRARY = re.compile(r'<script type="text/plain" id="pack-vega">.*?</script>', re.DOTALL)
PAINTED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"


def plain_table(data: ReportData) -> str:
    """The named alternative: every case as a row of a plain table, and nothing else."""
    records = [flat_record(row) for row in data.results]
    head = "".join(f"<th>{escape(name)}</th>" for name in records[0])
    lines = ["<tr>" + "".join(f"<td>{escape(str(v))}</td>" for v in record.values()) + "</tr>" for record in records]
    return f"<!doctype html><title>plain</title><table><tr>{head}</tr>{''.join(lines)}</table>"


def painted_ms(browser: Browser, path: Path, repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(path.as_uri())
        times.append(page.evaluate(PAINTED))
        page.close()
    return statistics.median(times)


def grid_ms(browser: Browser, path: Path) -> tuple[float, float, float]:
    """Return until the table of all results is drawn, sorted and filtered, in milliseconds."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(path.as_uri())
    page.evaluate(PAINTED)
    begin = time.perf_counter()
    page.evaluate("document.querySelector('[data-grid=results]').scrollIntoView()")
    page.wait_for_selector("[data-grid=results].drawn tbody tr")
    drawn = (time.perf_counter() - begin) * 1000
    timed = "(() => {{ const begin = performance.now(); {0}; document.body.offsetHeight; "
    timed += "return performance.now() - begin; }})()"
    sort = page.evaluate(timed.format("document.querySelectorAll('[data-grid=results] button.sort')[3].click()"))
    search = "const box = document.querySelector('[data-grid=results] input[type=search]'); box.value = 'gpu phone-0';"
    find = page.evaluate(timed.format(f"{search} box.dispatchEvent(new Event('input', {{bubbles: true}}))"))
    page.close()
    return drawn, sort, find


def measure(browser: Browser, folder: Path, count: int) -> None:
    lab = large_lab(count, invocations=3 if count <= 5_000 else 1)
    begin = time.perf_counter()
    data = build_report_data(**lab.inputs())
    gathered = time.perf_counter()
    html = render_html(data, title="Benchmark", cache_folder=folder)
    rendered = time.perf_counter()
    plain = plain_table(data)
    plained = time.perf_counter()
    ours, theirs = folder / f"report-{count}.html", folder / f"plain-{count}.html"
    ours.write_text(html, encoding="utf-8")
    theirs.write_text(plain, encoding="utf-8")
    own_ms = painted_ms(browser, ours)
    # A browser takes far more than half a minute for a plain table of 50,000 rows.
    plain_ms = painted_ms(browser, theirs, repeats=1) if count <= 5_000 else float("nan")
    drawn, sort, find = grid_ms(browser, ours)
    size = len(LIBRARY.sub("", html).encode()) / 1e6
    print(
        f"{count:>6} cases: gathered {gathered - begin:.2f} s, rendered {rendered - gathered:.2f} s "
        f"(plain table {plained - rendered:.2f} s); {size:.2f} MB without library, {len(html) / 1e6:.2f} MB with "
        f"(plain {len(plain) / 1e6:.2f} MB); painted {own_ms:.0f} ms (plain {plain_ms:.0f} ms, "
        f"ratio {own_ms / plain_ms:.2f}); table drawn {drawn:.0f} ms, sorted {sort:.0f} ms, searched {find:.0f} ms"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        begin = time.perf_counter()
        render_html(build_report_data(**small_lab().inputs()), title="first", cache_folder=folder)
        print(f"first report on a computer, with the library put together: {time.perf_counter() - begin:.2f} s")
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for count in [int(text) for text in sys.argv[1:]] or (200, 5_000, 50_000):
            measure(browser, folder, count)
        browser.close()


if __name__ == "__main__":
    main()
