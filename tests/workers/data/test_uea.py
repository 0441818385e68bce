"""UEA sets: files by name, classes by name, gaps filled, and what is missing is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.series import Series
from assay.workers.data.uea import uea

HEADER = "@dimensions 2\n@classLabel true {classes}\n@data\n"
TRAIN = ["1,2,3:0,0,1:up", "2,2:1,3:down", "3,4,5,6:1,1,1,1:up", "9,8:7,5:down"]
TEST = ["5,?,7:1,2,3:down", "4:0:up", "1,2:2,1:down", "0,1,0:3,2,1:up"]


def write(root: Path, *, train: list[str], test: list[str], folder: str = "uea/Tiny") -> None:
    where = root / folder
    where.mkdir(parents=True)
    (where / "Tiny_TRAIN.ts").write_text(HEADER.format(classes="up down") + "\n".join(train) + "\n")
    # The order of the classes in the header of the test file does not matter.
    (where / "Tiny_TEST.ts").write_text(HEADER.format(classes="down up") + "\n".join(test) + "\n")


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], Series]:
    """For tests/laws: four series in each split, with one value or one label of each changed."""
    del monkeypatch
    parts = [[*TRAIN], [*TEST]]
    for part in parts:
        if change == "value":
            part[1] = "1" + part[1]
        if change == "label":
            part[2] = part[2].replace("up", "down") if "up" in part[2] else part[2].replace("down", "up")
    write(root, train=parts[0], test=parts[1])
    return lambda split: uea(root, "train" if split == "train" else "test", dataset="Tiny")


def test_reads_both_files_and_fills_gaps(tmp_path: Path) -> None:
    write(tmp_path, train=TRAIN, test=TEST)
    train, test = (uea(tmp_path, split, dataset="Tiny") for split in ("train", "test"))  # type: ignore[arg-type]
    assert (train.class_names, test.class_names) == (("up", "down"),) * 2
    assert train.labels.tolist() == [0, 1, 0, 1]
    assert test.labels.tolist() == [1, 0, 1, 0]
    assert test.ids[1] == "Tiny/test/000001"
    assert (train.longest, test.longest) == (4, 4)
    assert (train.mean, train.std) == (test.mean, test.std)
    assert test.images([0], 4)[0].tolist() == [[5, 6, 7, 0], [1, 2, 3, 0], [1, 1, 1, 0]]
    first = torch.tensor([1, 2, 3, 2, 2, 3, 4, 5, 6, 9, 8], dtype=torch.float64)
    assert train.mean[0] == pytest.approx(float(first.mean()), abs=1e-12)
    assert train.std[0] == pytest.approx(float(first.std()), abs=1e-12)


def test_files_may_be_in_the_folder_itself(tmp_path: Path) -> None:
    write(tmp_path, train=TRAIN, test=TEST, folder="sets")
    assert len(uea(tmp_path, "test", folder="sets", dataset="Tiny")) == 4


def test_a_misspelt_name_is_told_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, train=TRAIN, test=TEST)
    with pytest.raises(MissingData, match=r"Tinny_TRAIN\.ts not found .* Did you mean 'Tiny'"):
        uea(tmp_path, "test", dataset="Tinny")


@pytest.mark.parametrize("name", ["../Tiny", "a/b", ".", "", "Tiny\n"])
def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="allowed: letters, digits"):
        uea(tmp_path, "test", dataset=name)


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    write(tmp_path, train=TRAIN, test=["1,2:3,4:up"])
    path = tmp_path / "uea" / "Tiny" / "Tiny_TEST.ts"
    path.write_text(HEADER.format(classes="up sideways") + "1,2:3,4:up\n")
    with pytest.raises(CorruptData, match="its classes are up, sideways, the training file has up, down"):
        uea(tmp_path, "train", dataset="Tiny")
    path.write_text(HEADER.format(classes="up down").replace("2", "1") + "1,2:up\n")
    with pytest.raises(CorruptData, match="have 1 features, the training file's have 2"):
        uea(tmp_path, "train", dataset="Tiny")


def test_a_published_set_with_other_counts_says_so(tmp_path: Path) -> None:
    where = tmp_path / "uea"
    where.mkdir()
    for part in ("TRAIN", "TEST"):
        (where / f"BasicMotions_{part}.ts").write_text(HEADER.format(classes="a b") + "1:2:a\n")
    assert uea(tmp_path, "test", dataset="BasicMotions").published == 40
    assert uea(tmp_path, "train", dataset="BasicMotions").published is None
