"""The catalog's pages: filters, and every component with its parameters, rules, example and relations."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from assay.service.app import create_app
from assay.service.catalog.catalog import KINDS, load
from assay.service.contract.warning_codes import warning_meanings
from assay.service.settings import Settings
from assay.service.store.store import Store
from tests.service.conftest import BASE_URL, running

HTML = {"Accept": "text/html"}


def page(api: httpx.Client, path: str, status: int = 200) -> str:
    answer = api.get(path, headers=HTML)
    assert answer.status_code == status, answer.text
    return answer.text


@pytest.fixture
def whole(settings: Settings, app_store: Store) -> Iterator[httpx.Client]:
    """The service with all of Assay's components."""
    app = create_app(settings, store=app_store, catalog=load())
    with running(app) as transport, httpx.Client(transport=transport, base_url=BASE_URL) as client:
        yield client


def test_components_are_filtered_by_kind_task_and_words(api: httpx.Client) -> None:
    everything = page(api, "/catalog")
    assert "/catalog/model/tiny_vit" in everything
    assert "/catalog/attack/pgd" in everything
    assert "/catalog/model/tiny_vit" not in page(api, "/catalog?kind=attack")
    assert "/catalog/attack/pgd" in page(api, "/catalog?search=PGD&task=classification")
    assert "No component matches" in page(api, "/catalog?search=nothing%20like%20it")
    assert "did you mean <code>attack</code>" in page(api, "/catalog?kind=atack", 422)
    assert "did you mean <code>classification</code>" in page(api, "/catalog?task=clasification", 422)
    page(api, "/catalog?sort=name", 422)


def test_an_unknown_component_is_an_error_page(api: httpx.Client) -> None:
    assert "did you mean <code>tiny_vit</code>" in page(api, "/catalog/model/tiny_vitt", 404)
    page(api, "/catalog/modell/tiny_vit", 404)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("part", [slice(0, 1), pytest.param(slice(1, None), marks=pytest.mark.slow)])
def test_the_page_of_every_component_opens(whole: httpx.Client, kind: str, part: slice) -> None:
    for entry in load().list(kind)[part]:
        text = page(whole, f"/catalog/{entry.kind}/{entry.name}")
        assert f"/submit?example={entry.kind}/{entry.name}" in text
        for name in entry.parameters["properties"]:
            assert f"<code>{name}</code>" in text
        assert ("Definition" in text) == (entry.formula is not None)
        assert "<dt>Paper</dt>" in text


def test_a_component_says_what_it_is_and_goes_with(whole: httpx.Client) -> None:
    text = page(whole, "/catalog/attention/rpc")
    for words in (
        "shrink(K - L + Y/mu, tau)",
        "NeurIPS 2024",
        "an integer from 1 to 1000",
        "/catalog/model/vit",
    ):
        assert words in text
    text = page(whole, "/catalog/attack/pgd")
    for words in ("white box, iterative", "eot needs backend", "1/255", "/catalog/suite/quick"):
        assert words in text
    assert "/catalog/evaluation/corruptions" in page(whole, "/catalog/corruption/fog")
    assert "imagenet-a" in page(whole, "/catalog/data/imagenet_a")
    text = page(whole, "/catalog/suite/quick")
    assert "/catalog/attack/pgd" in text
    text = page(whole, "/catalog/task/control")
    assert "<dd>channels: numbers of an observation, classes: actions, length: steps</dd>" in text
    assert "{&#34;" not in text.partition("<h2>Example")[0], "facts are words, not JSON"


def test_an_example_opens_in_the_form(whole: httpx.Client) -> None:
    text = page(whole, "/submit?example=attention/rpc")
    assert "<option selected>rpc</option>" in text
    assert 'id="f-model.params.attention.params.iterations"' in text
    assert "about" in text.split('id="cost"')[1].split("</section>")[0]


def test_warnings_are_explained_under_their_codes(api: httpx.Client) -> None:
    text = page(api, "/warnings")
    for one in warning_meanings():
        assert f'<h3 id="{one.code}">' in text
    assert "<code>execution.compile</code>" in text
    assert "`" not in text
    assert 'href="/warnings"' in page(api, "/catalog")
