"""A real service with keys and real small jobs, and a headless Chromium that looks at it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from assay.service.client import AssayClient
from assay.service.store.store import open_store
from tests.e2e.running import RunningService

DIGITS = {"name": "digits"}
SHAPE = {"image_size": 16, "patch_size": 4, "depth": 1, "width": 24, "heads": 2}
INSTALL = "apt-get install chromium"
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
Open = Callable[..., Page]


@dataclass(frozen=True)
class Site:
    """A service and what is in it.

    Attributes:
        url: Its address.
        keys: Texts of keys with the scope `submit`, by tenant.
        trained: Id of a training job of the tenant `a`.
        measured: Ids of two evaluations of it.
        clients: Clients by tenant.
    """

    url: str
    keys: dict[str, str]
    trained: str
    measured: list[str]
    clients: dict[str, AssayClient]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    state = tmp_path_factory.mktemp("browser") / "state"
    with open_store(f"sqlite:///{state / 'assay.sqlite'}") as store:
        keys = {name: store.keys.create(f"key of {name}", ["submit"], tenant=name)[1] for name in ("a", "b")}
    service = RunningService(state, ASSAY_REQUIRE_KEYS="true", ASSAY_WORKERS="1")
    service.key = keys["a"]
    service.start()
    try:
        url = service.client.url
        clients = {name: AssayClient(url, key) for name, key in keys.items()}
        trained, measured = jobs(clients["a"])
        yield Site(url, keys, trained, measured, clients)
    finally:
        service.close()


def jobs(client: AssayClient) -> tuple[str, list[str]]:
    recipe = {"name": "small_vit", "params": {"epochs": 2}}
    model = {"name": "symvit", "params": SHAPE}
    trained = client.submit(
        {"kind": "train", "name": "training", "model": model, "data": DIGITS, "recipe": recipe}
    ).id
    spec: dict[str, Any] = {
        "kind": "evaluate",
        "limit": 40,
        "tags": ["pictured"],
        "model": {"name": "symvit", "weights": {"job": trained}},
        "data": DIGITS,
        "evaluations": [{"name": "clean"}, {"name": "fgsm", "params": {"epsilon": "8/255"}}],
    }
    measured = [client.submit({**spec, "name": name}).id for name in ("first look", "second look")]
    for job in (trained, *measured):
        assert client.wait(job, timeout_seconds=120).state.value == "succeeded"
    return trained, measured


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail(f"there is no Chromium: {INSTALL}")
        pytest.skip(f"these need Chromium: {INSTALL}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser, site: Site) -> Iterator[Open]:
    """Opens a page as a tenant, logged in; fails the test for errors in the console and foreign requests."""
    contexts: list[BrowserContext] = []
    wrong: list[str] = []

    def opened(
        path: str = "/",
        *,
        tenant: str | None = "a",
        size: str = "desktop",
        dark: bool = False,
        scripts: bool = True,
    ) -> Page:
        width, height = SIZES[size]
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
            base_url=site.url,
            accept_downloads=True,
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: wrong.extend([request.url] * (not own(request.url, site.url))))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        if tenant is not None:
            page.goto("/login")
            page.get_by_label("API key").fill(site.keys[tenant])
            page.get_by_role("button", name="Log in").click()
            page.wait_for_url(f"{site.url}/")
        page.on("console", lambda said: wrong.extend([said.text] * is_defect(said)))
        page.goto(path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def is_defect(said: ConsoleMessage) -> bool:
    """Whether it is an error, other than that of a page that needs a login."""
    return said.type == "error" and "status of 401" not in said.text


def own(address: str, url: str) -> bool:
    return address.startswith((url, "data:", "blob:"))


@pytest.fixture
def downloads(tmp_path: Path) -> Path:
    return tmp_path
