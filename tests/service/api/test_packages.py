"""Which packages a submission may ask for: beside the service, or on a worker that is online."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from assay.service.api import deps
from assay.service.store.store import Store
from assay.service.submission.packages import HasPackage


@pytest.fixture
def store(app_store: Store) -> Store:
    return app_store


def known(store: Store, here: HasPackage | None) -> HasPackage | None:
    request: Any = SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace(has_package=here)))
    scoped: Any = store
    return asyncio.run(deps._has_package(request, scoped))


def test_a_worker_in_another_environment_adds_its_packages(store: Store) -> None:
    found = known(store, lambda name: name == "cleverhans")
    assert found is not None
    assert [found(name) for name in ("cleverhans", "textattack")] == [True, False]
    store.workers.beat("a", "host", ["cpu"], 1, {"libraries": {"textattack": "0.3.11"}})
    assert [found(name) for name in ("cleverhans", "textattack", "other")] == [True, True, False]


def test_a_service_whose_workers_are_elsewhere_looks_for_none(store: Store) -> None:
    store.workers.beat("a", "host", ["cpu"], 1, {"libraries": {"textattack": "0.3.11"}})
    assert known(store, None) is None
