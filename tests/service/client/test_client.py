"""What the client says of the service: its version and its catalog."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import httpx
import pytest

from assay.service.client import AssayClient
from assay.service.client import transport as transport_module
from assay.service.contract import errors
from assay.service.contract.warning_codes import warning_meanings


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module.time, "sleep", lambda seconds: None)


def test_the_version_is_of_this_checkout_and_names_the_code_of_the_workers(
    client: AssayClient, app_store: Any
) -> None:
    app_store.workers.beat("a", "host", ["cpu"], 1, identity="0123456789abcdef")
    app_store.workers.beat("b", "host", ["cpu"], 2, identity="0123456789abcdef")
    app_store.workers.beat("of an earlier version", "host", ["cpu"], 3)
    found = client.version()
    assert (found.name, found.version, found.api) == ("assay-robustness", version("assay-robustness"), "v1")
    assert found.identities == {"0123456789abcdef": 2}
    assert len(found.catalog) >= 16


def test_the_catalog_is_sent_once(transport: Any) -> None:
    statuses: list[int] = []

    class Watched(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            response: httpx.Response = transport.handle_request(request)
            statuses.append(response.status_code)
            return response

    with AssayClient(transport=Watched()) as client:
        first = client.catalog()
        first[0]["name"] = "changed by the caller"
        assert client.catalog("attack") == client.catalog("attack")
        assert client.catalog()[0]["name"] != first[0]["name"]
    assert statuses == [200, 200, 304, 304]


def test_catalog(client: AssayClient) -> None:
    assert "pgd" in [item["name"] for item in client.catalog("attack")]
    assert len(client.catalog()) > len(client.catalog("attack"))
    assert client.component("attack", "pgd")["kind"] == "attack"
    with pytest.raises(errors.NotFound) as caught:
        client.component("attack", "pdg")
    assert caught.value.details[0].nearest == "pgd"


def test_the_client_explains_warnings(client: AssayClient) -> None:
    assert client.warnings() == warning_meanings()
