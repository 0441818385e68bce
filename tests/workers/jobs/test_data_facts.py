"""What the plan notices about the data: images resampled without need, and classes without examples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from assay.service.catalog.catalog import load
from assay.service.submission.validate import validate
from assay.workers.data.image_folder import image_folder
from assay.workers.data.objectnet import objectnet
from assay.workers.jobs import plan
from assay.workers.jobs.data_facts import empty_classes, resampled_images
from assay.workers.jobs.session import Session
from assay.workers.jobs.warnings import of_evaluation
from assay.workers.weights.training_record import TrainedOn, trained_with
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
    body = {
        "kind": "evaluate",
        "model": MODEL,
        "data": {"name": "image_folder", "params": {"folder": "photos", "splits": "all", **params}},
        "evaluations": [{"name": "clean"}],
        "execution": {"device": "cpu"},
    }
    request = {"spec": validate(load(), body).spec, "weights": None, "shard_seconds": 1e9}
    made: dict[str, Any] = plan.run(request, Session(), lambda _: None)["plan"]["evaluations"][0]  # type: ignore[arg-type]
    return made


def test_images_of_the_models_size_that_are_resized_are_told(root: Path) -> None:
    assert planned()["resampled"] == RESAMPLED
    assert "resampled" not in planned(crop_fraction=1.0)
    Image.new("RGB", (16, 20)).save(root / "photos" / "hat" / "3.png")
    assert "resampled" not in planned(), "one is another's size: photos of any size are resized"


def test_a_file_that_cannot_be_read_is_left_to_the_evaluation(root: Path) -> None:
    (root / "photos" / "hat" / "3.png").write_bytes(b"no image")
    assert "resampled" not in planned()


def test_the_first_200_files_are_looked_at(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = image_folder(root, "test", folder="photos", splits="all")
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
    assert trained_with(loaded, "crop_fraction", folder)  # type: ignore[arg-type]
    other: Any = {**folder, "params": {"folder": "photos", "crop_fraction": 1.0}}
    assert not trained_with(loaded, "crop_fraction", other)
    assert not trained_with(loaded, "absent", other)
    assert not trained_with(SimpleNamespace(metadata={}), "crop_fraction", other)  # type: ignore[arg-type]


def test_classes_without_an_example_are_told(root: Path) -> None:
    assert "empty_classes" not in planned()
    for path in (root / "photos" / "ring").iterdir():
        path.unlink()
    assert planned()["empty_classes"] == {"count": 1, "classes": ["ring"]}


def test_the_first_ten_empty_classes_are_named() -> None:
    names = tuple(f"c{number:02d}" for number in range(40))
    data: Any = SimpleNamespace(task="sequence", class_names=names, labels=torch.tensor([0, 5]))
    found = empty_classes(data)
    assert found == {"count": 38, "classes": [*names[1:5], *names[6:12]]}
    data.task = "segmentation"
    assert empty_classes(data) is None


def test_the_warnings_say_what_to_do() -> None:
    facts = {**PGD.planned, "resampled": RESAMPLED, "empty_classes": {"count": 12, "classes": ["a", "b"]}}
    resampled, empty = of_evaluation(FACTS, [{}], replace(PGD, planned=facts))  # type: ignore[arg-type]
    assert (resampled.code, resampled.severity, resampled.evidence) == (
        "resampled_images",
        "caution",
        RESAMPLED,
    )
    assert "16 x 16, and were enlarged to 18 and cropped" in resampled.message
    assert "--crop-fraction 1" in resampled.message
    assert (empty.code, empty.severity) == ("empty_classes", "caution")
    assert empty.message.startswith("12 of 10 classes have no example (a, b, ...)")
