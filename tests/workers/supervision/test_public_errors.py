"""Words for users: no SQL, no path outside the job."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.exc import ProgrammingError

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


def test_paths_are_relative_to_the_job_or_hidden() -> None:
    text = (
        f"no {FOLDER}/a.csv, '{STATE}/artifacts/02other/weights.safetensors' ({STATE}/assay.sqlite), {STATE}"
    )
    assert without_paths(text, FOLDER, STATE) == f"no a.csv, '{ELSEWHERE}' ({ELSEWHERE}), {ELSEWHERE}"
    assert without_paths("below /data/images", FOLDER, STATE) == "below /data/images"
