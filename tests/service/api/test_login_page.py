"""The login page: when a browser gets it, and that nothing in it leads or runs elsewhere."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from typing import Any

import pytest

from assay.service.api.login_page import HOME, login_response, own_path, path_of, wanted
from assay.service.contract.errors import TooManyRequests
from tests.support.pages import Tags

HOSTILE = "\"><script>alert(1)</script><input name='next' value='$path ${message}"


def scope(path: str = "/", query: bytes = b"", method: str = "GET", **headers: str) -> Any:
    given = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http", "method": method, "path": path, "query_string": query, "headers": given}


@pytest.mark.parametrize(
    ("method", "accept", "page"),
    [
        ("GET", "text/html,application/xhtml+xml,*/*;q=0.8", True),
        ("GET", "Text/HTML", True),
        ("GET", "*/*", False),
        ("GET", "application/json", False),
        ("POST", "text/html", False),
        ("HEAD", "text/html", False),
    ],
)
def test_browsers_that_open_a_page_get_it(method: str, accept: str, page: bool) -> None:
    assert wanted(scope(method=method, accept=accept)) is page
    assert not wanted(scope(method=method))


@pytest.mark.parametrize(
    "path", ["/", "/jobs/01jd?page=2&a=%3C", "/a//b", "/#x", "/~a;b@c", "/" + "x" * 1000]
)
def test_the_form_leads_back_to_own_paths(path: str) -> None:
    assert own_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "jobs",
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "/a\\b",
        "http://evil.example/",
        "javascript:alert(1)",
        "/a b",
        "/a\nSet-Cookie: x=y",
        "/\x00",
        "/\x7f",
        "/é",
        "/\u202e",
        "/" + "x" * 1001,
    ],
)
def test_every_other_path_becomes_the_overview(path: str) -> None:
    assert own_path(path) == HOME == "/"


def test_the_path_of_a_request_has_its_query() -> None:
    assert path_of(scope("/jobs", b"tag=a&page=2")) == "/jobs?tag=a&page=2"
    assert path_of(scope("/jobs")) == "/jobs"
    assert path_of(scope("/jobs", b"tag=\xff")) == "/"
    assert path_of(scope("//evil", b"a=1")) == "/"


def shown(message: str, path: str, limited: TooManyRequests | None = None) -> tuple[Any, str]:
    answer = login_response(message, path, limited)
    return answer, bytes(answer.body).decode()


def test_texts_are_shown_and_do_nothing() -> None:
    _, text = shown(HOSTILE, "/jobs")
    tags = Tags(text).found
    assert not [tag for tag, _ in tags if tag in ("script", "img", "link", "iframe")]
    assert html.unescape(re.findall(r"<p>(.*?)</p>", text)[0]) == HOSTILE, "placeholders in it stay, too"
    _, text = shown("m", "/x?a=\"><script>'&b=$message")
    fields = [attributes for tag, attributes in Tags(text).found if tag == "input"]
    assert fields[1]["value"] == "/x?a=\"><script>'&b=$message"
    assert len(fields) == 2
    (form,) = [attributes for tag, attributes in Tags(text).found if tag == "form"]
    assert (form["action"], form["method"]) == ("/api/v1/session", "post"), "a key never stands in an address"


def test_the_policy_allows_the_pages_own_style_alone() -> None:
    answer, text = shown("m", "/")
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "style-src": f"'sha256-{digest}'",
        "form-action": "'self'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
    }
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "same-origin"


def test_it_asks_for_a_key_and_after_too_many_for_patience() -> None:
    answer, _ = shown("m", "/")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    limited = TooManyRequests("too <b>many</b>", headers={"Retry-After": "7"})
    answer, text = shown("m", "//evil", limited)
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == str(int(-(-limited.retry_after // 1)))
    assert "www-authenticate" not in answer.headers
    assert "too &lt;b&gt;many&lt;/b&gt;" in text
    assert 'name="next" value="/"' in text
