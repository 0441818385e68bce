"""What goes to paper: the page of a job, and its report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page

from assay.service.cli.main import main
from tests.browser.conftest import Open, Site
from tests.browser.test_layout import load

pytestmark = pytest.mark.slow

PAGE_OF_PDF = re.compile(rb"/Type\s*/Page\b(?!s)")
PAPER = {"width": 688, "height": 1000}  # A4 within its margins
CUT = """() => [...document.querySelectorAll("main table")].filter((one) => one.checkVisibility()
    && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.innerText.slice(0, 80))"""
SHOWN = "(name) => document.querySelector(name)?.checkVisibility() ?? null"


def sheets(page: Page) -> int:
    return len(PAGE_OF_PDF.findall(page.pdf(prefer_css_page_size=True)))


@pytest.mark.parametrize("dark", [False, True])
def test_a_job_is_on_two_sheets(open_page: Open, site: Site, dark: bool) -> None:
    page = open_page(f"/jobs/{site.measured[0]}", dark=dark)
    load(page)
    assert 1 <= sheets(page) <= 2
    page.emulate_media(media="print")
    for name in (".headline", "#plot-curve img", "table.results"):
        assert page.evaluate(SHOWN, name), name
    for name in (".top", ".actions", "#gallery", "#provenance", "#plots"):
        assert page.evaluate(SHOWN, name) is False, name


def test_every_page_prints_what_it_shows(open_page: Open, site: Site) -> None:
    page = open_page("/")
    both = ",".join(site.measured)
    for path, part in (
        ("/", "main .tiles"),
        ("/jobs", "main table tbody tr"),
        (f"/compare?jobs={both}", "main table"),
        ("/leaderboard", "main table"),
        (f"/studies/{site.study}", "main table"),
        ("/studies", "main table"),
        ("/workers", "main table"),
        (f"/jobs/{site.measured[0]}/examples/0", "main table"),
        ("/catalog", "main .components"),
    ):
        page.goto(path)
        page.emulate_media(media="print")
        assert page.evaluate(SHOWN, part), path
        for name in (".top", "main form .actions", "main input", "main select"):
            assert not page.evaluate(SHOWN, name), (path, name)


def test_no_table_is_cut_at_the_edge_of_the_paper(open_page: Open, site: Site) -> None:
    page = open_page("/")
    page.set_viewport_size(PAPER)
    page.emulate_media(media="print")
    both = ",".join(site.measured)
    report = f"/api/v1/report?jobs={both}&format=html"
    for path in (f"/jobs/{site.measured[0]}", f"/compare?jobs={both}", f"/studies/{site.study}", report):
        if path == report:  # The service sends it as a file.
            content = page.request.get(path).text()
            page.goto("about:blank")
            page.set_content(content)
        else:
            page.goto(path)
        assert page.locator("main table").count() > 0, path
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert page.evaluate(CUT) == [], path


def test_the_button_prints_and_needs_scripts(open_page: Open, site: Site) -> None:
    path = f"/jobs/{site.measured[0]}"
    page = open_page(path)
    page.evaluate("window.print = () => { document.title = 'printed'; }")
    page.get_by_role("button", name="Print / PDF").press("Enter")
    assert page.title() == "printed"
    assert open_page(path, scripts=False).locator("button.print:visible").count() == 0


def test_a_report_is_a_pdf_of_two_sheets(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEY", site.keys["a"])
    target = tmp_path / "report.pdf"
    assert main(["report", site.measured[0], "--url", site.url, "-o", str(target)]) == 0
    assert 1 <= len(PAGE_OF_PDF.findall(target.read_bytes())) <= 2
