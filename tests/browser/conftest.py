"""Debian's chromium, and what tests of pages share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import installed, missing

#: The first one draws the same pages in half of the processor's time.
CHROMIUMS = (Path("/usr/bin/chromium-headless-shell"), Path("/usr/bin/chromium"))
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
#: No process of its own that plays a graphics card, no threads that compile scripts again.
DRAWS_ITSELF = (
    "--disable-gpu",
    "--disable-gpu-compositing",
    "--in-process-gpu",
    "--js-flags=--single-threaded",
)
#: The rules of accessibility that a page's colours may break.
OF_COLOURS = ("color-contrast", "link-in-text-block")
#: More than a busy computer needs for anything that a page does.
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def browser():
    chromium = next((path for path in CHROMIUMS if path.exists()), None)
    if chromium is None:
        missing(f"{CHROMIUMS[0]} isn't there; on Debian: apt-get install {CHROMIUMS[0].name}")
    playwright_api = installed("playwright.sync_api")
    playwright_api.expect.set_options(timeout=PATIENCE_MS)
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(chromium),
            args=["--no-sandbox", *DRAWS_ITSELF],
            timeout=3 * PATIENCE_MS,
        )
        yield browser
        browser.close()


class Tab:
    """A page, and what it complained of or asked for outside of what is its own."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.own: tuple[str, ...] = ()
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(self.own):
            self.complaints.append(f"asks for {request.url}")

    def emptied(self) -> Tab:
        """Return the tab as a new one is, but for what the browser has compiled."""
        self.page.evaluate("[localStorage, sessionStorage].forEach(kept => kept.clear())")
        self.own = ("about:blank",)
        self.page.goto("about:blank")
        self.complaints.clear()
        return self


@pytest.fixture(scope="module")
def tabs(browser: Any) -> list[Tab]:
    """Those that no test uses now: what the page before has compiled, the next one needn't."""
    return []


@pytest.fixture
def open_address(browser: Any, tabs: list[Tab]) -> Iterator[Callable[..., Any]]:
    """Open addresses; at the end check that no page complained, or asked for anything outside of
    ``within``.
    """
    plain: list[Tab] = []
    special: list[Tab] = []

    def open_one(
        address: str,
        viewport: dict[str, int] = WIDE,
        *,
        within: str = "",
        color_scheme: str = "null",
        **options: Any,
    ) -> Any:
        tab = tabs.pop() if tabs and not options else Tab(browser.new_context(**options).new_page())
        (special if options else plain).append(tab)
        tab.own = (within or address, "data:", "blob:")
        tab.page.set_viewport_size(viewport)
        tab.page.emulate_media(media="null", color_scheme=color_scheme)
        tab.page.goto(address)
        return tab.page

    yield open_one
    complaints = [complaint for tab in (*plain, *special) for complaint in tab.complaints]
    tabs += [tab.emptied() for tab in plain]
    for tab in special:
        tab.page.context.close()
    assert complaints == []


def follow(page: Any, link: Any) -> None:
    """Click a link and wait until its page is whole: a click alone returns with its first bytes."""
    with page.expect_navigation():
        link.click()


def serious_faults(
    page: Any, within: str = "html", only: Sequence[str] = (), left_out: Sequence[str] = ()
) -> list[tuple[str, str, str]]:
    """Return the serious faults of accessibility that axe finds in a part of a page: of all rules,
    of some only, or without some."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(
            Path(str(resources.files("axe_core_python") / "axe.min.js")).read_text("utf-8")
        )
    # It collects nothing else, and reads no style sheets again: none of its rules that apply here
    # needs them.
    options: dict[str, Any] = {"resultTypes": ["violations"], "preload": False}
    options["rules"] = {rule: {"enabled": False} for rule in left_out}
    if only:
        options["runOnly"] = [*only]
    found = page.evaluate(
        "([part, options]) => axe.run(part, options).then(found => found.violations)",
        [within, options],
    )
    return [
        (
            item["id"],
            item["nodes"][0]["html"][:200],
            item["nodes"][0].get("failureSummary", "")[:300],
        )
        for item in found
        if item["impact"] in ("serious", "critical")
    ]
