"""The order of classes: numbers by value, other names as text, or the stated order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.service.submission.class_order import (
    WrongClasses,
    are_places,
    in_order,
    in_stated_order,
    stated_names,
)


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["10", "9", "2", "0"], ["0", "2", "9", "10"]),
        (["270", "0", "90", "180"], ["0", "90", "180", "270"]),
        (["1", "-1", "0", "-10"], ["-10", "-1", "0", "1"]),
        (["010", "002", "9"], ["002", "9", "010"]),
        (["10", "9", "ten"], ["10", "9", "ten"]),
        (["10", "9", "1.5"], ["1.5", "10", "9"]),
        (["10", "9", "+1"], ["+1", "10", "9"]),
        (["10", "9", "²"], ["10", "9", "²"]),
        (["b", "B", "a"], ["B", "a", "b"]),
        ([], []),
    ],
)
def test_whole_numbers_are_in_numeric_order(names: list[str], wanted: list[str]) -> None:
    assert in_order(names) == wanted


@pytest.mark.parametrize("names", [["1", "01", "2"], ["-0", "0"], ["007", "7", "07", "3"]])
def test_names_of_one_number_are_refused_by_name(names: list[str]) -> None:
    with pytest.raises(WrongClasses, match="are the same numbers") as caught:
        in_order(names)
    same = [name for name in names if [int(name) for name in names].count(int(name)) > 1]
    assert all(repr(name) in str(caught.value) for name in same)
    assert not any(repr(name) in str(caught.value) for name in {*names} - {*same})


def test_names_are_their_places() -> None:
    assert are_places(["0", "1", "2"])
    assert are_places(["00", "01"])
    assert not are_places(["1", "2", "3"])
    assert not are_places(["1", "0"])
    assert not are_places(["0", "one"])


def test_stated_names_may_differ_in_case_spaces_and_dashes() -> None:
    found = ["golden_retriever", "Cat", "10"]
    assert in_stated_order(["10", "Golden Retriever", "cat"], found, "x", "class folder") == [
        "10",
        "golden_retriever",
        "Cat",
    ]
    # Exact names come first, and what two names share decides nothing.
    assert in_stated_order(["cat", "Cat"], ["Cat", "cat"], "x", "class folder") == ["cat", "Cat"]
    with pytest.raises(WrongClasses):
        in_stated_order(["CAT", "dog"], ["Cat", "cat"], "x", "class folder")
    # Of two stated names neither is the one class: logits would be as many as names.
    with pytest.raises(WrongClasses, match="no class folder for the class names 'CAT'"):
        in_stated_order(["CAT", "Cat", "dog"], ["cat", "dog"], "x", "class folder")


def test_all_differences_are_told_at_once_with_the_nearest() -> None:
    with pytest.raises(WrongClasses) as caught:
        in_stated_order(
            ["dgo", "cat", "fish"], ["cat", "dog", "__MACOSX"], "the folder 'pets'", "class folder"
        )
    said = str(caught.value)
    assert "no class folder for the class names 'dgo' (did you mean 'dog'?), 'fish'" in said
    assert "has the class folders 'dog', '__MACOSX', which the class names lack" in said
    with pytest.raises(WrongClasses, match="have 'cat' twice"):
        in_stated_order(["cat", "cat"], ["cat", "dog"], "x", "label")


def test_a_file_in_the_folder_states_them(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("dog\ncat\n")
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {"1": "cat", "0": "dog"}}))
    for name in ("labels.txt", "config.json"):
        assert stated_names(tmp_path, tmp_path, None, name) == ["dog", "cat"]
    assert stated_names(tmp_path, tmp_path, ["a", "b"], None) == ["a", "b"]
    assert stated_names(tmp_path, tmp_path, None, None) is None
    with pytest.raises(WrongClasses, match=r"has no file 'label.txt'.*did you mean 'labels.txt'"):
        stated_names(tmp_path, tmp_path, None, "label.txt")
    with pytest.raises(WrongClasses, match="give one"):
        stated_names(tmp_path, tmp_path, ["a", "b"], "labels.txt")


@pytest.mark.parametrize("name", ["../labels.txt", "inner/labels.txt", "/labels.txt"])
def test_the_file_is_one_of_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "labels.txt").write_text("dog\ncat\n")
    (tmp_path / "set" / "inner").mkdir(parents=True)
    (tmp_path / "set" / "inner" / "labels.txt").write_text("dog\ncat\n")
    with pytest.raises(WrongClasses, match="has no file"):
        stated_names(tmp_path / "set", tmp_path, None, name)


def test_a_link_out_of_the_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("dog\ncat\n")
    (tmp_path / "root" / "set").mkdir(parents=True)
    (tmp_path / "root" / "set" / "labels.txt").symlink_to(tmp_path / "labels.txt")
    with pytest.raises(ValueError, match="link"):
        stated_names(tmp_path / "root" / "set", tmp_path / "root", None, "labels.txt")
