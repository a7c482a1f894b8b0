"""The page of a comparison in a real browser, written by the command from a real store."""

import pytest

from orchestrator.app.requests import CompareOptions
from orchestrator.cli.comparing import Output, compare
from tests.browser.conftest import PHONE, WIDE, serious_faults
from tests.conftest import installed
from tests.samples.records import settings_in
from tests.samples.sample_lab import hostile_lab, stored, two_nights_lab

expect = installed("playwright.sync_api").expect


SIDES = {
    "nights": (two_nights_lab, ("previous", "newest"), "campaign"),
    "hostile": (hostile_lab, ("gpu", "nnapi"), "delegate"),
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    for name, (lab, sides, by) in SIDES.items():
        settings = settings_in(stored(folder / f"home-{name}", lab()))
        output = Output(form="html", out=folder / f"{name}.html")
        compare(settings, [*sides], rule=CompareOptions(by=by), output=output)
    return folder


@pytest.fixture
def open_page(open_address, pages):
    """Open a comparison."""

    def open_one(name, viewport=WIDE, **options):
        return open_address((pages / f"{name}.html").as_uri(), viewport, **options)

    return open_one


def test_worst_is_first_with_its_runs_behind_it(open_page):
    page = open_page("nights")
    verdicts = page.locator(".compared tbody td[data-label='verdict']")
    # What the candidate broke stands before what it slowed.
    expect(verdicts).to_have_text(
        ["INCOMPARABLE", "SLOWER", "FASTER", "INCONCLUSIVE", "INCONCLUSIVE"]
    )
    line = page.locator(".compared tbody tr", has_text="SLOWER").first
    expect(line).to_contain_text("+10.0")
    expect(line.locator(".badge.virtual")).to_be_visible()
    # What can't be compared tells the fact, and the figure of another delegate is no result.
    line = page.locator(".compared tbody tr").first
    expect(line.locator("td[data-label='candidate']")).to_have_text("no result: 14.2 ms")
    expect(line.locator("svg circle")).to_have_count(0)
    cases = page.locator(".case-details")
    expect(cases.first).not_to_contain_text("INCOMPARABLE")
    cases.first.locator("summary").click()
    expect(cases.first).to_contain_text("gpu, full and xnnpack, fell-back")
    expect(cases.first.locator("svg.strips")).to_be_visible()


@pytest.mark.parametrize(
    ("name", "viewport", "scheme"), [("nights", WIDE, "light"), ("hostile", PHONE, "dark")]
)
def test_page_fits_the_window_and_has_no_serious_fault_of_accessibility(
    open_page, name, viewport, scheme
):
    page = open_page(name, viewport, color_scheme=scheme)
    # Names that break out of a page where they can stay text.
    assert "owned" not in page.title()
    expect(page.locator("img")).to_have_count(0)
    expect(page.locator(".compared tbody tr")).not_to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    assert serious_faults(page) == []
