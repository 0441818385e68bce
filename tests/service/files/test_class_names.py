"""Names of classes as files and options have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.service.files.class_names import BadClassNames, class_names_in, class_names_of, read_class_names

PETS = ["cat", "dog", "fish"]


@pytest.mark.parametrize(
    "content",
    [
        PETS,
        {"0": "cat", "1": "dog", "2": "fish"},
        {"2": "fish", "0": "cat", "1": "dog"},
        {"cat": 0, "fish": 2, "dog": 1},
        {"model_type": "vit", "id2label": {"0": "cat", "1": "dog", "2": "fish"}, "label2id": {"x": 0}},
        {"label2id": {"cat": 0, "dog": 1, "fish": 2}},
        {"label_names": PETS, "architecture": "resnet18"},
    ],
)
def test_json_has_them_in_the_usual_forms(content: Any, tmp_path: Path) -> None:
    (tmp_path / "labels").write_text(json.dumps(content, indent=1))
    assert read_class_names(tmp_path / "labels") == PETS


def test_a_line_is_a_name(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_bytes("\ufeffcat \r\n\r\nnièce, great\r\n".encode())
    assert read_class_names(tmp_path / "labels.txt") == ["cat", "nièce, great"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no names"),
        ("cat\ndog\ncat", "'cat' twice"),
        ('["cat", 1]', "no list of texts"),
        ('{"0": "cat", "2": "dog"}', "the numbers 0 to 1"),
        ('{"cat": 1, "dog": 2}', "the numbers 0 to 1"),
        ('{"cat": 0, "dog": 0}', "the numbers 0 to 1"),
        ('{"cat": true, "dog": false}', "neither a text"),
        ('{"a": {"b": 1}}', "neither a text"),
        ("[", "begins like JSON"),
        ("x" * 201 + "\ny", "200 printable"),
        ("a\x00b\nc", "200 printable"),
    ],
)
def test_what_has_no_names_is_refused(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadClassNames, match=words):
        class_names_in(text)
    (tmp_path / "labels.txt").write_text(text)
    with pytest.raises(BadClassNames, match=words) as caught:
        read_class_names(tmp_path / "labels.txt")
    assert str(tmp_path / "labels.txt") in str(caught.value)


def test_an_option_is_a_file_or_names(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    assert class_names_of(str(tmp_path / "labels.txt")) == ["cat", "dog"]
    assert class_names_of("cat, dog,10") == ["cat", "dog", "10"]
    assert class_names_of('["a,b", "c"]') == ["a,b", "c"]
    with pytest.raises(BadClassNames, match="is a single name, and no file; wanted"):
        class_names_of("lables.txt")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_bytes(b"\xff\xfe\x00cat")
    with pytest.raises(BadClassNames, match=r"labels\.txt cannot be read"):
        read_class_names(tmp_path / "labels.txt")
    with pytest.raises(BadClassNames, match=r"absent\.txt cannot be read"):
        read_class_names(tmp_path / "absent.txt")
