"""Files of labels, judged before a job: all faults at once, and no more than a worker finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.service.submission.labels_file import read_labels

GOOD = "name,label\na.png,cat\nb,dog\nsub/c.jpg,10\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "pets"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.png", "b.png", "sub/c.jpg", ".hidden.png", "notes.txt"):
        (folder / name).touch()
    return folder


def test_images_and_classes_are_known(folder: Path) -> None:
    (folder / "labels.csv").write_text(GOOD)
    found = read_labels(folder, folder.parent, "labels.csv")
    assert found is not None
    assert (found.images, found.classes, found.faults) == (
        ["a.png", "b.png", "sub/c.jpg"],
        ["10", "cat", "dog"],
        [],
    )


def test_all_faults_are_said_at_once(folder: Path) -> None:
    (folder / "labels.csv").write_text("name,label\na.png,cat\na,cat\nx.png,cat\nb.png,\n.hidden.png,cat\n")
    found = read_labels(folder, folder.parent, "labels.csv")
    assert found is not None
    assert found.classes is None
    assert found.faults == [
        "2 of its images are not beside it: x.png, .hidden.png",
        "1 of its images have no label: b.png",
        "1 of its images stand in it more than once: a.png",
        "it has 1 different labels, at least 2 are needed",
    ]
    missing = read_labels(folder, folder.parent, "label.csv")
    assert missing is not None
    assert missing.faults == ["there is no such file; did you mean 'labels.csv'?"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.txt", GOOD),
        ("labels.csv", "id,label\na.png,cat\n"),
        ("labels.csv", "name,label\na.png\n"),
        ("labels.csv", 'name,label\n"a.png,cat\n'),
        ("labels.csv", ""),
    ],
)
def test_what_else_is_wrong_is_the_workers_to_say(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    assert read_labels(folder, folder.parent, name) is None
