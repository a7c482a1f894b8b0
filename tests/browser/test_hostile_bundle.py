"""A bundle in which every text breaks out of a page where it can, from its import to what a real
browser runs."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orchestrator.documents import load_document
from orchestrator.errors import StoreError
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import Build, DelegateName, Model
from orchestrator.records.device import DeviceFacts
from orchestrator.records.run import RunRecord
from tests.browser.conftest import follow
from tests.conftest import installed
from tests.samples.command import Cli
from tests.samples.places import REPO
from tests.samples.sample_lab import REAL_PIXEL, Lab, case, lab_of, large_lab, series, stored

expect = installed("playwright.sync_api").expect

PAYLOAD = "</script></style>'\"><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
KINDS = {
    "campaign": Campaign,
    "device": DeviceFacts,
    "model": Model,
    "build": Build,
    "run": RunRecord,
}
#: What must stay for the bundle to be taken in at all: names that become files' and addresses.
PLAIN = {"campaign_id", "run_id"}
LOGS = {
    DelegateName.XNNPACK: "default_float_10_224.txt",
    DelegateName.GPU: "gpu_ok_backend_cl_fp32.txt",
}


def real_lab() -> Lab:
    """Return cases with real output, so that they have figures after they were read again."""
    outputs = {
        delegate: (REPO / "tests" / "data" / "native" / name).read_bytes()
        for delegate, name in LOGS.items()
    }
    owners = [
        case(REAL_PIXEL, delegate=delegate, threads=threads)
        for delegate in LOGS
        for threads in (1, 2, 4)
    ]
    return lab_of(
        [run for owner in owners for run in series(owner, 9_000, 3, log=outputs[owner.delegate])],
        REAL_PIXEL,
    )


LABS = {"small": real_lab, "large": lambda: large_lab(64, invocations=2)}


def spoiled(value: Any) -> Any:
    """Return what a liar writes in a value's place."""
    return f"{value}{PAYLOAD}" if isinstance(value, str) else PAYLOAD


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))
    elif path:
        yield path


def with_value(record: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> None:
    for key in path[:-1]:
        record = record[key]
    record[path[-1]] = change(record[path[-1]])


def hostile(lines: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Return the records with every value spoiled that may be, and how many fields of each kind
    that were."""
    may: dict[tuple[object, ...], bool] = {}
    for line in lines:
        kind, record = line["kind"], line["record"]
        for path in list(places(record)):
            field = (kind, *("" if isinstance(key, int) else key for key in path))
            if field not in may:
                tried = json.loads(json.dumps(record))
                with_value(tried, path, spoiled)
                try:
                    load_document(KINDS[kind], json.dumps(tried), where="tried")
                    may[field] = not PLAIN & set(field)
                except StoreError:
                    may[field] = False
            if may[field]:
                with_value(record, path, spoiled)
        for name in ("properties", "heat_c", "extra"):
            for holder in (
                record,
                record.get("state_before"),
                record.get("state_after"),
                record.get("report"),
            ):
                if holder and isinstance(holder.get(name), dict):
                    holder[name] = {spoiled(key): value for key, value in holder[name].items()}
    return lines, {
        kind: sum(found for field, found in may.items() if field[0] == kind) for kind in KINDS
    }


def packed(bundle, path, change) -> dict[str, int]:
    """Write a bundle with other records and raw output, all sums right; return what ``change``
    counted.
    """
    with zipfile.ZipFile(bundle) as old:
        members = {name: old.read(name) for name in old.namelist()}
    outputs = {
        name: data + f"\nINFO: {PAYLOAD}\n".encode()
        for name, data in members.items()
        if "blobs/" in name
    }
    moved = {
        name.removeprefix("blobs/"): hashlib.sha256(data).hexdigest()
        for name, data in outputs.items()
    }
    lines, counts = change([json.loads(line) for line in members["records.jsonl"].splitlines()])
    for line in lines:
        if "left" in line:
            line["left"] = [[name, moved[sha256]] for name, sha256 in line["left"]]
    records = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    manifest = json.loads(members["manifest.json"]) | {
        "records_sha256": hashlib.sha256(records).hexdigest()
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        new.writestr("records.jsonl", records)
        new.writestr("manifest.json", json.dumps(manifest))
        for data in outputs.values():
            new.writestr(f"blobs/{hashlib.sha256(data).hexdigest()}", data)
    return counts


@pytest.fixture(scope="module")
def home(request, tmp_path_factory):
    """A home that has taken in such a bundle, with its report."""
    folder = tmp_path_factory.mktemp(request.param)
    lab = LABS[request.param]()
    theirs = Cli(home=stored(folder / "theirs", lab))
    theirs(
        "export",
        *(campaign.campaign_id for campaign in lab.campaigns),
        "--out",
        folder / "fine.zip",
    ).ok()
    counts = packed(folder / "fine.zip", folder / "hostile.zip", hostile)
    assert all(counts[kind] >= 3 for kind in KINDS), counts
    ours = Cli(home=folder / "ours")
    ours("import", folder / "hostile.zip").ok()
    ours(
        "report",
        *(campaign.campaign_id for campaign in lab.campaigns),
        "--out",
        folder / "report.html",
    ).ok()
    return folder


def visited(page: Any) -> int:
    """Open everything that a page opens; return how many cases."""
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    for place in page.locator("[data-fold], [data-chart], [data-matrix]").all():
        place.scroll_into_view_if_needed()
    # What is drawn above one moves it out of sight again.
    page.wait_for_function(
        "() => { const it = document.querySelector('[data-fold]:not(.drawn)'); it?.scrollIntoView(); return !it; }"
    )
    links = page.locator("a.open[href^='#c-']")
    keys = dict.fromkeys(
        links.evaluate_all("links => links.map(link => link.getAttribute('href'))")
    )
    for key in list(keys)[:12]:
        page.locator(f"a.open[href='{key}']").first.dispatch_event("click", {"button": 0})
        expect(page.get_by_role("dialog")).to_be_visible()
        expect(page.get_by_role("dialog")).to_contain_text("<img src=x onerror=")
        page.evaluate("dialog.close()")
    return len(keys)


def is_harmless(page: Any) -> None:
    assert page.title() != "owned"
    expect(page.locator("img, iframe, [onerror]")).to_have_count(0)
    assert all("owned" not in text for text in page.locator("script:not([type])").all_inner_texts())
    # It is there, as text.
    assert "<img src=x onerror=" in page.locator("body").inner_text()


@pytest.mark.parametrize("home", ["small"], indirect=True)
def test_no_script_of_a_bundle_runs_in_its_report(home, open_address):
    page = open_address((home / "report.html").as_uri())
    assert visited(page) > 5
    is_harmless(page)


@pytest.mark.parametrize("home", ["small"], indirect=True)
def test_no_script_of_a_bundle_runs_in_the_pages_of_a_site(home, open_address):
    Cli(home=home / "ours")("history site", "--out", home / "site").ok()
    root = (home / "site").as_uri()
    for path in ("index.html", "campaigns/index.html"):
        page = open_address(f"{root}/{path}", within=root)
        visited(page)
        is_harmless(page)
    follow(page, page.locator("main a").first)
    assert visited(page) > 5
    is_harmless(page)
    series = next((home / "site" / "series").iterdir())
    is_harmless(open_address(series.as_uri(), within=root))


@pytest.mark.parametrize("home", ["large"], indirect=True)
def test_no_script_of_a_bundle_runs_in_what_is_served(home, open_address):
    served = Cli(home=home / "ours").start("serve --port 0")
    try:
        address = re.search(r"http://127\.0\.0\.1:\d+", served.stderr.readline()).group()
        page = open_address(f"{address}/campaigns/index.html", within=address)
        is_harmless(page)
        follow(page, page.locator("main a").first)
        assert visited(page) > 5
        is_harmless(page)
    finally:
        served.terminate()
        served.wait(60)
        served.stdout.close()
        served.stderr.close()


@pytest.mark.parametrize("home", ["small"], indirect=True)
def test_numbers_of_a_bundle_are_numbers(home, tmp_path):
    """A script in a number's place is refused as a whole, so that no page has to be afraid of one."""
    fields = [
        ("exit_code",),
        ("invocation",),
        ("duration_s",),
        ("report", "delegate", "delegated_nodes"),
    ]

    def spoil(path):
        def change(lines):
            run = next(
                line["record"]
                for line in lines
                if line["kind"] == "run" and line["record"]["report"]
            )
            with_value(run, path, spoiled)
            return lines, {}

        return change

    for path in fields:
        bundle = tmp_path / "number.zip"
        packed(home / "fine.zip", bundle, spoil(path))
        refused = Cli(home=tmp_path / "home")("import", bundle).ended_with(5)
        assert path[-1] in refused.said
