"""Stored corrupted images: which cell, which pixels, which hash, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from assay.service.contract.corruption_cells import Cell
from assay.workers.data.corrupted_folder import corrupted_folder
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.stored_corruptions import Kind, StoredCorruptions
from assay.workers.data.image_folder import RESAMPLING
from tests.support.stored_trees import PICTURES, picture, write_cells

CELLS: list[Cell] = [("fog", 1), ("fog", 4), ("saturate", 2)]


@pytest.fixture
def data(tmp_path: Path) -> StoredCorruptions:
    write_cells(tmp_path / "stored", CELLS, ["ant", "bee"], side=12)
    return corrupted_folder(tmp_path, "test", folder="stored")


def test_unasked_it_has_every_cell_that_is_there(data: StoredCorruptions) -> None:
    assert data.cells == CELLS
    assert data.ids == ["ant/ant_0.png", "ant/ant_1.png", "bee/bee_0.png"]
    assert data.labels.tolist() == [0, 0, 1]


def test_each_cell_has_its_own_pixels(data: StoredCorruptions) -> None:
    for number, cell in enumerate(CELLS):
        expected = [np.array(picture((number + shift) % PICTURES, 12)) for shift in (0, 1, 1)]
        pixels = data.cell_images(cell, [0, 1, 2], 12).pixels()
        for row, grey in zip(pixels, expected, strict=True):
            assert torch.equal(row, torch.from_numpy(grey).float().expand(3, 12, 12) / 255)
    assert torch.equal(data.images([2], 12), data.cell_images(CELLS[0], [2], 12).pixels())


def test_an_image_of_another_size_is_cut_and_then_resized(tmp_path: Path) -> None:
    into = tmp_path / "stored" / "fog" / "1" / "ant"
    into.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(into / "0.png")
    free = corrupted_folder(tmp_path, "test", folder="stored")
    square = Image.fromarray(pixels[:, 5:25])
    assert torch.equal(free.images([0], 20)[0], as_tensor(square))
    assert torch.equal(free.images([0], 8)[0], as_tensor(square.resize((8, 8), Image.Resampling.BICUBIC)))
    kind = Kind("corrupted_folder", "It", clean="image_folder", crop=10)
    cropped = StoredCorruptions(kind, free.folder, free.base, RESAMPLING["bilinear"])
    centre = Image.fromarray(pixels[5:15, 10:20])
    assert torch.equal(cropped.images([0], 10)[0], as_tensor(centre))
    assert torch.equal(cropped.images([0], 7)[0], as_tensor(centre.resize((7, 7), Image.Resampling.BILINEAR)))


def as_tensor(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255


def test_the_hash_is_of_the_cells_that_are_read(data: StoredCorruptions) -> None:
    fog = data.of_cells(CELLS[:2])
    assert fog.content_sha256() == data.of_cells(CELLS[1::-1]).content_sha256()
    assert fog.content_sha256() != data.content_sha256()
    before = data.of_cells(CELLS[2:]).content_sha256()
    swap(data.folder / "fog" / "4" / "ant")
    assert fog.content_sha256() != data.of_cells(CELLS[1:2]).content_sha256()
    assert data.of_cells(CELLS[2:]).content_sha256() == before
    (data.folder / "fog" / "4" / "bee" / "bee_0.png").unlink()
    with pytest.raises(CorruptData, match=r"fog/4/bee/bee_0\.png cannot be read"):
        fog.content_sha256()


def swap(folder: Path) -> None:
    first, second = sorted(folder.iterdir())
    os.rename(first, folder / "x")
    os.rename(second, first)
    os.rename(folder / "x", second)


def test_a_half_complete_tree_is_refused_with_a_list(data: StoredCorruptions) -> None:
    data.check()
    (data.folder / "fog" / "4" / "bee" / "bee_0.png").unlink()
    data.of_cells(CELLS[:1]).check()
    with pytest.raises(MissingData, match=r"\(fog/4: bee/bee_0\.png\)\.$"):
        data.check()
    with pytest.raises(MissingData, match=r"2 severities are missing \(fog/2, fog/3\)"):
        data.of_cells([("fog", severity) for severity in (1, 2, 3)]).check()


def test_a_folder_without_corruptions_says_what_it_has(tmp_path: Path) -> None:
    write_cells(tmp_path / "data" / "stored", CELLS, ["ant", "bee"], side=4)
    with pytest.raises(
        MissingData, match=r"15 corruptions are missing .* Is the folder 'stored' in it meant"
    ):
        corrupted_folder(tmp_path, "test", folder="data")
    with pytest.raises(MissingData, match="It holds 1, 4"):
        corrupted_folder(tmp_path, "test", folder="data/stored/fog")
