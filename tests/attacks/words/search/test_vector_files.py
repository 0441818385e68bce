"""Word vectors in files."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from assay.attacks.words.search.vector_files import missing_vectors, read_vectors, written

TEXT = "counter-fitted-vectors.txt"


def test_reads_a_text(tmp_path: Path) -> None:
    # What str.splitlines would cut at is no end of a line, and no space.
    (tmp_path / TEXT).write_text(
        "a 1 -2.5e-1\r\nna\u00efve\u2028x 0.5 3 \na 7 7\nb\u00a0c 1 1", "utf-8", newline=""
    )
    words, vectors = read_vectors(tmp_path)
    assert words == ["a", "na\u00efve\u2028x", "b\u00a0c"]
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[1, -0.25], [0.5, 3], [1, 1]]


def test_reads_an_array_and_its_words(tmp_path: Path) -> None:
    np.save(tmp_path / "paragram.npy", np.array([[1.0, 2.0], [3.0, 4.0]]))
    (tmp_path / "words.txt").write_text("b\na\n")
    words, vectors = read_vectors(tmp_path)
    assert (words, vectors.tolist(), vectors.dtype) == (["b", "a"], [[1, 2], [3, 4]], np.float32)


def test_says_what_is_missing(tmp_path: Path) -> None:
    assert missing_vectors(tmp_path) == f"{TEXT} (or paragram.npy and words.txt)"
    (tmp_path / "paragram.npy").touch()
    assert missing_vectors(tmp_path) == f"{TEXT} (or words.txt)"
    (tmp_path / "words.txt").touch()
    assert missing_vectors(tmp_path) is None
    (tmp_path / "words.txt").unlink()
    (tmp_path / TEXT).touch()
    assert missing_vectors(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no vectors"),
        ("a 1 2\n\n", "line 2 has 0 numbers, line 1 has 2"),
        ("a\n", "line 1 has 0 numbers, a word and its vector"),
        ("2 300\na 1 2\n", "line 2 has 2 numbers, line 1 has 1"),
        ("a 1 two\n", "line 1: could not convert"),
        ("a 1 nan\n", "'a' is all zeros, or not finite"),
        ("a 1 2\nb 1 1e300\n", "'b' is all zeros, or not finite"),
        ("a 0 0\n", "'a' is all zeros, or not finite"),
    ],
)
def test_refuses_what_is_no_text_of_vectors(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / TEXT).write_text(text)
    with pytest.raises(ValueError, match=message):
        read_vectors(tmp_path)


def test_refuses_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / TEXT).write_bytes(b"\xff\xfe 1 2\n")
    with pytest.raises(ValueError, match=r"line 1: 'utf-8' codec"):
        read_vectors(tmp_path)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(4), "two dimensions"),
        (np.ones((2, 2), np.int64), "floating-point"),
        (np.ones((3, 2)), "has 2 words, .* has 3 vectors"),
    ],
)
def test_refuses_another_array(tmp_path: Path, array: np.ndarray, message: str) -> None:
    np.save(tmp_path / "paragram.npy", array)
    (tmp_path / "words.txt").write_text("a\nb\n")
    with pytest.raises(ValueError, match=message):
        read_vectors(tmp_path)


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_unpickles_nothing(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("a\nb\n")
    array = np.array([Bomb(tmp_path / "went off")] * 2, dtype=object)
    np.save(tmp_path / "paragram.npy", array, allow_pickle=True)
    for content in (None, pickle.dumps(Bomb(tmp_path / "went off")), b""):
        if content is not None:
            (tmp_path / "paragram.npy").write_bytes(content)
        with pytest.raises(ValueError, match="is not a plain array of numpy"):
            read_vectors(tmp_path)
    assert not (tmp_path / "went off").exists()


def test_files_that_were_written_anew_are_others(tmp_path: Path) -> None:
    assert written(tmp_path) == ()
    (tmp_path / TEXT).write_text("a 1\n")
    before = written(tmp_path)
    (tmp_path / TEXT).write_text("ab 1\n")
    assert written(tmp_path) != before
