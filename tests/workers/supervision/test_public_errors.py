"""Words for users: no SQL, no path outside the job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import ProgrammingError

from assay.service.submission.data_folders import name_roots
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.public_errors import ELSEWHERE, in_words, without_paths

STATE = Path("/srv/assay")
FOLDER = STATE / "artifacts" / "01job"


def test_errors_of_the_database_are_their_type_alone() -> None:
    error = ProgrammingError("INSERT INTO outcomes VALUES (?)", ("secret",), Exception("type 'dict'"))
    said = in_words(error)
    assert said.startswith("ProgrammingError: the database refused it")
    assert "INSERT" not in said
    assert "secret" not in said
    assert in_words(ValueError("n is 3")) == "ValueError: n is 3"


def settings(**changes: Any) -> WorkerSettings:
    return WorkerSettings(state=STATE, data_root="/data", weights_root="/srv/weights", **changes)  # type: ignore[arg-type]


def distributed() -> WorkerSettings:
    chosen = {"database_url": "postgresql+psycopg://a@127.0.0.1/c", "redis_url": "redis://localhost:6379/0"}
    return settings(mode="distributed", **chosen)


def test_paths_are_relative_to_the_job_or_hidden() -> None:
    text = (
        f"no {FOLDER}/a.csv, '{STATE}/artifacts/02other/weights.safetensors' ({STATE}/assay.sqlite), {STATE}"
    )
    assert without_paths(text, settings(), "01job") == f"no a.csv, '{ELSEWHERE}' ({ELSEWHERE}), {ELSEWHERE}"


@pytest.mark.parametrize("mode", ["embedded", "distributed"])
def test_users_read_no_path_of_the_machine(mode: str) -> None:
    text = "'/data/images/a.png', not /database/b nor /data-old; /data. (/srv/weights/timm)"
    said = "'$ASSAY_DATA_ROOT/images/a.png', not /database/b nor /data-old; $ASSAY_DATA_ROOT."
    chosen = distributed() if mode == "distributed" else settings()
    assert without_paths(text, chosen, "01job") == f"{said} ($ASSAY_WEIGHTS_ROOT/timm)"


def test_a_root_that_is_a_link_hides_its_target_too(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to("disk")
    (tmp_path / "all").symlink_to("/")
    roots = {"ASSAY_DATA_ROOT": tmp_path / "data", "ASSAY_WEIGHTS_ROOT": tmp_path / "all"}
    text = f"{tmp_path}/data/a.png is {tmp_path}/disk/a.png, not /b"
    assert name_roots(text, roots) == "$ASSAY_DATA_ROOT/a.png is $ASSAY_DATA_ROOT/a.png, not /b"
