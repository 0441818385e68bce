"""What a page keeps when it is loaded anew, and what a browser must not restore."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open, Site, evaluation, small_study, training

pytestmark = pytest.mark.slow


def low_contrasts(page: Page) -> list[str]:
    options = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
    found = Axe().run(page, options=options).response["violations"]
    return [node["html"][:150] for one in found for node in one["nodes"]]


def test_a_job_that_ends_leaves_its_reader_alone(open_page: Open, site: Site) -> None:
    client = site.clients["a"]
    job = client.submit(training("read to its end", epochs=2000)).id
    page = open_page(f"/jobs/{job}")
    page.evaluate("window.first = true")
    summary = page.locator("#made ~ details > summary").first
    summary.click()
    client.cancel(job)
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    expect(page.locator(".state.canceled")).to_have_count(1)
    assert page.evaluate("window.first"), "the page is the same"
    assert summary.evaluate("(one) => one.parentElement.open && one === document.activeElement")


def test_a_study_that_ends_keeps_what_is_typed(open_page: Open, site: Site) -> None:
    client = site.clients["a"]
    study = client.submit_study({**small_study(), "name": "typed in"}).id
    page = open_page(f"/studies/{study}")
    page.evaluate("window.first = true")
    page.locator("summary:has(#runs)").click()
    seeds = page.get_by_label("More seeds")
    seeds.fill("7 8")
    client.cancel_study(study)
    expect(page.locator("main .state.canceled").first).to_be_visible()
    expect(page.get_by_text("Delete", exact=True)).to_be_visible()
    assert page.evaluate("window.first"), "the page is the same"
    expect(seeds).to_have_value("7 8")
    expect(seeds).to_be_focused()
    assert not page.locator("details:has(#runs)").evaluate("(one) => one.open")


WIDE = """() => [...document.querySelectorAll(".scroll")]
    .filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.ariaLabel)"""


def test_long_names_and_stages_stay_within_the_window(open_page: Open, site: Site) -> None:
    client = site.clients["a"]
    name = "w" * 90 + ", seed 7, training"
    clean = {**evaluation(name), "evaluations": [{"name": "autoattack", "params": {"epsilon": "1/255"}}]}
    other = {**evaluation(name.upper()), "seed": 1}
    first, second = (client.submit({**spec, "tags": ["t" * 40, "second"]}).id for spec in (clean, other))
    for job in (first, second):
        client.wait(job, timeout_seconds=180)
    page = open_page("/")
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        for path in ("/jobs", f"/jobs/{first}", f"/compare?jobs={first},{second}"):
            page.goto(path)
            page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            assert page.evaluate(WIDE) == [], (path, width)
    page.goto("/jobs")
    link = page.locator(f"a[href='/jobs/{first}']")
    expect(link).to_contain_text(", seed 7, training")
    expect(link).to_have_attribute("title", name)
    for job in (first, second):
        client.delete(job)


def test_a_refused_form_has_the_focus_on_its_problems(open_page: Open) -> None:
    page = open_page("/submit?preset=quick")
    page.locator("#f-limit").fill("-3")
    page.get_by_role("button", name="Submit", exact=True).click()
    problems = page.locator("#problems.panel")
    expect(problems).to_contain_text("limit")
    expect(problems).to_be_focused()
    page.goto("/designs#new")
    page.locator("#spec").fill("{}")
    page.locator("form[action='/designs#problems'] button").last.click()
    expect(problems).to_be_focused()


@pytest.mark.parametrize("dark", [False, True])
def test_the_viewer_of_the_api_follows_the_colour_scheme(open_page: Open, dark: bool) -> None:
    page = open_page("/docs", dark=dark)
    expect(page.locator(".opblock-summary").first).to_be_visible()
    expect(page.locator("html.dark-mode")).to_have_count(1 if dark else 0)
    assert low_contrasts(page) == []


@pytest.mark.parametrize("path", ["/jobs", "/leaderboard", "/catalog"])
def test_filters_say_what_is_shown_after_a_step_back(open_page: Open, path: str) -> None:
    page = open_page(path)
    select = page.locator("form[method=get] select").first
    value = select.locator("option").last.get_attribute("value") or select.locator("option").last.inner_text()
    select.select_option(value)
    select.locator("xpath=ancestor::form").evaluate("(form) => form.requestSubmit()")
    page.wait_for_url(f"**{path}?*")
    page.go_back()
    page.wait_for_url(f"**{path}")
    expect(select).to_have_value("")
