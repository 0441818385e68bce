"""What the plan notices about the data: images resampled without need, and classes without examples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from PIL import Image

from assay.service.catalog.catalog import load
from assay.service.submission.validate import validate
from assay.workers.data import cifar10
from assay.workers.data.image_folder import image_folder
from assay.workers.data.objectnet import objectnet
from assay.workers.jobs import plan
from assay.workers.jobs.data_facts import (
    _named_classes,
    divided_from,
    empty_classes,
    found_in,
    other_content,
    resampled_images,
)
from assay.workers.jobs.data_warnings import of_data
from assay.workers.jobs.session import Session
from assay.workers.jobs.warnings import of_evaluation
from assay.workers.published.language import WIKITEXT_WORDS
from assay.workers.weights.fit import read_by
from assay.workers.weights.training_record import TrainedOn, trained_with
from tests.workers.data.test_cifar10 import ROWS, write_binary
from tests.workers.data.test_objectnet import write as write_objectnet
from tests.workers.jobs.test_warnings import FACTS, PGD

MODEL = {"name": "vit", "params": {"image_size": 16, "patch_size": 8, "depth": 1, "width": 8, "heads": 2}}
RESAMPLED = {"size": 16, "resized_to": 18, "crop_fraction": 0.875}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("cup", "hat", "ring"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(4):
            image = Image.new("RGB", (16, 16), (60 * number, 0, 90))
            image.save(tmp_path / "photos" / name / f"{number}.png")
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(tmp_path))
    return tmp_path


def planned(**params: Any) -> dict[str, Any]:
    """The plan of clean accuracy on the folder, of all its images."""
    found: dict[str, Any] = whole_plan(**params)["evaluations"][0]
    return found


def read_of_plan() -> Any:
    return whole_plan()["data_read"]


def whole_plan(**params: Any) -> dict[str, Any]:
    body = {
        "kind": "evaluate",
        "model": MODEL,
        "data": {"name": "image_folder", "params": {"folder": "photos", "splits": "all", **params}},
        "evaluations": [{"name": "clean"}],
        "execution": {"device": "cpu"},
    }
    request = {"spec": validate(load(), body).spec, "weights": None, "shard_seconds": 1e9}
    return dict(plan.run(request, Session(), lambda _: None)["plan"])  # type: ignore[arg-type]


def test_images_of_the_models_size_that_are_resized_are_told(root: Path) -> None:
    assert "resampled" not in planned(), "they stay as they are"
    assert "resampled" not in planned(crop_fraction=1.0)
    assert planned(crop_fraction=0.875)["resampled"] == RESAMPLED
    Image.new("RGB", (16, 20)).save(root / "photos" / "hat" / "3.png")
    assert "resampled" not in planned(crop_fraction=0.875), "one has another size: photos are resized"
    assert planned()["resampled"] == {**RESAMPLED, "as_they_are": 11, "looked_at": 12}
    for path in (root / "photos").rglob("*.png"):
        Image.new("RGB", (16, 20)).save(path)
    assert "resampled" not in planned(), "all are resized alike"


def test_how_images_of_other_sizes_are_resized_is_told_with_the_fraction_that_applied(root: Path) -> None:
    assert "resized" not in planned()
    assert read_of_plan() == {}
    for path in (root / "photos").rglob("*.png"):
        Image.new("RGB", (16, 20)).save(path)
    resized = {"size": 16, "short_side": 18, "crop_fraction": 0.875, "others": 12, "looked_at": 12}
    assert planned()["resized"] == resized
    assert [one["crop_fraction"] for one in read_of_plan().values()] == [0.875]
    assert planned(crop_fraction=1.0)["resized"] == {
        **resized, "short_side": 16, "crop_fraction": 1.0,
    }  # fmt: skip
    facts = {**PGD.planned, "resized": resized}
    (told,) = of_evaluation(FACTS, [{}], replace(PGD, planned=facts))  # type: ignore[arg-type]
    assert (told.code, told.severity, told.evidence) == ("resized_images", "note", resized)
    assert told.message.endswith("short side became 18 and the centre was cropped (crop_fraction 0.875)")


def test_a_file_that_cannot_be_read_is_left_to_the_evaluation(root: Path) -> None:
    (root / "photos" / "hat" / "3.png").write_bytes(b"no image")
    assert "resampled" not in planned(crop_fraction=0.875)


def test_the_first_200_files_are_looked_at(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = image_folder(root, "test", folder="photos", splits="all", crop_fraction=0.875)
    looked: list[int] = []
    monkeypatch.setattr(data, "stored_size", lambda index: looked.append(index) or (16, 16))
    assert resampled_images(data, [7] * 1000, 16) == RESAMPLED
    assert len(looked) == 200
    assert resampled_images(data, [], 16) is None


def test_the_border_of_objectnet_is_no_part_of_its_images(tmp_path: Path) -> None:
    write_objectnet(tmp_path)
    data = objectnet(tmp_path, "test")
    width, height = data.picture(0).size
    assert data.stored_size(0) == (width, height)


def test_a_model_trained_on_images_that_are_cropped_alike_is_not_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = {"name": "image_folder", "params": {"folder": "photos", "crop_fraction": 0.875}}
    metadata = TrainedOn(folder, ("cup", "hat"), 0).as_metadata()  # type: ignore[arg-type]
    loaded: Any = SimpleNamespace(metadata=metadata)
    assert trained_with(loaded, "crop_fraction", 0.875)
    assert not trained_with(loaded, "crop_fraction", 1.0)
    assert not trained_with(loaded, "absent", 1.0)
    assert not trained_with(SimpleNamespace(metadata={}), "crop_fraction", 0.875)  # type: ignore[arg-type]


@pytest.mark.parametrize(("recorded", "read"), [(0.875, 0.875), (None, None), ("no number", None)])
def test_images_are_cropped_as_in_the_models_training_where_no_fraction_is_stated(
    root: Path, recorded: Any, read: float | None
) -> None:
    """Weights of versions with the default 0.875 have it in their record, and were trained by it."""
    spec: Any = {"name": "image_folder", "params": {"folder": "photos", "crop_fraction": recorded}}
    backbone = SimpleNamespace()
    loaded: Any = SimpleNamespace(
        metadata=TrainedOn(spec, ("a", "b"), 0).as_metadata(), classifier=SimpleNamespace(backbone=backbone)
    )
    data = image_folder(root, "test", folder="photos", splits="all")
    assert read_by(loaded, data).crop_fraction == read  # type: ignore[attr-defined]
    assert data.crop_fraction is None
    assert found_in(read_by(loaded, data), None).get("crop_fraction") == read
    stated = image_folder(root, "test", folder="photos", splits="all", crop_fraction=1.0)
    assert read_by(loaded, stated) is stated
    assert "crop_fraction" not in found_in(stated, 1.0)


def test_what_was_ignored_is_in_the_plan(root: Path) -> None:
    assert found_in(image_folder(root, "test", folder="photos"), None) == {}
    (root / "photos" / "__MACOSX" / "cup").mkdir(parents=True)
    (root / "photos" / "cup" / "Thumbs.db").touch()
    data = image_folder(root, "test", folder="photos")
    ignored = {"count": 2, "first": ["__MACOSX/", "cup/Thumbs.db"]}
    assert found_in(data, None) == {"ignored": ignored}
    assert read_of_plan() == {
        "image_folder(channels=3, class_names=None, class_names_file=None, crop_fraction=None,"
        " exif_orientation=False, folder=photos, labels=None, resize=bicubic, splits=all)": {
            "ignored": ignored
        }
    }


def test_classes_without_an_example_are_told(root: Path) -> None:
    assert "empty_classes" not in planned()
    for path in (root / "photos" / "ring").iterdir():
        path.unlink()
    assert planned()["empty_classes"] == {"count": 1, "classes": ["ring"]}


def test_a_few_named_classes_are_in_the_plan(root: Path) -> None:
    assert planned()["class_names"] == ["cup", "hat", "ring"]
    for names in (("0", "1"), tuple(f"c{number}" for number in range(51)), ()):
        data: Any = SimpleNamespace(class_names=names)
        assert _named_classes(data) == []
    data = SimpleNamespace(class_names=("1", "0", "x" * 1000))
    assert _named_classes(data) == ["1", "0", "x" * 60]


def test_the_first_ten_empty_classes_are_named() -> None:
    names = tuple(f"c{number:02d}" for number in range(40))
    data: Any = SimpleNamespace(task="sequence", class_names=names, labels=torch.tensor([0, 5]))
    found = empty_classes(data)
    assert found == {"count": 38, "classes": [*names[1:5], *names[6:12]]}
    data.task = "segmentation"
    assert empty_classes(data) is None


def test_a_published_set_of_other_content_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve random images in the place of CIFAR-10's test set, in the files of its archive."""
    monkeypatch.setattr(cifar10, "ROWS", ROWS)
    write_binary(root)
    data = {"name": "cifar10", "params": {}}
    published = load().find("data", "cifar10").facts["content"]["test"]  # type: ignore[index]
    body = {"kind": "evaluate", "model": MODEL, "data": data, "evaluations": [{"name": "clean"}]}
    request = {"spec": validate(load(), body).spec, "weights": None, "shard_seconds": 1e9}
    found = plan.run(request, Session(), lambda _: None)["plan"]  # type: ignore[arg-type]
    (sha256,) = found["data_sha256"].values()
    (evaluation,) = found["evaluations"]
    assert evaluation["other_content"] == {"sha256": sha256, "published": published}
    (warning,) = of_evaluation(FACTS, [{}], replace(PGD, planned={**PGD.planned, **evaluation}))[:1]
    assert (warning.code, warning.severity) == ("other_content", "caution")
    assert warning.evidence == evaluation["other_content"]
    assert published[:12] in warning.message
    assert other_content({"name": "cifar10", "params": {}}, published, 10) is None
    assert other_content({"name": "digits", "params": {}}, sha256, 10) is None


def test_the_parts_of_wikitext_2_are_known_and_wikitext_103_is_not() -> None:
    """The number of words tells which of the two a folder has."""
    facts = load().find("data", "wikitext").facts
    assert facts is not None
    published, words = facts["content"], facts["content_classes"]
    assert {*published} == {"test", "valid"}
    assert words == 33_278 + 1, "padding, and the words that the authors count"
    for part, other in (("test", "valid"), ("valid", "test")):
        data: Any = {"name": "wikitext", "params": {"folder": "wikitext-2", "evaluated": part}}
        assert other_content(data, published[part], words) is None
        found = other_content(data, published[other], words)
        assert found == {"sha256": published[other], "published": published[part]}
        assert other_content(data, "0" * 64, WIKITEXT_WORDS) is None


def test_the_warnings_say_what_to_do() -> None:
    facts = {**PGD.planned, "resampled": RESAMPLED, "empty_classes": {"count": 12, "classes": ["a", "b"]}}
    resampled, empty = of_evaluation(FACTS, [{}], replace(PGD, planned=facts))  # type: ignore[arg-type]
    assert (resampled.code, resampled.severity, resampled.evidence) == (
        "resampled_images",
        "caution",
        RESAMPLED,
    )
    assert "16 x 16, and were enlarged to 18 and cropped" in resampled.message
    assert "without it they stay as they are" in resampled.message
    mixed = {**RESAMPLED, "as_they_are": 3, "looked_at": 12}
    (warning,) = of_evaluation(FACTS, [{}], replace(PGD, planned={**PGD.planned, "resampled": mixed}))  # type: ignore[arg-type]
    assert warning.message.startswith("3 of 12 images have the model's size, 16 x 16, and stay as they are")
    assert "--crop-fraction 1" in warning.message
    assert warning.evidence == mixed
    assert (empty.code, empty.severity) == ("empty_classes", "caution")
    assert empty.message.startswith("12 of 10 classes have no example (a, b, ...)")


def test_a_part_chosen_by_a_hash_is_told(root: Path) -> None:
    found = planned(splits="auto")
    assert (found["available"], found["divided_from"]) == (3, 12)
    assert "divided_from" not in planned(splits="all")
    (warning,) = [one for one in of_data(cast(Any, found), "images") if one.code == "held_out_fifth"]
    assert warning.evidence == {"available": 3, "of": 12}
    assert "3 of 12 images" in warning.message


def test_a_table_divided_by_a_hash_is_told_by_its_rows() -> None:
    files = [{"file": "a.csv", "rows": 10, "lines": None}]
    assert divided_from(cast(Any, SimpleNamespace(ids=["a", "b"], files_read=files))) == 10
    assert divided_from(cast(Any, SimpleNamespace(ids=["a"] * 10, files_read=files))) is None
    assert divided_from(cast(Any, SimpleNamespace(ids=["a"]))) is None
