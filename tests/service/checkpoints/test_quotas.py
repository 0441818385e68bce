"""Quota of a tenant's uploads, paged lists, and uploads that cannot finish."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from assay.service.settings import Settings
from assay.service.store.store import Store
from tests.support.tensors import tensor_file

PATH = "/api/v1/checkpoints"
FILE = tensor_file()
OTHER = tensor_file({"a": (1,)})


def upload(api: httpx.Client, name: str = "ours", content: Any = FILE, **options: Any) -> httpx.Response:
    return api.post(PATH, params={"name": name, "model": "tiny_vit"}, content=content, **options)


def files(settings: Settings) -> int:
    return sum(path.is_file() for path in settings.artifacts.rglob("*"))


def in_parts() -> Iterator[bytes]:
    yield from (FILE[:50], FILE[50:])


def test_a_tenant_keeps_so_many(app_store: Store, settings: Settings, serve: Callable[..., Any]) -> None:
    with serve(settings.model_copy(update={"max_checkpoints": 2}), app_store) as api:
        assert [upload(api, name).status_code for name in ("a", "b")] == [202, 202]
        answer = upload(api, "c")
        assert (answer.status_code, answer.json()["error"]["type"]) == (409, "invalid_state")
        assert "there are 2 checkpoints, at most 2 may be kept" in answer.json()["error"]["message"]
        assert upload(api, "a").status_code == 200, "the same again takes no room"
        assert files(settings) == 2
        assert api.delete(f"{PATH}/a").status_code == 204
        assert upload(api, "c").status_code == 202


def test_a_tenant_keeps_so_many_bytes(
    app_store: Store, settings: Settings, serve: Callable[..., Any]
) -> None:
    room = 2 * len(FILE) - 1
    with serve(settings.model_copy(update={"max_checkpoints_bytes": room}), app_store) as api:
        assert upload(api, "a").status_code == 202
        answer = upload(api, "b")
        assert (answer.status_code, answer.json()["error"]["type"]) == (413, "too_large")
        numbers = (
            f"has {len(FILE)} bytes; the 1 checkpoints that are kept have {len(FILE)} of {room}, so"
            f" {room - len(FILE)} are left"
        )
        assert numbers in answer.json()["error"]["message"]
        streamed = upload(api, "b", in_parts())
        assert (streamed.status_code, files(settings)) == (413, 1), "nothing was declared, and it was cut off"
        assert upload(api, "a").status_code == 200
        assert upload(api, "a", OTHER).status_code == 409


def test_quotas_are_each_tenants_own(app_store: Store, settings: Settings, serve: Callable[..., Any]) -> None:
    def key(tenant: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {app_store.keys.create('submit', ['submit'], tenant=tenant)[1]}"}

    tight = settings.model_copy(update={"require_keys": True, "max_checkpoints": 1})
    with serve(tight, app_store) as api:
        for headers in (key("me"), key("them")):
            assert upload(api, "a", headers=headers).status_code == 202
            assert upload(api, "b", headers=headers).status_code == 409


def test_lists_come_in_pages_by_name(api: httpx.Client) -> None:
    names = ["a", "A.b", "b-1", "c", "d_"]
    for name in reversed(names):
        upload(api, name)
    found: list[str] = []
    cursor: str | None = None
    pages = 0
    while True:
        params = {"limit": 2} | ({} if cursor is None else {"cursor": cursor})
        page = api.get(PATH, params=params).json()
        found += [item["name"] for item in page["items"]]
        pages, cursor = pages + 1, page["next_cursor"]
        if cursor is None:
            break
    assert (sorted(found), len(found), pages) == (sorted(names), 5, 3)
    assert found == [item["name"] for item in api.get(PATH).json()["items"]]


@pytest.mark.parametrize(
    "params", [{"limit": 0}, {"limit": 201}, {"cursor": "x"}, {"cursor": "Li4v"}, {"page": 2}]
)
def test_pages_that_are_none_are_refused(api: httpx.Client, params: dict[str, Any]) -> None:
    answer = api.get(PATH, params=params)
    assert answer.status_code == 422
    assert answer.json()["error"]["details"][0]["loc"] == ["query", *params]


def test_of_two_files_under_one_name_at_once_one_is_kept(api: httpx.Client, settings: Settings) -> None:
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda content: upload(api, "ours", content), (FILE, OTHER)))
    assert sorted(answer.status_code for answer in answers) == [202, 409]
    kept = next(answer.json()["sha256"] for answer in answers if answer.status_code == 202)
    assert api.get(f"{PATH}/ours").json()["sha256"] == kept
    assert files(settings) == 1


def test_a_disk_that_fills_up_is_a_503_and_leaves_nothing(
    api: httpx.Client, app_store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("assay.service.api.upload_file.os.fsync", full)
    answer = upload(api)
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "unavailable")
    assert "No space left on device" in answer.json()["error"]["message"]
    assert (files(settings), app_store.checkpoints.page(tenant=None)) == (0, ([], None))
