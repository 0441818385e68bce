"""Sets of the regression archive: targets as numbers in their own unit, and files that do not belong here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from assay.workers.data.formats.check import list_sets
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.series import TargetSeries
from assay.workers.data.tser import tser
from assay.workers.data.uea import uea

# As the archive writes it, with the line of aeon's writer.
HEADER = (
    "@problemname Tiny\n@timestamps false\n@missing true\n@dimension 2\n@targetlabel true\n"
    "@classLabel false\n@data\n"
)
TRAIN = ["1,2,3:0,0,1:10.5", "2,2:1,3:-4", "3,4,5,6:1,1,1,1:2e1", "9,8:7,5:0.5"]
TEST = ["5,?,7:1,2,3:1.25", "4:0:7", "1,2:2,1:100"]


def write(root: Path, *, train: list[str], test: list[str], header: str = HEADER) -> Path:
    where = root / "tser" / "Tiny"
    where.mkdir(parents=True, exist_ok=True)
    (where / "Tiny_TRAIN.ts").write_text(header + "\n".join(train) + "\n")
    (where / "Tiny_TEST.ts").write_text(header + "\n".join(test) + "\n")
    return where


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], TargetSeries]:
    """For tests/laws: a few series in each split, with one value or one target of each changed."""
    del monkeypatch
    parts = [[*TRAIN], [*TEST]]
    for part in parts:
        if change == "value":
            part[1] = "1" + part[1]
        if change == "label":
            part[1] += "1"
    write(root, train=parts[0], test=parts[1])
    return lambda split: tser(root, "train" if split == "train" else "test", dataset="Tiny")


def test_targets_keep_their_unit_and_know_the_training_statistics(tmp_path: Path) -> None:
    write(tmp_path, train=TRAIN, test=TEST)
    train, test = (tser(tmp_path, split, dataset="Tiny") for split in ("train", "test"))  # type: ignore[arg-type]
    assert train.labels.tolist() == [10.5, -4.0, 20.0, 0.5]
    assert test.labels.tolist() == [1.25, 7.0, 100.0]
    known = torch.tensor([10.5, -4.0, 20.0, 0.5], dtype=torch.float64)
    for part in (train, test):
        assert part.target_mean == pytest.approx(float(known.mean()), abs=1e-12)
        assert part.target_std == pytest.approx(float(known.std()), abs=1e-12)
    assert test.images([0], 4)[0].tolist() == [[5, 6, 7, 0], [1, 2, 3, 0], [1, 1, 1, 0]]
    assert (train.classes, train.class_names, train.longest) == (1, ("target",), 4)


def test_equal_targets_have_a_deviation_of_1(tmp_path: Path) -> None:
    write(tmp_path, train=["1,2:3,4:5", "2,1:4,3:5"], test=TEST)
    assert tser(tmp_path, "test", dataset="Tiny").target_std == 1.0


@pytest.mark.parametrize("target", ["?", "nan", "inf", "high", "", "1 2"])
def test_a_target_is_a_finite_number(tmp_path: Path, target: str) -> None:
    write(tmp_path, train=[*TRAIN[:1], f"1,2:3,4:{target}"], test=TEST)
    with pytest.raises(CorruptData, match=r"Tiny_TRAIN\.ts line 9: the target is .*allowed: a finite number"):
        tser(tmp_path, "train", dataset="Tiny")


def test_classes_and_targets_are_told_apart(tmp_path: Path) -> None:
    where = write(tmp_path, train=TRAIN, test=TEST)
    with pytest.raises(
        CorruptData, match=r"the file is for regression: .* the data set 'tser' reads this one"
    ):
        uea(tmp_path, "test", folder="tser", dataset="Tiny")
    named = {report.name: report for report in list_sets(tmp_path)}
    assert [part.examples for part in named["tser"].splits] == [4, 3]
    assert named["tser"].folder == "tser/Tiny"
    (where / "Tiny_TRAIN.ts").write_text("@classLabel true a b\n@data\n1,2:a\n")
    with pytest.raises(CorruptData, match=r"for classification: .* the data set 'uea' reads this one"):
        tser(tmp_path, "test", dataset="Tiny")
    (where / "Tiny_TRAIN.ts").write_text("@dimension 1\n@data\n1,2:3\n")
    with pytest.raises(CorruptData, match=r"no line '@targetLabel true' comes before @data"):
        tser(tmp_path, "test", dataset="Tiny")


def test_what_is_missing_or_does_not_belong_together_is_named(tmp_path: Path) -> None:
    where = write(tmp_path, train=TRAIN, test=TEST)
    with pytest.raises(MissingData, match=r"Tinny_TRAIN\.ts not found .* Did you mean 'Tiny'.* 'tser' wants"):
        tser(tmp_path, "test", dataset="Tinny")
    with pytest.raises(ValueError, match="allowed: letters, digits"):
        tser(tmp_path, "test", dataset="../Tiny")
    (where / "Tiny_TEST.ts").write_text(HEADER + "1,2:3\n")
    with pytest.raises(CorruptData, match=r"have 1 features, the training file's have 2"):
        tser(tmp_path, "train", dataset="Tiny")
