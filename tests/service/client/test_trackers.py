"""Addresses of trackers, before one is opened."""

from __future__ import annotations

import pytest

from assay.service.client.trackers import check_tracking_uri


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("localhost:5000", "did you mean 'http://localhost:5000'?"),
        ("htp://host", r"tracking_uri is 'htp://host'; allowed: http://HOST:PORT, .*sqlite:///FILE"),
        ("http://", "allowed: http://HOST:PORT"),
        ("sqlite://mine.db", "sqlite:///FILE"),
        ("./mlruns", "a folder, which MLflow takes with MLFLOW_ALLOW_FILE_STORE=true alone"),
        ("file:///tmp/mlruns", "a folder"),
    ],
)
def test_a_tracking_uri_that_mlflow_cannot_take_is_refused_in_a_sentence(
    uri: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        check_tracking_uri(uri)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(ValueError, match="MLFLOW_TRACKING_URI is "):
        check_tracking_uri(None)


@pytest.mark.parametrize(
    "uri",
    [
        "http://127.0.0.1:5000",
        "sqlite:///mine.db",
        "sqlite:////srv/mine.db",
        "mysql+pymysql://u@h/d",
        "databricks",
    ],
)
def test_tracking_uris_that_mlflow_takes(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_tracking_uri(uri)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    check_tracking_uri("./mlruns")
