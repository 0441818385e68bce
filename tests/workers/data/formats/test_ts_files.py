"""`.ts` files: what is read, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from assay.workers.data.formats import ts_files
from assay.workers.data.formats.dataset import CorruptData
from assay.workers.data.formats.ts_files import read_series

HEADER = "# a comment\n@problemName Two\n@timeStamps false\n@dimensions 2\n@classLabel true up down\n@data\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "Two_TRAIN.ts"
    path.write_text(text, encoding="utf-8")
    return path


def test_lengths_missing_numbers_and_classes_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER + "1,2,3:4,?,6e1:down\n\n# more\n-.5: 7 :up\n")
    found = read_series(path)
    assert found.class_names == ("up", "down")
    assert found.labels == [1, 0]
    assert found.lines == [7, 10]
    np.testing.assert_array_equal(found.values[0], np.array([[1, 4], [2, np.nan], [3, 60]], dtype=np.float32))
    np.testing.assert_array_equal(found.values[1], np.array([[-0.5, 7]], dtype=np.float32))


def test_steps_at_the_end_without_any_number_are_padding(tmp_path: Path) -> None:
    found = read_series(written(tmp_path, HEADER + "1,?,3,?,?:4,NaN,?,?,?:up\n"))
    np.testing.assert_array_equal(
        found.values[0], np.array([[1, 4], [np.nan, np.nan], [3, np.nan]], dtype=np.float32)
    )


def test_a_header_without_dimensions_takes_those_of_the_first_line(tmp_path: Path) -> None:
    text = HEADER.replace("@dimensions 2\n", "")
    assert read_series(written(tmp_path, text + "1:2:3:up\n")).values[0].shape == (1, 3)
    with pytest.raises(CorruptData, match="line 7: it has 2 features; allowed: 3"):
        read_series(written(tmp_path, text + "1:2:3:up\n1:2:up\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER, "has no examples"),
        (HEADER + "1,2:3,4:left\n", "line 7: 'left' is no class; allowed: up, down"),
        (HEADER + "1,2:3:up\n", "line 7: its features have from 1 to 2 steps"),
        (HEADER + "1,two:3,4:up\n", "line 7: .*two.*; allowed: numbers"),
        (HEADER + "1,:3,4:up\n", "line 7: .*allowed: numbers"),
        (HEADER + "1,inf:3,4:up\n", "line 7: a number is not finite"),
        (HEADER + "1,1e39:3,4:up\n", "line 7: a number is not finite"),
        (HEADER + "?,?:?,?:up\n", "line 7: every number of the series is missing"),
        (HEADER.replace("false", "true"), "line 3: series with time stamps are not read"),
        (
            HEADER.replace("@classLabel true up down", "@targetLabel true"),
            "line 5: the file is for regression",
        ),
        (HEADER.replace("up down", "up up"), "line 5: @classLabel must be"),
        (HEADER.replace("@classLabel true up down\n", ""), "line 5: no line '@classLabel"),
        (HEADER.replace("2", "two"), "line 4: @dimensions is 'two'; allowed: 1 to 4096"),
        ("hello\n", "line 1: 'hello' is neither"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CorruptData, match=message):
        read_series(written(tmp_path, text))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "Two_TRAIN.ts"
    path.write_bytes(HEADER.encode() + b"1:\xff:up\n")
    with pytest.raises(CorruptData, match="line 7: it is not UTF-8"):
        read_series(path)


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("MAX_STEPS", 2, "more than 2 steps"),
        ("MAX_VALUES", 5, "more than 5 numbers"),
        ("MAX_LINE", 40, "longer than 40 characters"),
        ("MAX_CLASSES", 1, "2 to 1 different names"),
    ],
)
def test_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, message: str
) -> None:
    path = written(tmp_path, HEADER + f"1,2,3:4,5,6:up{' ' * 40}\n")
    read_series(path)
    monkeypatch.setattr(ts_files, limit, value)
    with pytest.raises(CorruptData, match=message):
        read_series(path)
