"""The service's own release: the same hash as its workers', in a checkout and in an installed package."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from assay.service.contract.fleet import release
from assay.service.contract.fleet.release import own_release, release_names, release_text, source_sha256
from assay.workers.identity import code


def copied(tmp_path: Path) -> Path:
    """A root as in `site-packages`: only what is hashed."""
    root = tmp_path / "site-packages" / "assay"
    for folder in release.CODE:
        shutil.copytree(release.ROOT / folder, root / folder)
    return root


def test_the_service_and_its_workers_have_one_hash_wherever_they_are(tmp_path: Path) -> None:
    mine = own_release()
    assert mine["source_sha256"] == code()["source_sha256"]
    assert mine["version"] == code()["version"]
    root = copied(tmp_path)
    assert own_release(root)["source_sha256"] == mine["source_sha256"]
    (root / "attacks" / "adversarial" / "pgd.py").write_text("changed")
    assert own_release(root)["source_sha256"] != mine["source_sha256"]


@pytest.mark.parametrize("folder", ["models", "workers"])
def test_a_part_that_is_missing_is_no_other_source(tmp_path: Path, folder: str) -> None:
    root = copied(tmp_path)
    shutil.rmtree(root / folder)
    assert source_sha256(root) is None
    assert "source_sha256" not in own_release(root)


def test_the_commit_is_what_the_image_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_COMMIT", "c0ffee")
    assert own_release()["commit"] == "c0ffee"
    monkeypatch.setenv("ASSAY_COMMIT", "")
    assert own_release()["commit"] is None


def test_names_are_the_strictest_first() -> None:
    assert release_names({"version": "1.0", "commit": "c", "source_sha256": "s"}) == ["s", "c", "1.0"]
    assert release_names({"version": "1.0", "commit": None}) == ["1.0"]
    assert release_names({"version": None}) == []
    assert release_text({"version": "1.0", "commit": "c"}) == "version 1.0, commit c"
    assert release_text({"version": None}) == "version unknown"
