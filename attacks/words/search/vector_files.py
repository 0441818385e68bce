"""Word vector files: required contents of a folder, and its reader.

Mrksic et al. 2016, "Counter-fitting Word Vectors to Linguistic Constraints": 65 713 vectors of 300 numbers,
published as `counter-fitted-vectors.txt`. TextAttack ships them as an array, `paragram.npy`, with its words
in a pickle, which may run arbitrary code and is not read: the words have to be in `words.txt`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TEXT = "counter-fitted-vectors.txt"
ARRAY, WORDS = "paragram.npy", "words.txt"


def missing_vectors(folder: Path) -> str | None:
    """Missing files of a folder, or None: it needs the text file, or the array and its words."""
    if (folder / TEXT).is_file():
        return None
    missing = [name for name in (ARRAY, WORDS) if not (folder / name).is_file()]
    if not missing:
        return None
    return f"{TEXT} (or {' and '.join(missing)})"


def written(folder: Path) -> tuple[int, ...]:
    """Modification times in nanoseconds and sizes in bytes of the files present."""
    paths = [folder / name for name in (TEXT, ARRAY, WORDS)]
    found = [path.stat() for path in paths if path.is_file()]
    return tuple(number for file in found for number in (file.st_mtime_ns, file.st_size))


def read_vectors(folder: Path) -> tuple[list[str], NDArray[np.float32]]:
    """Words and their vectors, float32 (n, d); the first vector of a repeated word counts."""
    path = folder / (TEXT if (folder / TEXT).is_file() else ARRAY)
    with np.errstate(over="ignore"):  # refused below
        words, vectors = _text(path) if path.name == TEXT else (_words(folder / WORDS), _array(path))
    if len(words) != len(vectors):
        raise ValueError(f"{folder / WORDS} has {len(words)} words, {path} has {len(vectors)} vectors")
    if not words:
        raise ValueError(f"{path} has no vectors")
    if len(set(words)) < len(words):
        first: dict[str, int] = {}
        for place, word in enumerate(words):
            first.setdefault(word, place)
        words, vectors = list(first), vectors[list(first.values())]
    lengths = norms(vectors)
    if (bad := np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))).size:
        raise ValueError(f"{path}: the vector of {words[bad[0]]!r} is all zeros, or not finite")
    return words, vectors


def norms(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Norm of each vector (n, d), in double precision without a double copy, (n,)."""
    squares: NDArray[np.float64] = np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)
    return np.sqrt(squares)


def _text(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    words: list[str] = []
    rows: list[NDArray[np.float32]] = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            fields = line.split()
            numbers = fields[1:]
            try:
                row = np.fromiter(map(float, numbers), np.float32, len(numbers))
                words.append(fields[0].decode("utf-8") if fields else "")
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
            if not numbers or (rows and len(row) != len(rows[0])):
                wanted = f"line 1 has {len(rows[0])}" if rows else "a word and its vector are wanted"
                raise ValueError(f"{path}, line {number} has {len(row)} numbers, {wanted}")
            rows.append(row)
    return words, np.stack(rows) if rows else np.zeros((0, 1), np.float32)


def _array(path: Path) -> NDArray[np.float32]:
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a plain array of numpy: {error}") from error
    if not isinstance(found, np.ndarray) or found.ndim != 2 or found.dtype.kind != "f" or not found.shape[1]:
        raise ValueError(f"{path}: floating-point numbers in two dimensions (words, numbers) are wanted")
    return np.array(found, dtype=np.float32)


def _words(path: Path) -> list[str]:
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if lines[-1] == "":
        del lines[-1]
    return [line.removesuffix("\r") for line in lines]
