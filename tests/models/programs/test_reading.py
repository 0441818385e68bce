"""JSON of hostile programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.models.programs.reading import UnsafeProgram
from tests.support.archives import GRAPH, archive, entries_of
from tests.support.hostile_programs import WEIGHTS
from tests.support.programs import load

pytestmark = pytest.mark.usefixtures("nothing_runs")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "is no JSON"),
        (b"[]", "no JSON object"),
        (b"\xff\xfe", "is no JSON"),
        (b"[" * 10**6, "is no JSON"),
        (b'{"a": 1, "a": 2}', "a key is repeated"),
        (b'{"a": ' + b"9" * 10**5 + b"}", "is no JSON"),
        (b"null", "no JSON object"),
        (b'{"schema_version": {"major": true}}', "'major' must be int"),
    ],
)
def test_json_that_is_none_is_refused(plain: Path, tmp_path: Path, raw: bytes, reason: str) -> None:
    path = tmp_path / "bad.pt2"
    for entry in (GRAPH, WEIGHTS):
        path.write_bytes(archive({**entries_of(plain), entry: raw}))
        with pytest.raises(UnsafeProgram, match=reason if entry == GRAPH else None):
            load(path)
