"""Labels in a file beside the images: which file is meant, which columns, and refusals by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.images.image_files import ImageFiles
from assay.workers.data.formats.images.labels_files import NAMES, find_labels, listed_images


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four images, one of them in a folder below."""
    place = tmp_path / "flat"
    (place / "more").mkdir(parents=True)
    for name in ("b.png", "a.png", "c.jpg", "more/d.png"):
        Image.new("L", (2, 2)).save(place / name)
    return place


def read(folder: Path, text: str, *, file: str = "labels.csv", splits: str = "all") -> ImageFiles:
    (folder / file).write_text(text)
    return listed_images(folder, folder.parent, file, "test", splits, "image_folder")


def test_rows_are_images_in_the_order_of_their_names(folder: Path) -> None:
    found = read(folder, "name,label\nc.jpg,cat\na.png,dog\nmore/d.png,ant\n")
    assert found.class_names == ("ant", "cat", "dog")
    assert found.ids == ["a.png", "c.jpg", "more/d.png"]
    assert found.labels == [2, 1, 0]


def test_suffixes_may_be_left_out_and_spaces_do_not_count(folder: Path) -> None:
    found = read(folder, "name,label\n a , x \nmore/d,y\n")
    assert found.ids == ["a.png", "more/d.png"]
    assert found.class_names == ("x", "y")


def test_numbers_are_classes_in_the_order_of_numbers(folder: Path) -> None:
    found = read(folder, "name,label\na,10\nb,9\nc,10\n")
    assert found.class_names == ("9", "10")
    assert found.labels == [1, 0, 1]


@pytest.mark.parametrize("column", NAMES)
def test_columns_of_known_exports(folder: Path, column: str) -> None:
    assert read(folder, f"width,{column},label\n2,a.png,x\n2,b.png,y\n").ids == ["a.png", "b.png"]


def test_the_first_known_column_has_the_names(folder: Path) -> None:
    found = read(folder, "image\tname\tlabel\nnone.png\ta.png\tx\nnone.png\tb.png\ty\n", file="labels.tsv")
    assert found.ids == ["a.png", "b.png"]


def test_a_split_is_a_part_of_the_listed_images(folder: Path) -> None:
    text = "name,label\na,x\nb,x\nc,y\nmore/d,y\n"
    whole = read(folder, text)
    test = read(folder, text, splits="auto")
    assert 0 < len(test.ids) < len(whole.ids)
    assert set(test.ids) < set(whole.ids)
    assert test.class_names == whole.class_names


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("name,label\na,x\nz,y\n", MissingData, "names 1 of 2 images that are not beside it: z"),
        ("name,label\na,x\n" + "".join(f"{n},y\n" for n in range(6)), MissingData, "names 6 of 7 .*, 4, ..."),
        ("name,label\na,x\na.png,y\n", CorruptData, "names 'a.png' twice; an image has one label"),
        ("name,label\na,x\nb, \n", CorruptData, "'b' has no label"),
        ("name,label\na,x\nb,x\n", CorruptData, "has 1 different labels, at least 2 are needed"),
        ("name,class\na,x\nb,y\n", CorruptData, r"columns 'name', 'class'; .*mean 'label' for 'class'\?"),
        ("a.png,x\nb.png,y\n", CorruptData, "That is an image, not the names of columns"),
        ("name;label\na;x\n", CorruptData, "is separated by ;"),
        ("", CorruptData, "line 1 has the columns none; wanted are name"),
    ],
)
def test_wrong_files_are_refused(folder: Path, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read(folder, text)


@pytest.mark.parametrize("name", ["../labels.csv", "more/labels.csv", "a\\b.csv", ".labels.csv", "a\0.csv"])
def test_labels_are_the_name_of_a_file_in_the_folder(folder: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"is no name of a file in the folder, such as labels\.csv"):
        listed_images(folder, folder.parent, name, "test", "all", "image_folder")


def test_a_missing_file_is_refused_with_the_nearest(folder: Path) -> None:
    (folder / "labels.csv").touch()
    with pytest.raises(MissingData, match=r"label\.csv is wanted, .*Did you mean 'labels\.csv'\?"):
        listed_images(folder, folder.parent, "label.csv", "test", "all", "image_folder")
    with pytest.raises(CorruptData, match=r"'labels\.txt' is no CSV or TSV file"):
        listed_images(folder, folder.parent, "labels.txt", "test", "all", "image_folder")


def test_a_file_outside_the_data_root_is_refused(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    away = tmp_path_factory.mktemp("away") / "labels.csv"
    away.write_text("name,label\na,x\nb,y\n")
    (folder / "labels.csv").symlink_to(away)
    with pytest.raises(ValueError, match="leads out of the data root"):
        listed_images(folder, folder.parent, "labels.csv", "test", "all", "image_folder")


def test_the_file_with_the_columns_goes_before_files_that_seem_meant(folder: Path) -> None:
    assert find_labels(folder) is None
    (folder / "zoo.csv").write_text("id,kind\na.png,cat\n")
    assert find_labels(folder) == "zoo.csv", "its lines name images"
    (folder / "b_labels.csv").write_text("x,y\n1,2\n")
    assert find_labels(folder) == "b_labels.csv", "its name says it, and it comes first"
    (folder / "z.tsv").write_text("file_name\tlabel\na\tcat\n")
    assert find_labels(folder) == "z.tsv"


def test_tables_of_texts_and_folders_without_images_have_none(folder: Path, tmp_path: Path) -> None:
    (folder / "test.csv").write_text("text,label\na,1\n")
    assert find_labels(folder) is None
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "labels.csv").write_text("name,label\na,x\n")
    assert find_labels(tmp_path / "empty") is None
