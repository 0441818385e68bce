"""JSON lines and Parquet: unused columns are not looked at, and a wrong value is named with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from assay.workers.data.formats.dataset import CorruptData
from assay.workers.data.text_table import text_table

ROWS: list[dict[str, Any]] = [
    {"text": "good", "label": "pos", "meta": {"a": 1}},
    {"text": "bad", "label": "neg", "meta": "none"},
]


def write(root: Path, *lines: str) -> None:
    (root / "d").mkdir(exist_ok=True)
    (root / "d" / "test.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_an_unused_column_may_have_values_of_any_type(tmp_path: Path) -> None:
    write(tmp_path, *map(json.dumps, ROWS))
    data = text_table(tmp_path, "test", folder="d")
    assert (list(data.sentences), data.class_names) == (["good", "bad"], ("neg", "pos"))
    assert data.files_read == [{"file": "test.jsonl", "rows": 2, "lines": 2}]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"text": 5, "label": "pos"}', r"line 3: column 'text' is number, and text in line 1"),
        ('{"text": "a", "label": 1}', r"line 3: column 'label' is number, and text in line 1"),
        ('{"text": "a", "text": "b", "label": "pos"}', r"line 3 is no JSON: 'text' is there twice"),
        ('{"label": "pos", "text": ' + "[" * 100_000, "line 3 is no JSON: maximum recursion depth"),
        ('{"label": "pos"}', r"row 2 .*: column 'text' has no text"),
        ('{"text": "a", "label": ""}', r"row 2 .*: column 'label' is ''"),
        ('{"text": "a"}', r"row 2 .*: column 'label' is None"),
        ('{"text": "\\ud800", "label": "pos"}', "cannot be read: .*surrogates not allowed"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, row: str, message: str) -> None:
    write(tmp_path, *map(json.dumps, ROWS), row)
    with pytest.raises(CorruptData, match=message):
        text_table(tmp_path, "test", folder="d")


def test_a_byte_order_mark_and_line_ends_of_windows_are_read(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    content = "\ufeff" + "\r\n".join(map(json.dumps, ROWS))
    (tmp_path / "d" / "test.jsonl").write_bytes(content.encode())
    assert list(text_table(tmp_path, "test", folder="d").sentences) == ["good", "bad"]


def test_parquet_with_categories_is_read_and_with_a_column_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    columns = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["x", "y"])]
    pa.parquet.write_table(pa.Table.from_arrays(columns, ["text", "label"]), tmp_path / "d" / "test.parquet")
    data = text_table(tmp_path, "test", folder="d")
    assert (list(data.sentences), data.labels.tolist()) == (["a", "b"], [0, 1])
    assert data.files_read == [{"file": "test.parquet", "rows": 2, "lines": None}]
    twice = pa.Table.from_arrays([columns[1]] * 3, ["text", "label", "text"])
    pa.parquet.write_table(twice, tmp_path / "d" / "test.parquet")
    with pytest.raises(CorruptData, match="has 2 columns 'text'"):
        text_table(tmp_path, "test", folder="d")


def test_parquet_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    text = pa.array([b"caf\xe9", b"b"]).view(pa.string())
    table = pa.Table.from_arrays([text, pa.array([0, 1])], ["text", "label"])
    pa.parquet.write_table(table, tmp_path / "d" / "test.parquet")
    with pytest.raises(CorruptData, match=r"test\.parquet: column 'text' is not UTF-8"):
        text_table(tmp_path, "test", folder="d")
