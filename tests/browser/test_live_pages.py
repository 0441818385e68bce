"""What a page keeps when it is loaded anew, and what a browser must not restore."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open, Site, small_study, training

pytestmark = pytest.mark.slow


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
