"""How long a report takes to make, how large it is, and how soon a browser shows it, against a
plain HTML table.

python benchmarks/report.py [CASES...]     # 200 and 5,000 cases, 50,000 rows; needs
/usr/bin/chromium

Beside each time stands the processor time in brackets: of this process, and of the page's main
thread. On a computer that does something else meanwhile, only that says anything.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import Browser, CDPSession, sync_playwright

from orchestrator.report.assembly import build_report_data
from orchestrator.report.data import ReportData
from orchestrator.report.exports import table_of
from orchestrator.report.render import render_html
from orchestrator.tables.table import Form
from tests.samples.sample_lab import large_lab, small_lab

PAINTED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"


def plain_table(data: ReportData) -> str:
    """The named alternative: every case as a row of a plain table, and nothing else."""
    table = table_of([data])
    records = [table.record(row, Form.CSV) for row in table.rows]
    head = "".join(f"<th>{escape(name)}</th>" for name in records[0])
    lines = [
        "<tr>" + "".join(f"<td>{escape(str(v))}</td>" for v in record.values()) + "</tr>"
        for record in records
    ]
    return f"<!doctype html><title>plain</title><table><tr>{head}</tr>{''.join(lines)}</table>"


def busy_ms(session: CDPSession) -> float:
    """Processor time of the page's main thread since the page was made."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(item["value"] for item in metrics if item["name"] == "TaskDuration") * 1000


def painted_ms(browser: Browser, path: Path, repeats: int = 3) -> tuple[float, float]:
    """Return until the page is painted: by the clock, and the main thread's time."""
    times = []
    for _ in range(repeats):
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.goto(path.as_uri())
        times.append((page.evaluate(PAINTED), busy_ms(session)))
        page.close()
    return statistics.median(wall for wall, _ in times), statistics.median(
        busy for _, busy in times
    )


def usable_ms(browser: Browser, path: Path) -> tuple[float, float, float, float]:
    """Return until the table of all results is drawn (with the main thread's time), sorted and
    searched.

    The first counts from the address to the table's rows: whoever opens a report wants to use it
    then.
    """
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    begin = time.perf_counter()
    page.goto(path.as_uri())
    page.evaluate(PAINTED)
    page.evaluate("document.querySelector('#cases').open = true")
    page.evaluate("document.querySelector('[data-fold=results]').scrollIntoView()")
    page.wait_for_selector("[data-fold=results].drawn tbody tr")
    drawn, busy = (time.perf_counter() - begin) * 1000, busy_ms(session)
    timed = "(() => {{ const begin = performance.now(); {0}; document.body.offsetHeight; "
    timed += "return performance.now() - begin; }})()"
    sort = page.evaluate(
        timed.format("document.querySelectorAll('[data-fold=results] button.sort')[3].click()")
    )
    search = "const box = document.querySelector('[data-fold=results] input[type=search]'); box.value = 'gpu phone-0';"
    find = page.evaluate(
        timed.format(f"{search} box.dispatchEvent(new Event('input', {{bubbles: true}}))")
    )
    page.close()
    return drawn, busy, sort, find


def measure(browser: Browser, folder: Path, count: int) -> None:
    lab = large_lab(count, invocations=3 if count <= 5_000 else 1)
    marks = [(time.perf_counter(), time.process_time())]

    def told() -> str:
        marks.append((time.perf_counter(), time.process_time()))
        return f"{marks[-1][0] - marks[-2][0]:.2f} s ({marks[-1][1] - marks[-2][1]:.2f})"

    data = build_report_data(lab.inputs())
    gathered = told()
    html = render_html(data, title="Benchmark")
    rendered = told()
    plain = plain_table(data)
    plained = told()
    ours, theirs = folder / f"report-{count}.html", folder / f"plain-{count}.html"
    ours.write_text(html, encoding="utf-8")
    theirs.write_text(plain, encoding="utf-8")
    own, own_busy = painted_ms(browser, ours)
    beside = "a browser may take half a minute for the plain one"
    if count < 5_000:
        other = painted_ms(browser, theirs, repeats=1)[0]
        beside = f"plain {other:.0f} ms, ratio {own / other:.2f}"
    drawn, busy, sort, find = usable_ms(browser, ours)
    size = len(html.encode()) / 1e6
    print(
        f"{count:>6} cases: gathered {gathered}, rendered {rendered} (plain table {plained}); {size:.2f} MB without "
        f"library, {len(html) / 1e6:.2f} MB with (plain {len(plain) / 1e6:.2f} MB); painted {own:.0f} ms "
        f"({own_busy:.0f}; {beside}); usable, from the address to the rows of the table of all results, "
        f"{drawn:.0f} ms ({busy:.0f}); sorted {sort:.0f} ms, searched {find:.0f} ms"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        begin = time.perf_counter()
        render_html(build_report_data(small_lab().inputs()), title="first")
        print(
            f"first report on a computer, with the library put together: {time.perf_counter() - begin:.2f} s"
        )
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        for count in [int(text) for text in sys.argv[1:]] or (200, 5_000, 50_000):
            measure(browser, folder, count)
        browser.close()


if __name__ == "__main__":
    main()
