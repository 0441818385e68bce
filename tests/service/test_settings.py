from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_settings import SettingsError

from assay.service.settings import Settings
from assay.service.store.connections import Connections, is_loopback, unknown_variables, wrong_settings


def test_defaults_are_the_embedded_mode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings()
    assert settings.state == tmp_path / "assay-state"
    assert settings.database == f"sqlite:///{tmp_path}/assay-state/assay.sqlite"
    assert settings.artifacts == tmp_path / "assay-state" / "artifacts"
    assert (settings.host, settings.port, settings.workers) == ("127.0.0.1", 8000, 1)


def test_the_environment_overrides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ASSAY_STATE", str(tmp_path))
    monkeypatch.setenv("ASSAY_PORT", "9000")
    monkeypatch.setenv("ASSAY_DATABASE_URL", "postgresql+psycopg://me@db/assay")
    monkeypatch.setenv("ASSAY_SOMETHING_ELSE", "x")
    settings = Settings()
    assert (settings.state, settings.port) == (tmp_path, 9000)
    assert settings.database == "postgresql+psycopg://me@db/assay"


def test_a_catalog_that_cannot_be_used_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ASSAY_CATALOG", "")
    assert Settings().catalog is None
    file = tmp_path / "extra.json"
    monkeypatch.setenv("ASSAY_CATALOG", str(file))
    with pytest.raises(ValidationError) as caught:
        Settings()
    (line,) = wrong_settings(caught.value)
    assert line.startswith(
        f"ASSAY_CATALOG: cannot read {file}: No such file or directory; write it on a worker"
    )
    file.write_text('{"components": [], "left_out": {}}')
    assert Settings().catalog == file


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", "::ffff:127.0.0.1"])
def test_hosts_that_others_can_reach_need_keys(host: str) -> None:
    assert Settings(host=host).keys_required


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1", "LOCALHOST"])
def test_loopback_hosts_need_none(host: str) -> None:
    assert is_loopback(host)
    assert not Settings(host=host).keys_required
    assert Settings(host=host, require_keys=True).keys_required


def test_an_empty_host_is_refused() -> None:
    with pytest.raises(ValueError, match="host"):
        Settings(host="")


def test_the_distributed_mode_needs_keys_on_loopback_too() -> None:
    settings = Settings(
        mode="distributed",
        database_url="postgresql+psycopg://me@127.0.0.1/assay",
        redis_url="redis://127.0.0.1:6379/0",
    )
    assert settings.keys_required


@pytest.mark.parametrize("hosts", [["*"], ["*.example.org"], [""]])
def test_wildcards_among_the_allowed_hosts_are_refused(hosts: list[str]) -> None:
    with pytest.raises(ValueError, match="allowed_hosts"):
        Settings(allowed_hosts=hosts)


@pytest.mark.parametrize("digest", ["", "b2", "B2" * 8, "b2" * 32])
def test_allowed_identities_are_digests(digest: str) -> None:
    with pytest.raises(ValueError, match="allowed: 16 hexadecimal digits, as `assay workers list` shows"):
        Settings(allowed_identities=["b2" * 8, digest])


@pytest.mark.parametrize(("name", "value"), [("port", 70000), ("workers", -1), ("max_json_depth", 0)])
def test_out_of_range_is_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=name):
        Settings(**{name: value})  # type: ignore[arg-type]


def test_every_wrong_setting_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_PORT", "70000")
    monkeypatch.setenv("ASSAY_HOST", "")
    with pytest.raises(ValidationError) as caught:
        Settings()
    host, port = wrong_settings(caught.value)
    assert port == "ASSAY_PORT: must be at most 65535 (given '70000')"
    assert host.startswith("ASSAY_HOST: ")


def test_a_list_that_is_no_json_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_ALLOWED_HOSTS", "localhost,example.org")
    with pytest.raises(SettingsError) as caught:
        Settings()
    assert wrong_settings(caught.value) == ["ASSAY_ALLOWED_HOSTS: must be a JSON list"]


def test_what_only_workers_read_is_not_here() -> None:
    from assay.workers.settings import WorkerSettings

    shared = set(Connections.model_fields) | {"data_root"}
    assert set(Settings.model_fields) & set(WorkerSettings.model_fields) == shared


def test_trusted_proxies_are_addresses_and_networks() -> None:
    given = ["127.0.0.1", "172.16.0.0/12", "2001:db8::1"]
    assert Settings().trusted_proxies == []
    assert Settings(trusted_proxies=given).trusted_proxies == given
    for wrong in ("*", "proxy.example.org", "10.0.0.1/8", ""):
        with pytest.raises(ValueError, match="trusted_proxies"):
            Settings(trusted_proxies=[wrong])


def test_a_variable_that_is_no_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("ASSAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ASSAY_KEY", "k")
    monkeypatch.setenv("ASSAY_PORT", "1")
    assert unknown_variables(Settings.model_fields) == []
    monkeypatch.setenv("ASSAY_REQUIRE_KEYZ", "true")
    assert unknown_variables(Settings.model_fields) == [
        "ASSAY_REQUIRE_KEYZ is no setting and has no effect; did you mean ASSAY_REQUIRE_KEYS?"
    ]


def test_an_empty_data_root_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.workers.settings import WorkerSettings

    for kind in (Settings, WorkerSettings):
        monkeypatch.setenv("ASSAY_DATA_ROOT", "")
        assert kind().data_root is None
        monkeypatch.setenv("ASSAY_DATA_ROOT", "data")
        assert kind().data_root == Path.cwd() / "data"
