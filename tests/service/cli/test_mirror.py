"""`assay mirror`: what it says before and after the runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.service.cli import main
from assay.service.cli.mirror import opening
from assay.service.client import AssayClient, trackers
from assay.service.client.mirrors import Mirrored


def test_the_mirror_says_why_it_waits(tmp_path: Path) -> None:
    new = f"sqlite:///{tmp_path}/new.db"
    assert opening("mlflow", new) == f"opening mlflow; it makes the database {tmp_path}/new.db first"
    (tmp_path / "new.db").touch()
    assert opening("mlflow", new) == "opening mlflow"


def test_the_address_that_has_the_runs_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    where = trackers._from_the_root("sqlite:///mlflow.db")
    assert where == f"sqlite:///{tmp_path / 'mlflow.db'}" == trackers._from_the_root(where)
    assert trackers._from_the_root("http://host") == "http://host"
    found = Mirrored("x", "succeeded", "y", 1, where)
    monkeypatch.setattr(AssayClient, "mirror", lambda *_, **more: [found])
    assert main.main(["mirror", "x", "--to", "mlflow"]) == 0
    assert capsys.readouterr().err == f"opening mlflow\nwritten to mlflow: {where}\n"
