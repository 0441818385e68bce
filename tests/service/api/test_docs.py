"""`/docs` works without a network, and runs nothing that was not shipped with the service."""

from __future__ import annotations

import re

import httpx
import pytest

from assay.service.api.openapi import ASSETS

POLICY_OF_SCRIPTS = re.compile(r"default-src 'self';(?!.*script-src)")


def addresses(page: str) -> list[str]:
    """URLs that a browser would fetch or follow from the page."""
    return re.findall(r"(?:src|href)\s*=\s*[\"']?([^\"' >]+)", page)


def test_the_page_names_no_other_host(api: httpx.Client) -> None:
    answer = api.get("/docs")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    found = addresses(answer.text)
    assert len(found) >= 5
    assert all(address.startswith("/") and not address.startswith("//") for address in found)
    start = api.get("/docs/start.js").text
    assert "://" not in answer.text + start
    assert "validatorUrl: null" in start


def test_everything_that_the_page_needs_is_served_here(api: httpx.Client) -> None:
    for address in addresses(api.get("/docs").text):
        assert api.get(address).status_code == 200, address
    document = re.findall(r'url: "([^"]+)"', api.get("/docs/start.js").text)
    assert [api.get(address).json()["info"]["title"] for address in document] == ["Assay"]


def test_the_page_runs_only_scripts_of_its_own(api: httpx.Client) -> None:
    answer = api.get("/docs")
    assert POLICY_OF_SCRIPTS.match(answer.headers["content-security-policy"])
    assert "unsafe-eval" not in answer.headers["content-security-policy"]
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", answer.text, flags=re.DOTALL)
    assert scripts == ["", ""], "the policy would stop a script inside the page"


@pytest.mark.costly
def test_the_files_are_those_of_swagger_ui_5(api: httpx.Client) -> None:
    # Swagger UI 4 cannot show OpenAPI 3.1, which is what we write.
    assert re.search(r'PACKAGE_VERSION:"5\.\d+\.\d+"', api.get("/docs/swagger-ui-bundle.js").text)
    assert api.get("/openapi.json").json()["openapi"].startswith("3.1")
    for name, media_type in ASSETS.items():
        answer = api.get(f"/docs/{name}")
        assert answer.headers["content-type"].startswith(media_type)
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["nope.js", "redoc.standalone.js", "..%2fcore.py", "%2e%2e/core.py"])
def test_other_files_are_not_found(api: httpx.Client, name: str) -> None:
    answer = api.get(f"/docs/{name}")
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found")


def test_the_page_links_to_the_dashboard(api: httpx.Client) -> None:
    assert '<a href="/">Dashboard</a>' in api.get("/docs").text
