"""A real service with keys and real small jobs, and a headless Chromium that looks at it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Response,
    expect,
    sync_playwright,
)

from assay.service.client import AssayClient
from assay.service.store.store import open_store
from tests.e2e.running import RunningService

DIGITS = {"name": "digits"}
SHAPE = {"image_size": 16, "patch_size": 4, "depth": 1, "width": 24, "heads": 2}
MODEL = {"name": "symvit", "params": SHAPE}
INSTALL = "apt-get install chromium"
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "\u202egnihtemos\u202c",
    "🙂" * 60,
    "w" * 200,
    "{{ 7 * 7 }} \x1b[31m",
)
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
Open = Callable[..., Page]
# Beside other tests a page may come late.
expect.set_options(timeout=60_000)


@dataclass(frozen=True)
class Site:
    """A service and what is in it.

    Attributes:
        url: Its address.
        keys: Texts of keys with the scope `submit`, by tenant.
        trained: Id of a training job of the tenant `a`.
        measured: Ids of two evaluations of it.
        canceled: Id of a long training of the same tenant that never ran.
        study: Id of a study of the same tenant with ended jobs: a page with open jobs loads itself again.
        hostile: Ids of ended jobs of the tenant `b` with the names HOSTILE.
        clients: Clients by tenant.
    """

    url: str
    keys: dict[str, str]
    trained: str
    measured: list[str]
    canceled: str
    study: str
    hostile: list[str]
    clients: dict[str, AssayClient]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    state = tmp_path_factory.mktemp("browser") / "state"
    with open_store(f"sqlite:///{state / 'assay.sqlite'}") as store:
        keys = {name: store.keys.create(f"key of {name}", ["submit"], tenant=name)[1] for name in ("a", "b")}
    service = RunningService(state, ASSAY_REQUIRE_KEYS="true", ASSAY_WORKERS="1")
    service.key = keys["a"]
    with ExitStack() as stack:
        service.start()
        stack.callback(service.close)
        url = service.client.url
        clients = {name: stack.enter_context(AssayClient(url, key)) for name, key in keys.items()}
        trained, measured = jobs(clients["a"])
        canceled = clients["a"].submit(training("long", epochs=2000)).id
        clients["a"].cancel(canceled)
        hostile = [clients["b"].submit(evaluation(name)).id for name in HOSTILE]
        study = clients["a"].submit_study(small_study()).id
        clients["a"].wait_study(study, poll_seconds=0.2, timeout_seconds=180)
        for job in hostile:
            clients["b"].wait(job, timeout_seconds=180)
        yield Site(url, keys, trained, measured, canceled, study, hostile, clients)


def training(name: str, epochs: int) -> dict[str, Any]:
    """Spec of a training; an epoch takes less than a second."""
    recipe = {"name": "small_vit", "params": {"epochs": epochs}}
    return {"kind": "train", "name": name, "model": MODEL, "data": DIGITS, "recipe": recipe}


def evaluation(name: str) -> dict[str, Any]:
    """Spec of the shortest evaluation, of random weights."""
    clean = [{"name": "clean"}]
    spec = {"kind": "evaluate", "name": name, "model": MODEL, "data": DIGITS, "evaluations": clean}
    return {**spec, "limit": 20, "tags": [name[:60]]}


def small_study() -> dict[str, Any]:
    """Spec of a study of two trainings and two evaluations."""
    return {
        "kind": "study",
        "name": "two rates",
        "arms": [
            {"name": "slow", "model": MODEL},
            {"name": "fast", "model": MODEL, "recipe": {"name": "small_vit", "params": {"epochs": 1}}},
        ],
        "data": DIGITS,
        "recipe": {"name": "small_vit", "params": {"epochs": 2}},
        "seeds": 1,
        "limit": 20,
        "evaluations": [{"name": "clean"}],
    }


def jobs(client: AssayClient) -> tuple[str, list[str]]:
    """A training, and two evaluations of it, which have ended."""
    trained = client.submit(training("training", epochs=2)).id
    spec: dict[str, Any] = {
        "kind": "evaluate",
        "limit": 40,
        "tags": ["pictured"],
        "model": {"name": "symvit", "weights": {"job": trained}},
        "data": DIGITS,
        "evaluations": [
            {"name": "clean"},
            {"name": "fgsm", "params": {"epsilon": "8/255"}},
            {"name": "corruptions", "params": {"corruptions": ["fog", "contrast"], "severities": [1, 3]}},
        ],
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
    """Opens a page as a tenant, logged in.

    Errors in the console, dialogs, requests to other hosts and parts of pages that do not load fail the test.
    """
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
        page.on("response", lambda got: wrong.extend([f"{got.status} {got.url}"] * is_lost(got)))
        page.on("console", lambda said: wrong.extend([said.text] * is_defect(said)))
        if tenant is not None:
            page.goto("/login")
            page.get_by_label("API key").fill(site.keys[tenant])
            page.get_by_role("button", name="Log in").click()
            page.wait_for_url(f"{site.url}/")
        page.goto(path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def is_defect(said: ConsoleMessage) -> bool:
    """Whether it is an error, other than of the network, which `is_lost` judges."""
    return said.type == "error" and not said.text.startswith("Failed to load resource")


def is_lost(got: Response) -> bool:
    """Whether it is the error of a part of a page; pages that are errors, like the login, may be wanted."""
    return got.status >= 400 and got.request.resource_type != "document"


def own(address: str, url: str) -> bool:
    """Whether it is an address of the service, or of a file that the test saved."""
    return address.startswith((f"{url}/", "data:", "blob:", "file:"))
