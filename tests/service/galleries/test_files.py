"""Galleries among the files of a job: which are read, their pictures and answers, and drawings of series."""

from __future__ import annotations

import base64
import hashlib
import struct
from pathlib import Path
from typing import Any

import pytest

from assay.service.contract.errors import NotFound
from assay.service.contract.gallery import MAX_BYTES, Gallery, GalleryAnswer, GalleryImage, GallerySeries
from assay.service.files.file_store import FolderFiles
from assay.service.galleries.files import (
    DRAWN_HEIGHT,
    DRAWN_WIDTH,
    MAX_DRAWN_FEATURES,
    MAX_DRAWN_POINTS,
    GalleryFile,
    answer_text,
    class_text,
    drawings,
    gallery_files,
    picture_of,
    read_gallery,
)
from assay.service.store.rows import ArtifactRow

NAMES: dict[int | None, str] = {1: "cat", 2: "2", 3: "", 4: "<b>\u202e"}


def png(width: int, height: int, kind: bytes = b"IHDR") -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(head)) + kind + head + bytes(4)


def artifact(name: str, content: bytes = b"", **changes: Any) -> ArtifactRow:
    given = {"job_id": "j", "name": name, "path": f"j/{name}", "size": len(content), "created_at": 0.0}
    digest = {"sha256": hashlib.sha256(content).hexdigest(), "media_type": "application/json"}
    return ArtifactRow(**{**given, **digest, "expired_at": None, **changes})


def answered(**changes: Any) -> dict[str, Any]:
    answers = {"before": {"prediction": 1}, "after": {"prediction": 2}}
    return {"id": "x", "rank": 0, "succeeded": True, "label": 1, **answers, **changes}


def image(content: bytes | str, width: int = 2, height: int = 3) -> GalleryImage:
    text = content if isinstance(content, str) else base64.b64encode(content).decode()
    sizes = {"width": width, "height": height, "factor": 1.0, "linf": 0.1, "l2": 0.1}
    return GalleryImage.model_validate(answered(kind="image", clean=text, changed=text, **sizes))


def series(clean: list[Any], perturbed: list[Any]) -> GallerySeries:
    count = len(clean)
    values = {"features": [*range(count)], "all_features": count, "steps": len(clean[0]), "every": 1}
    return GallerySeries.model_validate(answered(kind="series", clean=clean, perturbed=perturbed, **values))


def points(text: str) -> list[tuple[int, int]]:
    found = [tuple(map(int, point.split(","))) for point in text.split()]
    return [(x, y) for x, y in found]


def test_galleries_are_found_by_name_in_order() -> None:
    names = ("gallery-010-pgd.json", "gallery-002-my.attack_2.json", "gallery-123456-x.json")
    rows = [artifact(name) for name in names]
    assert [(one.index, one.evaluation) for one in gallery_files(rows)] == [
        (2, "my.attack_2"),
        (10, "pgd"),
        (123456, "x"),
    ]


@pytest.mark.parametrize(
    "name",
    [
        "gallery-01-pgd.json",
        "gallery-1234567-pgd.json",
        "gallery-\u0661\u0661\u0661-pgd.json",
        "gallery-001-.json",
        "gallery-001-a/b.json",
        "gallery-001-a b.json",
        "gallery-001-pgd.json\n",
        "gallery-001-pgd.JSON",
        "gallery-001-" + "x" * 201 + ".json",
        "x-gallery-001-pgd.json",
    ],
)
def test_files_of_other_names_are_none(name: str) -> None:
    assert gallery_files([artifact(name)]) == []


def test_expired_and_too_large_files_are_left_out() -> None:
    name = "gallery-000-pgd.json"
    assert gallery_files([artifact(name, expired_at=1.0)]) == []
    assert gallery_files([artifact(name, size=MAX_BYTES + 1)]) == []
    assert len(gallery_files([artifact(name, size=MAX_BYTES)])) == 1


def stored(folder: Path, content: bytes) -> GalleryFile:
    name = "gallery-000-pgd.json"
    path = folder / "j" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    (file,) = gallery_files([artifact(name, content, path=str(path))])
    return file


def test_a_gallery_is_read_and_a_damaged_one_told(tmp_path: Path) -> None:
    head = {"kind": "image", "evaluation": "pgd", "params": {}, "protocol": "pixel", "classes": []}
    whole = Gallery.model_validate({**head, "items": [image(png(2, 3)).model_dump()]})
    assert read_gallery(FolderFiles(tmp_path), stored(tmp_path, whole.model_dump_json().encode())) == whole
    for content in (b"", b"{", b"[]", b"\xff\xfe", b'{"version": 2}', b"[" * 100_000):
        with pytest.raises(
            NotFound, match=r"the gallery 'gallery-000-pgd\.json' cannot be read: it is damaged"
        ):
            read_gallery(FolderFiles(tmp_path), stored(tmp_path, content))


def test_a_picture_is_a_png_of_the_stated_size() -> None:
    assert picture_of(image(png(2, 3)), "clean") == png(2, 3)
    html = b"<html><script>alert(1)</script>" + bytes(40)
    wrong = (png(3, 2), png(2, 3)[:32], png(2, 3, b"IDAT"), html, "AAAAA")
    for content in wrong:
        with pytest.raises(NotFound, match="the picture 'clean' is damaged"):
            picture_of(image(content), "clean")


def test_what_an_item_does_not_have_is_told_with_what_it_may_have() -> None:
    for name in ("truth", "id", "__class__", "x" * 10_000):
        with pytest.raises(NotFound) as told:
            picture_of(image(png(2, 3)), name)
        assert told.value.message.endswith("allowed: clean, changed, difference, truth, before, after")
        assert len(told.value.message) < 200
    with pytest.raises(NotFound):
        picture_of(series([[1.0]], [[1.0]]), "clean")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "-"),
        ({"prediction": 1, "confidence": 0.9912}, "cat (99.1 %)"),
        ({"prediction": 7}, "7"),
        ({"prediction": 0, "confidence": 0.0}, "0 (0.0 %)"),
        ({"prediction": None}, "no finite answer"),
        ({"prediction": None, "value": -0.000012345}, "-1.234e-05"),
    ],
)
def test_answers_in_words(answer: dict[str, Any] | None, text: str) -> None:
    given = None if answer is None else GalleryAnswer.model_validate(answer)
    assert answer_text(given, NAMES) == text


def test_classes_have_their_name_where_it_says_more_than_the_number() -> None:
    found = [class_text(label, NAMES) for label in (None, 0, 1, 2, 3, 4)]
    assert found == ["-", "0", "cat", "2", "3", "<b>\u202e"]


def test_the_features_that_changed_most_are_drawn_in_their_order() -> None:
    waves = [[float(step % 7) * (1 + feature) for step in range(512)] for feature in range(8)]
    changes = (1, 7, 2, 0, 6, 3, 5, 4)
    moved = [[value + change for value in wave] for wave, change in zip(waves, changes, strict=True)]
    found = drawings(series(waves, moved))
    assert [one.feature for one in found] == [1, 4, 6]
    assert len(found) == MAX_DRAWN_FEATURES
    for one in found:
        for line in (points(one.clean), points(one.perturbed)):
            assert len(line) <= MAX_DRAWN_POINTS
            assert line[0][0] == 0
            assert line[-1][0] == DRAWN_WIDTH
            assert all(0 <= y <= DRAWN_HEIGHT for _, y in line)


def test_large_values_are_high_and_both_lines_share_a_scale() -> None:
    (found,) = drawings(series([[0.0, 1.0]], [[0.0, 2.0]]))
    assert (found.low, found.high) == (0.0, 2.0)
    (_, low), (_, middle) = points(found.clean)
    (_, same), (_, high) = points(found.perturbed)
    assert low == same == DRAWN_HEIGHT - 2
    assert high == 2
    assert middle == DRAWN_HEIGHT / 2


def test_extreme_constant_and_empty_series() -> None:
    (extreme,) = drawings(series([[1.7e308, -1.7e308]], [[0.0, 0.0]]))
    assert points(extreme.clean) == [(0, 2), (DRAWN_WIDTH, DRAWN_HEIGHT - 2)]
    (constant,) = drawings(series([[1.0]], [[1.0]]))
    assert points(constant.clean) == [(0, 2)]
    assert drawings(series([[]], [[]])) == []
