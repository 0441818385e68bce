"""The worker container's health check: exit code 0 for a live supervisor on this machine, else 1."""

from __future__ import annotations

import pytest

from assay.service.store.fleet import lease_owner
from assay.service.store.store import Store, open_store
from assay.workers import health
from tests.support.servers import free_port


@pytest.fixture
def store(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("ASSAY_DATABASE_URL", database_url)
    with open_store(database_url, migrate=False) as opened:
        yield opened


def test_healthy_while_a_supervisor_of_this_machine_is_alive(store: Store) -> None:
    assert health.main() == 1
    store.workers.beat("elsewhere", "another-machine", ["cpu"], 1)
    assert health.main() == 1
    store.workers.beat("here", lease_owner.host(), ["cuda", "cpu"], 1)
    assert health.main() == 0
    store.workers.gone("here")
    assert health.main() == 1


def test_unhealthy_without_a_database(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASSAY_DATABASE_URL", f"postgresql+psycopg://assay@127.0.0.1:{free_port()}/assay")
    assert health.main() == 1
    assert "database does not answer" in capsys.readouterr().err


def test_wrong_settings_are_not_quoted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASSAY_MODE", "distributed")
    monkeypatch.setenv("ASSAY_DATABASE_URL", "postgresql+psycopg://assay:short@db/assay")
    assert health.main() == 1
    assert "short" not in capsys.readouterr().err
