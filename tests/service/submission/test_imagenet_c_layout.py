"""Missing parts of a tree of stored corrupted images are counted and named in one text."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from assay.service.contract.corruption_cells import Cell, cells_of, content_label
from assay.service.submission.imagenet_c_layout import WantedLayout, find_gaps
from tests.support.stored_trees import write_cells

CELLS: list[Cell] = [("fog", 1), ("fog", 2), ("snow", 1), ("snow", 2)]
CLASSES = ["ant", "bee", "cat"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_cells(tmp_path / "stored", CELLS, CLASSES, side=8, images=2)
    return tmp_path


def gaps(
    root: Path, cells: list[Cell] = CELLS, classes: list[str] | None = None, folder: str = "stored"
) -> str | None:
    return find_gaps(WantedLayout(root / folder, root, cells, classes))


def test_cells_are_every_corruption_at_every_severity_once() -> None:
    params = {"corruptions": ["fog", "snow", "fog"], "severities": [5, 1, 5]}
    assert cells_of(params) == [("fog", 1), ("fog", 5), ("snow", 1), ("snow", 5)]


def test_content_is_labelled_with_what_was_read_of_it() -> None:
    params = {"corruptions": ["snow", "fog"], "severities": [2, 1]}
    assert content_label("set", params) == content_label("set", params | {"source": "generated"}) == "set"
    label = content_label("set", params | {"source": "stored"})
    assert label == "set fog/1 fog/2 snow/1 snow/2"
    assert label == content_label("set", {**params, "source": "stored", "severities": [1, 2, 2]})


def test_a_whole_tree_lacks_nothing(root: Path) -> None:
    assert gaps(root) is None
    assert gaps(root, classes=CLASSES) is None


def test_what_is_missing_is_named(root: Path) -> None:
    stored = root / "stored"
    shutil.rmtree(stored / "snow" / "2")
    shutil.rmtree(stored / "fog" / "2" / "bee")
    (stored / "snow" / "1" / "ant" / "ant_2.png").unlink()
    found = gaps(root, [*CELLS, ("frost", 1), ("frost", 2)], ["ant", "bee", "cat", "dog"])
    assert found == (
        "1 corruptions are missing (frost); "
        "1 severities are missing (snow/2); "
        "1 classes are missing in every corruption and severity (dog); "
        "1 class folders are missing (fog/2: bee); "
        "1 images are missing that another corruption or severity has (snow/1: ant/ant_2.png)"
    )


def test_only_what_is_asked_for_is_looked_at(root: Path) -> None:
    shutil.rmtree(root / "stored" / "snow" / "2")
    (root / "stored" / "fog" / "2" / "ant" / "ant_0.png").unlink()
    assert gaps(root, [("fog", 1), ("snow", 1)]) is None
    assert gaps(root, [("fog", 2)]) is None  # nothing says that there was another image
    assert gaps(root, [("fog", 1), ("fog", 2)]) is not None


def test_what_is_too_much_or_empty_is_named(root: Path) -> None:
    stored = root / "stored"
    (stored / "fog" / "1" / "dog").mkdir()
    for name, severity in CELLS:
        for image in (stored / name / str(severity) / "cat").iterdir():
            image.unlink()
    (stored / "fog" / "1" / "ant" / "more").mkdir()
    assert gaps(root, classes=CLASSES) == (
        "1 classes have no image (cat); 1 folders are none of the classes (fog/1: dog); "
        "1 folders lie inside a class (fog/1: ant/more)"
    )
    # The right classes of a user's own set are unknown.
    assert str(gaps(root)).startswith("3 class folders are missing (fog/2: dog; snow/1: dog; snow/2: dog)")


def test_long_lists_are_shortened_with_a_count(root: Path) -> None:
    for image in range(10, 30):
        (root / "stored" / "fog" / "1" / "ant" / f"{image}.png").write_bytes(b"")
    found = gaps(root)
    names = ", ".join(f"ant/{image}.png" for image in range(10, 15))
    assert found is not None
    assert found.startswith("60 images are missing")
    assert f"(fog/2: {names} and 15 more; snow/1: {names} and 15 more;" in found
    many: list[Cell] = [(f"rain{number}", severity) for number in range(9) for severity in range(1, 6)]
    found = gaps(root, [*CELLS, *many])
    assert found is not None
    assert "9 corruptions are missing (rain0, rain1, rain2, rain3, rain4 and 4 more); 60 images" in found


@pytest.mark.parametrize(
    ("folder", "hint"),
    [
        (".", "Is the folder 'stored' in it meant?"),
        ("stored/fog", "It holds 1, 2"),
        ("stored/fog/1/ant", "It holds no folder"),
        ("grouped", "Some lie in weather: move these folders up by one level"),
    ],
)
def test_a_wrong_folder_is_explained(root: Path, folder: str, hint: str) -> None:
    (root / "grouped").mkdir()
    shutil.copytree(root / "stored", root / "grouped" / "weather")
    found = gaps(root, folder=folder)
    assert found is not None
    assert found.startswith("2 corruptions are missing (fog, snow). ")
    assert found.endswith(hint)


@pytest.mark.parametrize("place", ["fog", "fog/1", "fog/1/ant", "fog/1/ant/ant_0.png"])
def test_links_out_of_the_root_are_refused(
    root: Path, place: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    there = root / "stored" / place
    there.rename(outside / "it")
    there.symlink_to(outside / "it")
    with pytest.raises(ValueError, match="symbolic link"):
        gaps(root)


def test_nothing_is_said_of_what_a_link_leads_to(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (root / "stored" / "frost").symlink_to(tmp_path_factory.mktemp("outside"))
    with pytest.raises(ValueError, match="symbolic link"):  # whether or not there is a 1 in it
        gaps(root, [("frost", 1)])


def test_names_are_compared_until_enough_have_been_read(root: Path) -> None:
    (root / "stored" / "fog" / "1" / "cat" / "cat_0.png").unlink()
    tree = WantedLayout(root / "stored", root, CELLS)
    assert find_gaps(tree) is not None
    assert find_gaps(tree, max_names=12) is None
    (root / "stored" / "fog" / "1" / "ant" / "ant_0.png").unlink()
    assert find_gaps(tree, max_names=1) is not None
