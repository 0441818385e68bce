from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from assay.service.store.connections import Connections, wrong_settings

GOOD = {
    "mode": "distributed",
    "database_url": "postgresql+psycopg://assay@db/assay",
    "database_password": "0123456789abcdef",
    "redis_url": "redis://redis:6379/0",
    "redis_password": "fedcba9876543210",
}


def test_passwords_are_put_into_the_urls() -> None:
    connections = Connections(**GOOD)
    assert connections.database == "postgresql+psycopg://assay:0123456789abcdef@db/assay"
    assert connections.redis == "redis://:fedcba9876543210@redis:6379/0"
    assert "0123456789abcdef" not in repr(connections)


def test_a_password_is_quoted() -> None:
    connections = Connections(**GOOD | {"redis_password": "p@ss/word:with#all"})
    assert connections.redis == "redis://:p%40ss%2Fword%3Awith%23all@redis:6379/0"


def test_the_embedded_mode_uses_no_redis(tmp_path: Path) -> None:
    connections = Connections(state=tmp_path, redis_url="redis://redis")
    assert connections.redis == ""
    assert connections.database == f"sqlite:///{tmp_path}/assay.sqlite"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"database_url": ""}, "ASSAY_DATABASE_URL: the distributed mode keeps its truth in PostgreSQL"),
        ({"database_url": "sqlite:////x"}, "ASSAY_DATABASE_URL"),
        ({"database_url": "no url"}, "ASSAY_DATABASE_URL"),
        ({"redis_url": ""}, "ASSAY_REDIS_URL"),
        ({"redis_url": "http://redis"}, "ASSAY_REDIS_URL"),
        ({"database_password": ""}, "ASSAY_DATABASE_PASSWORD: missing; db can be reached"),
        ({"redis_password": ""}, "ASSAY_REDIS_PASSWORD: missing"),
        ({"database_password": "changeme"}, "ASSAY_DATABASE_PASSWORD: too short or a well-known default"),
        ({"redis_password": "short"}, "ASSAY_REDIS_PASSWORD: too short"),
        ({"redis_url": "redis://:postgres@redis"}, "ASSAY_REDIS_PASSWORD: too short or a well-known"),
    ],
)
def test_the_distributed_mode_refuses_to_start_half_configured(change: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Connections(**GOOD | change)
    assert "0123456789abcdef" not in str(caught.value)


def test_servers_on_this_machine_may_do_without_passwords() -> None:
    local = {"database_url": "postgresql+psycopg:///assay", "redis_url": "redis://127.0.0.1:6379/3"}
    connections = Connections(**GOOD | local | {"database_password": "", "redis_password": ""})
    assert connections.redis == "redis://127.0.0.1:6379/3"


S3 = {"s3_access_key_id": "AKIA", "s3_secret_access_key": "hidden-key"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"files": "/srv/files", **S3}, "allowed: s3://bucket or s3://bucket/prefix"),
        ({"files": "s3://Bad_Bucket", **S3}, "allowed: s3://bucket or s3://bucket/prefix"),
        ({"files": "s3://bucket/../x", **S3}, "allowed: s3://bucket or s3://bucket/prefix"),
        ({"files": "s3://bucket/x", **S3, "s3_endpoint": "minio:9000"}, "ASSAY_S3_ENDPOINT"),
        ({"files": "s3://bucket", "s3_access_key_id": "AKIA"}, "ASSAY_S3_SECRET_ACCESS_KEY"),
    ],
)
def test_an_object_store_is_named_whole(given: dict[str, Any], said: str, monkeypatch: Any) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    with pytest.raises(ValidationError) as refused:
        Connections(**given)
    told = "\n".join(wrong_settings(refused.value))
    assert said in told
    assert "hidden-key" not in told


def test_an_object_store_without_its_client_says_how_to_install_it(monkeypatch: Any) -> None:
    monkeypatch.setattr("assay.service.contract.extras.has_module", lambda name: name != "obstore")
    assert Connections().file_store.kind == "folder"
    with pytest.raises(ValidationError, match=r"pip install 'assay-robustness\[s3\]'"):
        Connections(files="s3://bucket", **S3)  # type: ignore[arg-type]


def test_the_keys_of_amazon_are_those_of_the_environment(monkeypatch: Any) -> None:
    known = {"ACCESS_KEY_ID": "AKIA", "SECRET_ACCESS_KEY": "k", "SESSION_TOKEN": "t", "REGION": "eu-x"}
    for name, value in known.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    place = Connections()._s3_place("s3://bucket/a/b/")
    assert (place.bucket, place.prefix, place.region, place.session_token) == ("bucket", "a/b", "eu-x", "t")
    assert place.endpoint == "https://s3.eu-x.amazonaws.com"
    assert Connections(**S3)._s3_place("s3://bucket").session_token == ""  # type: ignore[arg-type]


def test_contents_in_a_bucket_need_a_folder_for_their_names_and_a_key(tmp_path: Any) -> None:
    with pytest.raises(ValidationError, match="ASSAY_DATA_BLOBS needs ASSAY_DATA_STORE"):
        Connections(data_blobs="s3://bucket", **S3)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="ASSAY_DATA_BLOBS needs ASSAY_S3_ACCESS_KEY_ID"):
        Connections(data_blobs="s3://bucket", data_store=tmp_path)
    assert Connections().published is None
    chosen = Connections(data_blobs="s3://bucket/a", data_store=tmp_path, **S3)  # type: ignore[arg-type]
    assert chosen.published is not None
    assert str(chosen.published.blobs.address("0" * 64)).partition("?")[0].endswith(f"/a/blobs/00/{'0' * 64}")
