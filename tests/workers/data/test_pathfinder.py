"""Pathfinder's released folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.sequences import TokenSequences
from assay.workers.data.pathfinder import pathfinder

FOLDER = "lra_release/pathfinder32/curv_contour_length_14"
COUNT = 30


def write(root: Path, change: str = "none") -> Path:
    """Thirty images in three lists, black but for some pixels."""
    where = root / FOLDER
    (where / "metadata").mkdir(parents=True, exist_ok=True)
    for group in range(3):
        (where / "imgs" / str(group)).mkdir(parents=True, exist_ok=True)
        lines = []
        for number in range(COUNT // 3):
            levels = np.zeros((32, 32), dtype=np.uint8)
            levels[number, group] = 200 if change == "word" else 100
            levels[31, 30] = 255
            name = f"sample_{number}.png"
            Image.fromarray(levels).save(where / "imgs" / str(group) / name)
            label = (number + (change == "label")) % 2
            lines.append(f"imgs/{group} {name} {number} {label} 0 14 2 4 0.1 0.5\n")
        (where / "metadata" / f"{group}.npy").write_text("".join(lines))
    return where


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], TokenSequences]:
    """For tests/laws: thirty images, with one pixel or the label of each changed."""
    del monkeypatch
    write(root, change)
    return lambda split: pathfinder(root, "train" if split == "train" else "test")


def test_parts_are_disjoint_and_whole(tmp_path: Path) -> None:
    write(tmp_path)
    for seed in (0, 1):
        train, test = pathfinder(tmp_path, "train", seed=seed), pathfinder(tmp_path, "test", seed=seed)
        validation = pathfinder(tmp_path, "test", evaluated="validation", seed=seed)
        assert [len(part) for part in (train, validation, test)] == [24, 3, 3]
        assert len({*train.ids, *validation.ids, *test.ids}) == COUNT
    assert set(pathfinder(tmp_path, "train").ids) != set(pathfinder(tmp_path, "train", seed=1).ids)


def test_tokens_are_levels(tmp_path: Path) -> None:
    write(tmp_path)
    safe, released = (pathfinder(tmp_path, "test", black=black) for black in ("token", "padding"))  # type: ignore[arg-type]
    assert (safe.channels, released.channels) == (257, 256)
    for index, name in enumerate(safe.ids):
        group, number = int(name.split("/")[1]), int(name.split("_")[1].removesuffix(".png"))
        expected = torch.zeros(32, 32, dtype=torch.int64)
        expected[number, group], expected[31, 30] = 100, 255
        assert torch.equal(released.tokens([index], 1024)[0], expected.flatten())
        assert torch.equal(safe.tokens([index], 1024)[0], expected.flatten() + 1)
        assert safe.labels[index] == number % 2


def test_empty_files_are_left_out_and_damaged_ones_named(tmp_path: Path) -> None:
    where = write(tmp_path)
    (where / "imgs" / "0" / "sample_0.png").write_bytes(b"")
    names = [*pathfinder(tmp_path, "train").ids, *pathfinder(tmp_path, "test").ids]
    assert "imgs/0/sample_0.png" not in names
    data = pathfinder(tmp_path, "test")
    (where / data.ids[0]).write_bytes(b"no image")
    with pytest.raises(CorruptData, match="cannot be read as an image \\(unknown format\\)"):
        data.tokens([0], 1024)
    (where / data.ids[1]).unlink()
    with pytest.raises(MissingData, match="does not exist"):
        pathfinder(tmp_path, "test")


@pytest.mark.parametrize("line", ["imgs/0 sample_1.png 1", "imgs/0 sample_1.png 1 2 0"])
def test_lists_that_are_none_are_refused(tmp_path: Path, line: str) -> None:
    where = write(tmp_path)
    (where / "metadata" / "1.npy").write_text(line + "\n")
    with pytest.raises(CorruptData, match=r"1\.npy line 1: .* is not a folder, a file, a number and a label"):
        pathfinder(tmp_path, "train")


def test_names_do_not_lead_out_of_the_root(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    where = write(tmp_path / "root")
    (tmp_path / "secret.png").write_bytes(b"x")
    (where / "metadata" / "0.npy").write_text("../../../.. secret.png 0 1\n")
    with pytest.raises(ValueError, match="leads out of"):
        pathfinder(tmp_path / "root", "train")


def test_a_folder_without_lists_is_named(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    with pytest.raises(MissingData, match=r"no lists \(\*\.npy\)"):
        pathfinder(tmp_path, "train")
