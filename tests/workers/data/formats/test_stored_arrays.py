"""Arrays of stored corrupted images: what is hashed, and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.stored_arrays import ArrayKind, StoredArrays
from tests.support.stored_arrays import IMAGES, array_of, labels_of, write_arrays

KIND = ArrayKind("tiny_c", "Tiny-C", "tiny", ("a", "b", "c"), (0.5,) * 3, (0.5,) * 3, IMAGES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_arrays(tmp_path / "stored", ["fog", "snow"], 3)
    return tmp_path / "stored"


def opened(folder: Path) -> StoredArrays:
    return StoredArrays(KIND, folder, folder.parent)


def test_the_hash_is_of_the_cells_that_are_read(folder: Path) -> None:
    data = opened(folder)
    fog, snow = data.of_cells([("fog", 5)]), data.of_cells([("snow", 1), ("fog", 1)])
    assert snow.content_sha256() == data.of_cells([("fog", 1), ("snow", 1)]).content_sha256()
    before = {"fog": fog.content_sha256(), "snow": snow.content_sha256()}
    pixels = array_of("fog")
    pixels[-1, 0, 0, 0] ^= 1  # of severity 5
    np.save(folder / "fog.npy", pixels)
    assert opened(folder).of_cells(fog.cells).content_sha256() != before["fog"]
    assert opened(folder).of_cells(snow.cells).content_sha256() == before["snow"]


def test_only_what_is_asked_for_must_be_there(folder: Path) -> None:
    opened(folder).of_cells([("fog", 2)]).check()
    with pytest.raises(
        MissingData, match=r"as CORRUPTION\.npy and labels\.npy: 2 files are missing \(frost\.npy, jpeg"
    ):
        opened(folder).of_cells([("fog", 2), ("frost", 1), ("jpeg_compression", 1)]).check()


def test_the_archives_folder_in_the_folder_is_suggested(folder: Path) -> None:
    with pytest.raises(
        MissingData, match=r"labels\.npy, gaussian_noise\.npy\)\. Is the folder 'stored' in it meant\?"
    ):
        opened(folder.parent)
    (folder / "labels.npy").unlink()
    with pytest.raises(MissingData, match=r"labels\.npy is missing"):
        opened(folder)


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (array_of("fog")[1:], r"fog\.npy has shape \(59, 32, 32, 3\) and type uint8; Tiny-C has shape \(60"),
        (array_of("fog").astype(np.float32), r"fog\.npy has shape \(60, 32, 32, 3\) and type float32"),
    ],
)  # fmt: skip
def test_another_shape_or_type_is_corrupt(folder: Path, pixels: np.ndarray, message: str) -> None:
    np.save(folder / "fog.npy", pixels)
    with pytest.raises(CorruptData, match=message):
        opened(folder).check()


def test_labels_must_be_the_same_at_every_severity(folder: Path) -> None:
    labels = labels_of(3)
    labels[IMAGES] = 2 - labels[IMAGES]
    labels[IMAGES] += labels[IMAGES] == labels[0]
    np.save(folder / "labels.npy", labels)
    with pytest.raises(CorruptData, match="the labels of the severities differ"):
        opened(folder)


def test_a_truncated_file_and_an_archive_of_arrays_are_corrupt(folder: Path) -> None:
    file = folder / "fog.npy"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptData, match=r"fog\.npy cannot be read as an array"):
        opened(folder).check()
    with file.open("wb") as into:
        np.savez(into, array_of("fog"))
    with pytest.raises(CorruptData, match=r"fog\.npy is an archive of arrays"):
        opened(folder).check()


def test_nothing_is_unpickled(folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "unpickled"

    class Touches:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (marker,)  # type: ignore[return-value]

    (folder / "fog.npy").write_bytes(pickle.dumps(Touches()))
    with pytest.raises(CorruptData, match=r"fog\.npy cannot be read"):
        opened(folder).check()
    np.save(folder / "fog.npy", np.array([Touches()], dtype=object), allow_pickle=True)
    with pytest.raises(CorruptData, match=r"fog\.npy cannot be read"):
        opened(folder).check()
    assert not marker.exists()


def test_a_link_out_of_the_root_is_refused(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "fog.npy"
    (folder / "fog.npy").rename(outside)
    (folder / "fog.npy").symlink_to(outside)
    with pytest.raises(ValueError, match="symbolic link"):
        opened(folder).check()
