"""Pages as browsers get them."""

from __future__ import annotations

from html.parser import HTMLParser

import httpx

PAGE = {"Accept": "text/html"}

# What may be in a name.
NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}",
    "\u202egnihtemos",
    "\x00\x1b[31m",
    "🙂" * 100,
    "x" * 1000,
)


class Tags(HTMLParser):
    """Attributes of every tag of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def page(api: httpx.Client, path: str, status: int = 200) -> str:
    answer = api.get(path, headers=PAGE)
    assert answer.status_code == status, answer.text[:500]
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer.text
