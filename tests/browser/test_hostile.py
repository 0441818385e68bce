"""Forms of another tenant and of another origin, and hostile addresses, against the running service."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, Route

from tests.browser.conftest import Open, Site

pytestmark = pytest.mark.slow

ELSEWHERE = "http://elsewhere.example"
SCRIPT = "<script>alert(1)</script>"
UNKNOWN = "0" * 26
BAD = (
    SCRIPT,
    '"><img src=x onerror=alert(1)>',
    "w" * 10_000,
    "\x00\x01\x1b[31m",
    "\r\nSet-Cookie: a=b",
    "\u202egnihtemos\ud7ff",
    "../../etc/passwd",
    "{{ 7 * 7 }}",
    "' OR 1=1 --",
    "-1",
    UNKNOWN,
    ",".join([UNKNOWN] * 3),
    "",
)
QUERIES = (
    "/?{}",
    "/jobs?search={}",
    "/jobs?state={}",
    "/jobs?tag={}",
    "/jobs?cursor={}",
    "/jobs?{}=1",
    "/compare?jobs={}",
    "/compare?job={}",
    "/compare?search={}",
    "/leaderboard?data={}",
    "/leaderboard?seed={}",
    "/leaderboard?examples={}",
    "/plots/curve?jobs={}",
    "/live?jobs={}",
    "/studies?cursor={}",
    "/submit?from={}",
    "/submit?weights={}",
    "/submit?preset={}",
    "/catalog?search={}",
    "/login?next={}",
)
PATHS = (
    "/{}",
    "/jobs/{}",
    "/jobs/{}/gallery/1",
    "/studies/{}",
    "/plots/{}",
    "/catalog/attack/{}",
    "/static/{}",
)
OF_JOB = ("/gallery/{}", "/examples/{}", "/examples/1/{}", "/pictures/{}", "?page={}")
ACTIONS = ("cancel", "retry", "delete")


def token(page: Page) -> str:
    page.goto("/jobs")
    found = page.locator("form.who input[name=csrf_token]").get_attribute("value")
    assert found
    return found


def seen(site: Site) -> Any:
    """What forms could change, as its owner sees it; jobs of the study may still run."""
    client = site.clients["a"]
    listed = [one.model_dump() for one in (client.job(job) for job in [*site.measured, site.canceled])]
    assert client.study(site.study).name == "two rates"
    return listed


def addresses(site: Site) -> list[str]:
    return [
        *(f"/jobs/{job}/{action}" for job in (*site.measured, site.canceled) for action in ACTIONS),
        *(f"/studies/{site.study}/{action}" for action in ("cancel", "retry", "seeds", "delete")),
    ]


def test_forms_of_another_tenant_change_nothing(open_page: Open, site: Site) -> None:
    page = open_page("/", tenant="b")
    form: dict[str, str | float | bool] = {"csrf_token": token(page)}
    before = seen(site)
    for address in addresses(site):
        answer = page.request.post(f"{site.url}{address}", form=form, headers={"Accept": "text/html"})
        assert answer.status == 404, (address, answer.status)
        assert not any(hidden in answer.text() for hidden in ("first look", "second look", "two rates"))
    assert seen(site) == before


def test_forms_of_another_origin_change_nothing(open_page: Open, site: Site) -> None:
    page = open_page("/")
    form: dict[str, str | float | bool] = {"csrf_token": token(page)}
    before = seen(site)
    for address in addresses(site):
        for origin in (ELSEWHERE, "null", f"{site.url}.example"):
            headers = {"Origin": origin, "Accept": "text/html"}
            answer = page.request.post(f"{site.url}{address}", form=form, headers=headers)
            assert answer.status == 403, (address, origin, answer.status)
        answer = page.request.post(f"{site.url}{address}", form={"csrf_token": "wrong"})
        assert answer.status == 403, (address, answer.status)
    assert seen(site) == before


def test_a_page_elsewhere_cannot_send_a_form(browser: Browser, site: Site) -> None:
    context = browser.new_context(base_url=site.url)
    page = context.new_page()
    page.goto("/login")
    page.get_by_label("API key").fill(site.keys["a"])
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{site.url}/")
    before = seen(site)
    value = token(page)
    form = f'<form method="post" action="{site.url}/jobs/{site.measured[0]}/delete">'

    def lure(route: Route) -> None:
        fields = f'<input name="csrf_token" value="{value}"><button>Win</button></form>'
        route.fulfill(content_type="text/html", body=form + fields)

    page.route(f"{ELSEWHERE}/**", lure)
    page.goto(f"{ELSEWHERE}/")
    with page.expect_response(re.compile("/delete$")) as answer:
        page.get_by_role("button", name="Win").click()
    assert answer.value.status in (401, 403)
    assert seen(site) == before
    context.close()


def test_hostile_addresses_are_refused_in_words(open_page: Open, site: Site) -> None:
    page = open_page("/")
    job = f"/jobs/{site.measured[0]}"
    forms = [*QUERIES, *PATHS, *(job + one for one in OF_JOB)]
    for form in forms:
        for bad in BAD:
            path = form.format(quote(bad, safe=""))
            answer = page.request.get(
                f"{site.url}{path}", headers={"Accept": "text/html"}, max_redirects=0, timeout=20_000
            )
            told = (path[:120], answer.status)
            assert answer.status < 500, told
            assert "set-cookie" not in answer.headers, told
            text = answer.text()
            for unescaped in (SCRIPT, "<img src=x", ">49<", "root:", "Traceback"):
                assert unescaped not in text, (told, unescaped)


def test_hostile_addresses_run_nothing_in_a_browser(open_page: Open, site: Site) -> None:
    page = open_page("/")
    script = quote(SCRIPT, safe="")
    for path in (
        f"/jobs?search={script}",
        f"/jobs?state={script}",
        f"/compare?jobs={script}",
        f"/compare?search={script}",
        f"/leaderboard?data={script}",
        f"/jobs/{script}",
        f"/{script}",
        f"/submit?from={script}",
        f"/catalog?search={script}",
        f"/jobs/{UNKNOWN}",
        f"/studies/{UNKNOWN}",
    ):
        page.goto(path)
        assert page.evaluate("document.querySelectorAll('script:not([src]), img[src=x]').length") == 0, path
    # Dialogs and errors fail in the fixture.
