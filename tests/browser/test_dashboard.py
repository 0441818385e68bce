"""The dashboard in a real browser: by mouse, by keyboard, on a phone, in the dark, without JavaScript."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open, Site, evaluation, training
from tests.e2e.running import wait_for

pytestmark = pytest.mark.slow

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# Of WCAG's level AAA, and off by default. `identical-links-same-purpose` cannot hold: jobs may share a name.
STRICT = ["color-contrast-enhanced", "meta-refresh-no-exceptions"]
CONTROLS = "a[href], button, input:not([type=hidden]), select, textarea, summary"
USABLE = "(one) => one.checkVisibility() && !one.disabled && one.tabIndex >= 0"


def pages(site: Site) -> list[str]:
    first, second = site.measured
    return [
        "/",
        "/jobs",
        f"/jobs/{first}",
        f"/jobs/{site.trained}",
        f"/jobs/{site.canceled}",
        f"/jobs/{first}/gallery/1",
        f"/jobs/{first}/examples/1",
        f"/jobs/{first}/examples/1/0",
        "/compare",
        f"/compare?jobs={first},{second}",
        f"/plots/curve?jobs={first},{second}",
        "/leaderboard",
        "/studies",
        f"/studies/{site.study}",
        "/submit",
        f"/submit?from={first}",
        "/catalog",
        "/catalog/attack/pgd",
        "/workers",
        "/jobs?state=runing",
        f"/jobs/{'0' * 26}",
    ]


def violations(page: Page) -> list[str]:
    options = {
        "runOnly": {"type": "tag", "values": RULES},
        "rules": {one: {"enabled": True} for one in STRICT},
    }
    found = Axe().run(page, options=options).response["violations"]
    return [f"{one['id']}: {node['html'][:150]}" for one in found for node in one["nodes"]]


def overflows(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


@pytest.mark.parametrize(("size", "dark"), [("desktop", False), ("phone", True)])
def test_no_page_has_a_violation_or_is_wider_than_its_window(
    open_page: Open, site: Site, size: str, dark: bool
) -> None:
    page = open_page("/", size=size, dark=dark)
    for path in pages(site):
        page.goto(path)
        assert violations(page) == [], path
        assert not overflows(page), path
    page.context.clear_cookies()


def test_contrast_is_checked_at_level_aaa(open_page: Open) -> None:
    page = open_page("/workers")
    page.evaluate("document.querySelector('h1').style.color = '#6a6a6a'")  # 5.4:1
    page.evaluate("document.querySelector('h1').style.fontSize = '1rem'")
    page.evaluate("document.querySelector('h1').style.fontWeight = '400'")
    assert [one.partition(":")[0] for one in violations(page)] == ["color-contrast-enhanced"]


def test_a_wrong_key_opens_nothing(open_page: Open) -> None:
    page = open_page("/login", tenant=None)
    assert violations(page) == []
    page.get_by_label("API key").fill("assay_wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("This key does not work")).to_be_visible()


def test_a_job_from_the_form_to_its_end(open_page: Open, site: Site) -> None:
    page = open_page(f"/submit?weights={site.trained}")
    page.locator("[name='name']").fill("from the form")
    page.locator("[name='limit']").fill("40")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"/jobs/[0-9a-z]{26}$"))
    # Nothing is loaded by hand: the state comes by events, and the results with the end.
    expect(page.locator(".state").first).to_have_text("succeeded", timeout=60_000)
    expect(page.get_by_role("link", name="Report, HTML")).to_be_visible(timeout=30_000)
    page.get_by_text("Delete…").click()
    page.get_by_role("button", name="Delete it").click()
    page.wait_for_url(f"{site.url}/jobs")
    expect(page.get_by_text("from the form")).to_have_count(0)


def test_a_page_opened_early_shows_each_result_as_it_comes(open_page: Open, site: Site) -> None:
    attack = {"name": "pgd", "params": {"epsilon": "1/255", "steps": 10_000, "cycle_detection": False}}
    spec = {**evaluation("early"), "model": {"name": "symvit", "weights": {"job": site.trained}}}
    client = site.clients["a"]
    # The one worker is busy until the page has been looked at.
    before = client.submit(training("before", epochs=2000)).id
    wait_for(lambda: client.job(before).state.value == "running", 120)
    job = client.submit({**spec, "evaluations": [{"name": "clean"}, attack]}).id
    page = open_page(f"/jobs/{job}")
    expect(page.get_by_text("No results yet")).to_be_visible()
    client.cancel(before)
    page.get_by_text("Whole spec with every default").click()
    page.evaluate("window.sameDocument = true")
    expect(page.locator("table.results tbody tr").first).to_be_visible(timeout=60_000)
    expect(page.locator(".job-head .state")).to_have_text("running")
    expect(page.get_by_label("Spec", exact=True)).to_be_visible()
    assert page.evaluate("window.sameDocument")
    client.cancel(job)


def test_two_jobs_are_chosen_and_compared(open_page: Open) -> None:
    page = open_page("/jobs?tag=pictured")
    compare_the_chosen(page)
    expect(page.get_by_text("Weights, not methods")).to_be_visible()
    expect(page.get_by_role("columnheader", name=re.compile(r"^p \(.*McNemar"))).to_be_visible()


@pytest.mark.parametrize("path", ["/jobs?tag=pictured", "/compare?choose=yes&search=look"])
def test_the_first_ticked_job_is_the_baseline(open_page: Open, site: Site, path: str) -> None:
    page = open_page(path)
    for job in site.measured:  # The list has the newest first.
        page.locator(f"input[name=job][value='{job}']").check()
    page.get_by_role("button", name=re.compile("^Compare")).first.click()
    page.wait_for_url(re.compile(r"/compare\?jobs="))
    assert page.url.endswith(f"jobs={','.join(site.measured)}")


def compare_the_chosen(page: Page) -> None:
    """Chooses all jobs of the list, and waits for their comparison."""
    for box in page.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_url(re.compile(r"/compare\?jobs="))
    again = page.get_by_role("link", name="Load the page again")
    for _ in range(20):
        if not again.count():
            break
        page.wait_for_timeout(500)
        again.click()
    expect(page.get_by_role("heading", name="Comparison of 2 jobs")).to_be_visible()
    expect(page.get_by_role("columnheader", name="Difference from A")).to_be_visible()


def test_a_saved_report_opens_by_itself(open_page: Open, site: Site, tmp_path: Path) -> None:
    page = open_page(f"/jobs/{site.measured[0]}")
    with page.expect_download() as download:
        page.get_by_role("link", name="Report, HTML").click()
    file = tmp_path / "report.html"
    download.value.save_as(file)
    page.context.set_offline(True)
    page.goto(file.as_uri())
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_text("first look").first).to_be_visible()
    assert violations(page) == []
    assert page.evaluate("document.querySelectorAll('script, link[href^=http], img[src^=http]').length") == 0


def test_a_gallery_has_pictures_that_load(open_page: Open, site: Site) -> None:
    page = open_page(f"/jobs/{site.measured[0]}/gallery/1")
    page.evaluate("document.querySelectorAll('img').forEach((one) => { one.loading = 'eager'; })")
    page.wait_for_load_state("networkidle")
    widths = page.evaluate("[...document.querySelectorAll('main img')].map((one) => one.naturalWidth)")
    assert len(widths) >= 3
    assert all(width > 0 for width in widths)


def test_keys_lead_from_an_example_to_the_next(open_page: Open, site: Site) -> None:
    page = open_page(f"/jobs/{site.measured[0]}/examples/1")
    page.locator("tbody a.id", has=page.locator("img")).first.click()
    assert page.locator(".shots img").count() == 3
    base = f"{site.url}/jobs/{site.measured[0]}/examples/1"
    page.goto(f"{base}/0")
    for key, number in (("j", 1), ("ArrowRight", 2), ("k", 1), ("ArrowLeft", 0)):
        page.keyboard.press(key)
        page.wait_for_url(f"{base}/{number}")
    page.keyboard.press("k")
    page.goto(f"{base}/39")
    page.keyboard.press("j")
    expect(page).to_have_url(f"{base}/39")


def test_a_plot_is_drawn_by_vega_under_the_strict_policy(open_page: Open, site: Site) -> None:
    path = f"/plots/curve?jobs={','.join(site.measured)}"
    page = open_page(path)
    expect(page.get_by_role("button", name="Draw it interactively")).to_be_visible()
    assert page.locator("script[src*='vega']").count() == 0
    page.get_by_role("button", name="Draw it interactively").press("Enter")
    expect(page.locator("#plot canvas")).to_be_visible(timeout=30_000)
    page.goto(path)
    page.locator("#plot").hover()
    expect(page.locator("#plot canvas")).to_be_visible(timeout=30_000)


def test_progress_is_seen_until_a_job_is_canceled_and_retried(open_page: Open, site: Site) -> None:
    client = site.clients["a"]
    job = client.submit(training("watched", epochs=2000)).id
    page = open_page(f"/jobs/{job}")
    loaded: list[str] = []
    page.on("framenavigated", lambda frame: loaded.append(frame.url))
    state, done = page.locator(".state").first, page.locator(f"[data-done='{job}']").first
    expect(state).to_have_text("running", timeout=60_000)
    expect(done).to_have_text(re.compile(r"[1-9]\d*/"), timeout=60_000)
    expect(done).not_to_have_text(done.inner_text(), timeout=60_000)
    assert loaded == [], "the page was loaded again"
    page.get_by_role("button", name="Cancel").click()
    expect(state).to_have_text("canceled", timeout=30_000)
    page.get_by_role("button", name="Retry").click()
    expect(state).to_have_text(re.compile("queued|starting|running"), timeout=30_000)
    client.cancel(job)
    client.wait(job, timeout_seconds=60)


def test_everything_works_without_javascript(open_page: Open, site: Site) -> None:
    page = open_page(f"/submit?from={site.canceled}", scripts=False)
    page.locator("[name='name']").fill("without scripts")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"/jobs/[0-9a-z]{26}$"))
    job = page.url.rpartition("/")[2]
    page.get_by_role("button", name="Cancel").click()
    assert site.clients["a"].wait(job, timeout_seconds=60).state.value == "canceled"
    page.goto("/jobs?tag=pictured")
    compare_the_chosen(page)
    page.goto("/jobs")
    page.get_by_label("Search").fill("second")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_role("link", name="second look")).to_be_visible()
    expect(page.get_by_role("link", name="first look")).to_have_count(0)
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("API key")).to_be_visible()
    page.goto("/jobs")
    expect(page.get_by_label("API key")).to_be_visible()


@pytest.mark.parametrize("path", ["/jobs", "/submit"])
def test_the_keyboard_reaches_everything_and_shows_where_it_is(open_page: Open, path: str) -> None:
    page = open_page(path)
    wanted = page.evaluate(f"[...document.querySelectorAll('{CONTROLS}')].filter({USABLE}).length")
    seen: list[Any] = []
    for _ in range(3 * wanted):
        page.keyboard.press("Tab")
        at = page.evaluate(
            """() => { const one = document.activeElement; if (one === document.body) return null;
            one.dataset.seen = one.dataset.seen || '1';
            return { text: (one.textContent || one.name || '').trim().slice(0, 40),
                     outline: getComputedStyle(one).outlineStyle }; }"""
        )
        if at is None:
            break
        seen.append(at)
    assert seen[0]["text"] == "Skip to the content"
    assert all(one["outline"] != "none" for one in seen)
    missed = page.evaluate(
        f"[...document.querySelectorAll('{CONTROLS}')].filter({USABLE})"
        ".filter((one) => !one.dataset.seen).map((one) => one.outerHTML.slice(0, 120))"
    )
    assert missed == []


def test_enter_submits_a_search(open_page: Open) -> None:
    page = open_page("/jobs")
    page.get_by_label("Search").fill("first look")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("search=first"))
    expect(page.get_by_role("link", name="first look")).to_be_visible()


def test_names_of_any_kind_break_no_page(open_page: Open, site: Site) -> None:
    made = site.hostile
    for job in made:
        assert site.clients["b"].wait(job, timeout_seconds=120).state.value == "succeeded"
    page = open_page("/", tenant="b", size="phone")
    both = ",".join(made[:2])
    for path in ("/", "/jobs", *(f"/jobs/{job}" for job in made), f"/compare?jobs={both}", "/leaderboard"):
        page.goto(path)
        assert not overflows(page), path
        assert page.evaluate("document.querySelectorAll('script:not([src]), img[src=x]').length") == 0


def test_a_tenant_sees_nothing_of_another(open_page: Open, site: Site) -> None:
    page = open_page("/", tenant="b")
    for path in ("/", "/jobs", "/jobs?search=look", "/leaderboard", "/studies", "/compare", "/submit"):
        page.goto(path)
        text = page.content()
        for hidden in ("first look", "second look", site.trained, *site.measured):
            assert hidden not in text, (path, hidden)
    job = site.measured[0]
    for path in (
        f"/jobs/{job}",
        f"/jobs/{job}/gallery/1",
        f"/jobs/{job}/examples/1",
        f"/compare?jobs={','.join(site.measured)}",
        f"/plots/curve?jobs={job}",
        f"/submit?from={job}",
        f"/live?jobs={job}",
        f"/api/v1/report?jobs={job}",
        f"/api/v1/jobs/{job}/plots/curve",
    ):
        assert page.request.get(f"{site.url}{path}").status == 404, path
