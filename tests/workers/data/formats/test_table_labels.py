"""Classes of tables: their order, where it is stated, and labels that are none of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.workers.data.formats.dataset import CorruptData
from assay.workers.data.text_table import text_table
from tests.support.tables import write_table


def table(root: Path, labels: list[Any], classes: list[str] | None = None, **params: Any) -> Any:
    rows = [{"text": f"text {number}", "label": label} for number, label in enumerate(labels)]
    write_table(root / "set" / "test.parquet", rows, classes=classes)
    write_table(root / "set" / "train.parquet", rows, classes=classes)
    return text_table(root, "test", folder="set", **params)


@pytest.mark.parametrize(
    ("labels", "names", "numbers"),
    [
        ([str(k) for k in range(12)], tuple(str(k) for k in range(12)), list(range(12))),
        (["270", "0", "90", "180"], ("0", "90", "180", "270"), [3, 0, 1, 2]),
        (["-1", "1", "-10"], ("-10", "-1", "1"), [1, 2, 0]),
        (["b", "a", "10"], ("10", "a", "b"), [2, 1, 0]),
        ([10, 9, 2], ("2", "9", "10"), [2, 1, 0]),
    ],
)
def test_labels_without_stated_classes_are_in_order(
    labels: list[Any], names: tuple[str, ...], numbers: list[int], tmp_path: Path
) -> None:
    data = table(tmp_path, labels)
    assert (data.class_names, data.labels.tolist()) == (names, numbers)
    assert data.sorted_classes


def test_labels_that_are_one_number_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        CorruptData, match=r"test.parquet: column 'label': the classes '01', '1' are the same"
    ):
        table(tmp_path, ["1", "01", "2"])


@pytest.mark.parametrize(
    ("content", "params"),
    [
        (None, {"class_names": ["dog", "cat"]}),
        ("dog\ncat\n", {"class_names_file": "labels.txt"}),
        ('{"0": "dog", "1": "cat"}', {"class_names_file": "labels.txt"}),
    ],
)
def test_the_order_is_stated_by_name_or_file(
    content: str | None, params: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "set").mkdir()
    if content is not None:
        (tmp_path / "set" / "labels.txt").write_text(content)
    data = table(tmp_path, ["cat", "dog"], **params)
    assert (data.class_names, data.labels.tolist()) == (("dog", "cat"), [1, 0])
    assert not data.sorted_classes
    assert not table(tmp_path, [0, 1], ["cat", "dog"]).sorted_classes, "`datasets` has written them"
    numbered = table(tmp_path, [0, 1, 1], **params)
    assert numbered.labels.tolist() == [0, 1, 1]


def test_numbers_are_names_where_they_cannot_be_numbers_of_classes(tmp_path: Path) -> None:
    angles = ["270", "180", "90", "0"]
    assert table(tmp_path, [0, 90, 180, 270], class_names=angles).labels.tolist() == [3, 2, 1, 0]
    assert table(tmp_path, [0, 1, 3], class_names=angles).labels.tolist() == [0, 1, 3]
    with pytest.raises(CorruptData, match="column 'label' is 45, none of the 4 classes"):
        table(tmp_path, [0, 45, 270], class_names=angles)


def test_all_labels_that_are_no_class_are_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(CorruptData) as caught:
        table(tmp_path, ["cat", "dgo", "dgo", "fish", "ant"], class_names=["cat", "dog"])
    said = str(caught.value)
    assert (
        "test.parquet row 1 (the first is 0): column 'label' is 'dgo', none of the 2 classes (cat, dog)"
        in said
    )
    assert "did you mean 'dog'?" in said
    assert said.endswith("2 other labels are none of them: ant, fish")


def test_a_name_twice_in_a_file_and_two_statements_are_refused(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "labels.txt").write_text("cat\ncat\n")
    with pytest.raises(CorruptData, match="'cat' twice"):
        table(tmp_path, ["cat", "dog"], class_names_file="labels.txt")
    with pytest.raises(CorruptData, match="give one"):
        table(tmp_path, ["cat", "dog"], class_names_file="labels.txt", class_names=["cat", "dog"])
