"""The frame of every page: its policy, its static files, compression, and pages of errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service import features
from assay.service.dashboard import catalog, frame
from tests.support.pages import NAMES, PAGE, Tags, page

Make = Callable[..., dict[str, Any]]


PAGES = ("/", "/jobs", *(module.NAVIGATION[0] for module in features.modules("pages") if module.NAVIGATION))


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_a_strict_policy_and_nothing_inline(api: httpx.Client, path: str) -> None:
    answer = api.get(path, headers=PAGE)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag, attributes in Tags(answer.text).found:
        assert "style" not in attributes, tag
        assert not [name for name in attributes if name.startswith("on")], tag
        if tag == "script":
            assert (attributes.get("src") or "").startswith("/static/")
        address = attributes.get("href") or attributes.get("src") or ""
        assert not address.startswith(("http:", "https:", "//", "javascript:")), address


@pytest.mark.parametrize("path", [*PAGES, "/submit", "/designs"])
def test_a_page_tells_no_browser_to_send_requests(api: httpx.Client, path: str) -> None:
    prose = re.sub(r"<pre.*?</pre>|<[^>]+>", " ", page(api, path), flags=re.DOTALL)
    assert not re.search(r"\b(POST|GET|PATCH|DELETE) /|/api/v1", prose)


def test_a_browser_is_told_of_a_defect_by_a_page(
    api: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(catalog, "_searched", broken)
    answer = api.get("/catalog?search=pgd", headers=PAGE)
    assert answer.status_code == 500
    assert "<h1>Internal</h1>" in answer.text
    assert "secret" not in answer.text
    assert "ZeroDivisionError" in caplog.text
    assert api.get("/catalog?search=pgd").json()["error"]["type"] == "internal", "a client without Accept"
    monkeypatch.setattr(frame, "navigation", broken)
    assert api.get("/catalog?search=pgd", headers=PAGE).json()["error"]["type"] == "internal", (
        "without its page"
    )


def test_the_page_of_a_feature_is_listed_where_it_says() -> None:
    paths = [path for path, _ in frame.navigation()]
    for module in features.modules("pages"):
        if module.NAVIGATION is None:
            continue
        following = paths[paths.index(module.NAVIGATION[0]) + 1 :]
        assert module.BEFORE in following or module.BEFORE is None


@pytest.mark.parametrize("name", NAMES)
def test_no_name_breaks_a_page(api: httpx.Client, train_body: Make, name: str) -> None:
    name = name.replace("\x00", "")
    assert api.post("/api/v1/jobs", json=train_body(name=name[:200], tags=[name[:60]])).status_code == 201
    for path in ("/", "/jobs"):
        text = page(api, path)
        assert len([tag for tag, _ in Tags(text).found if tag == "script"]) == 1
        assert "<img src=x" not in text
        assert ">49<" not in text


def test_what_is_not_there_is_a_page_for_a_browser_and_json_for_a_program(api: httpx.Client) -> None:
    assert "no route" in page(api, "/nothing", 404)
    assert api.get("/nothing").json()["error"]["type"] == "not_found"
    assert api.get("/api/v1/nothing", headers=PAGE).json()["error"]["type"] == "not_found"


def test_static_files_are_kept_by_browsers_and_nothing_else_is_served(api: httpx.Client) -> None:
    text = page(api, "/")
    addresses = [a["href"] for tag, a in Tags(text).found if tag == "link"]
    assert len(addresses) == 2
    for address in addresses:
        answer = api.get(str(address))
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    for name in ("..%2Fframe.py", "frame.py", "%00", "nothing.css", "%2e%2e"):
        assert api.get(f"/static/{name}").status_code == 404


def test_pages_are_compressed_for_those_who_take_it(api: httpx.Client) -> None:
    assert api.get("/", headers={**PAGE, "Accept-Encoding": "gzip"}).headers["content-encoding"] == "gzip"
    assert "content-encoding" not in api.get("/", headers={**PAGE, "Accept-Encoding": "br"}).headers


def test_templates_are_compiled_before_the_first_page(api: httpx.Client) -> None:
    environment = frame._environment()
    assert environment.cache is not None
    known = {key[1] for key in environment.cache}
    assert known >= set(environment.list_templates())
