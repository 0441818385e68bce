"""What a browser loads at the first look at a page, in an empty profile: at most 300 kB."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Open, Site
from tests.browser.test_dashboard import pages

pytestmark = pytest.mark.slow

MOST = 300_000
Loaded = dict[str, float]


def weighed(page: Page) -> Callable[[str], tuple[Loaded, dict[str, str]]]:
    """Loads a path without the browser's cache: bytes as they were sent, and the addresses, by request."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    sizes: Loaded = {}
    addresses: dict[str, str] = {}

    def note(event: dict[str, object]) -> None:
        sizes[str(event["requestId"])] = float(str(event["encodedDataLength"]))

    def name(event: dict[str, dict[str, str]]) -> None:
        addresses[str(event["requestId"])] = event["request"]["url"]

    session.on("Network.loadingFinished", note)
    session.on("Network.requestWillBeSent", name)

    def load(path: str) -> tuple[Loaded, dict[str, str]]:
        sizes.clear()
        addresses.clear()
        page.goto(path, wait_until="load")
        page.wait_for_timeout(500)
        return dict(sizes), dict(addresses)

    return load


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_a_page_is_at_most_300_kb_at_first_load(open_page: Open, site: Site, size: str) -> None:
    load = weighed(open_page("/", size=size))
    for path in pages(site):
        sizes, addresses = load(path)
        assert any(path in address for address in addresses.values()), "the page itself is counted"
        assert any(".css" in address for address in addresses.values()), "and its style"
        total = sum(sizes.values())
        largest = sorted(((sizes[one], addresses.get(one)) for one in sizes), reverse=True)[:3]
        assert 1000 < total <= MOST, (path, total, largest)
