"""Galleries of jobs: the examples of all shards, in any order, and what happens without them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from assay.service.contract import gallery as contract
from assay.service.contract.gallery import Gallery, GalleryClass, GalleryImage, GalleryText, chosen
from assay.service.files.file_store import FolderFiles, write_file
from assay.service.store.rows import OutcomeRow
from assay.workers.jobs.galleries import joined_gallery, remove_parts, write_gallery

PNG = "iVBORw0KGgo="


def image(rank: int, succeeded: bool = True, **fields: Any) -> GalleryImage:
    return GalleryImage(
        id=f"x{rank}",
        rank=rank,
        succeeded=succeeded,
        **{"width": 4, "height": 4, "clean": PNG, "changed": PNG} | fields,
    )


def part(*items: Any, classes: tuple[int | None, ...] = ()) -> Gallery:
    named = [GalleryClass(index=index, name=str(index)) for index in classes]
    return Gallery(
        kind="image",
        evaluation="pgd",
        params={"steps": 1},
        protocol="pixel",
        classes=named,
        items=list(items),
    )


def row(folder: Path, number: int, content: Gallery) -> OutcomeRow:
    described = write_file(folder / f"gallery-000-pgd-{number:08d}.json", content.model_dump_json().encode())
    return OutcomeRow(0, number, 0, {}, 0.0, 0, 0, {"gallery": described})  # type: ignore[arg-type]


def test_successes_come_first_by_rank() -> None:
    items = [image(3, False), image(1, False), image(9), image(4)]
    assert [one.rank for one in chosen(items)] == [4, 9, 1, 3]
    many = [image(rank) for rank in range(20)]
    assert [one.rank for one in chosen(many[::-1])] == list(range(12))
    large = [image(rank, width=200, height=100) for rank in range(20)]
    assert len(chosen(large)) == 6


def test_corrupted_images_are_those_of_one_example() -> None:
    items = [image(rank, corruption=name, severity=5) for rank in (8, 2) for name in ("fog", "snow")]
    assert [(one.rank, one.corruption) for one in chosen(items)] == [(2, "fog"), (2, "snow")]


def test_the_order_of_the_shards_changes_nothing() -> None:
    parts = [part(image(5), image(2, False), classes=(3, None)), part(image(1), classes=(0, 3))]
    whole = joined_gallery(parts)
    assert whole == joined_gallery(parts[::-1])
    assert [one.rank for one in whole.items] == [1, 5, 2]
    assert [one.index for one in whole.classes] == [0, 3, None]


def test_items_over_the_limit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.workers.jobs.galleries.MAX_BYTES", 2500)
    whole = joined_gallery([part(*(image(rank, clean=PNG[:-1] + "A" * 401) for rank in range(9)))])
    assert 0 < len(whole.items) < 9
    assert whole.left_out == 9 - len(whole.items)
    assert len(whole.model_dump_json()) <= 2500


def of_job(folder: Path) -> tuple[FolderFiles, str]:
    return FolderFiles(folder.parent), folder.name


def test_a_gallery_is_written_and_its_parts_go(tmp_path: Path) -> None:
    rows = [row(tmp_path, 0, part(image(1))), row(tmp_path, 1, part(image(0)))]
    (described,) = write_gallery(*of_job(tmp_path), 0, "pgd", rows)
    assert described["name"] == "gallery-000-pgd.json"
    found = Gallery.model_validate_json((tmp_path / "gallery-000-pgd.json").read_bytes())
    assert [one.id for one in found.items] == ["x0", "x1"]
    remove_parts(*of_job(tmp_path), rows)
    assert [path.name for path in tmp_path.iterdir()] == ["gallery-000-pgd.json"]
    assert write_gallery(*of_job(tmp_path), 0, "pgd", rows) == [], "a repetition leaves what is there"
    remove_parts(*of_job(tmp_path), rows)


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"version": 2}', "x" * 100])
def test_malformed_candidates_fail_no_job(tmp_path: Path, content: str) -> None:
    good = row(tmp_path, 0, part(image(1)))
    described = write_file(tmp_path / "gallery-000-pgd-00000001.json", content.encode())
    bad = OutcomeRow(0, 1, 0, {}, 0.0, 0, 0, {"gallery": described})  # type: ignore[arg-type]
    assert write_gallery(*of_job(tmp_path), 0, "pgd", [good, bad]) == []


def test_a_link_or_another_file_is_not_read(tmp_path: Path) -> None:
    one = row(tmp_path, 0, part(image(1)))
    path = tmp_path / one.extra["gallery"]["name"]
    path.write_text(path.read_text() + " ")
    assert write_gallery(*of_job(tmp_path), 0, "pgd", [one]) == []
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    assert write_gallery(*of_job(tmp_path), 0, "pgd", [one]) == []


def test_evaluations_without_candidates_have_no_gallery(tmp_path: Path) -> None:
    plain = OutcomeRow(0, 0, 0, {}, 0.0, 0, 0, {})  # type: ignore[arg-type]
    assert write_gallery(*of_job(tmp_path), 0, "clean", [plain]) == []


@pytest.mark.parametrize(
    "change",
    [
        {"clean": "javascript:alert(1)"},
        {"clean": "<svg>"},
        {"factor": float("nan")},
        {"linf": float("inf")},
        {"after": {"confidence": 1.5}},
        {"unknown": 1},
    ],
    ids=str,
)
def test_hostile_items_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        GalleryImage.model_validate(image(0).model_dump() | change)


def test_the_limits_of_texts() -> None:
    tokens = [{"text": "a"}] * (contract.MAX_TOKENS + 1)
    item = {"id": "a", "rank": 0, "succeeded": True, "clean": tokens, "perturbed": [], "words": 1}
    with pytest.raises(ValidationError):
        GalleryText.model_validate_json(json.dumps(item))
