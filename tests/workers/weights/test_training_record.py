"""Warnings on evaluating training examples, or other classes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from assay.workers.data.formats.dataset import MissingData
from assay.workers.jobs import plan, train
from assay.workers.jobs.session import Session
from assay.workers.weights.training_record import TrainedOn, doubts, parse_trained_on

CLASSES = ("cat", "dog")


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of two classes with ten images each, and one whose second class has another name."""
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(tmp_path))
    for folder, names in {"pets": CLASSES, "others": ("cat", "fox")}.items():
        for name in names:
            (tmp_path / folder / name).mkdir(parents=True)
            for number in range(10):
                Image.new("RGB", (16, 16), (number, 0, 0)).save(tmp_path / folder / name / f"{number}.png")


def data(folder: str, splits: str = "auto") -> dict[str, Any]:
    params = {"folder": folder, "splits": splits, "resize": "bicubic", "crop_fraction": 1.0}
    return {"name": "image_folder", "params": params}


def doubted(spec: dict[str, Any], source: TrainedOn | None, evaluated: dict[str, Any]) -> dict[str, int]:
    session = Session()
    loaded = session.classifier(spec | {"data": evaluated}, device="cpu", weights=None)
    examples = session.data(evaluated, "test")
    loaded = replace(loaded, metadata={} if source is None else source.as_metadata())
    return doubts(session, loaded, evaluated, examples, examples.ids)


def trained(spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    spec = spec | {"kind": "train", "recipe": {"name": "small_vit", "params": {"epochs": 1}}}
    request = {
        "spec": spec,
        "weights": None,
        "folder": folder,
        "checkpoint_seconds": 60,
        "job": "j",
        "cores": 1,
    }
    with torch.random.fork_rng():
        return train.run(request, Session(), lambda _: None)


def test_images_that_were_trained_on_are_counted(spec: dict[str, Any]) -> None:
    held_out = TrainedOn(data("pets"), CLASSES, 0)
    assert doubted(spec, held_out, data("pets")) == {}
    assert doubted(spec, held_out, data("pets", "all")) == {"seen": 16}
    everything = TrainedOn(data("pets", "all"), CLASSES, 20)
    assert doubted(spec, everything, data("pets", "all")) == {"seen": 20}
    assert doubted(spec, everything, data("pets")) == {"seen": 4}


def test_classes_of_another_name_are_counted(spec: dict[str, Any]) -> None:
    assert doubted(spec, TrainedOn(data("pets"), CLASSES, 0), data("others")) == {"renamed": 1}


def test_weights_that_were_selected_on_the_test_set_are_doubted_there(spec: dict[str, Any]) -> None:
    chosen = TrainedOn(data("pets"), CLASSES, 0, selected_on_test=True)
    assert parse_trained_on(chosen.as_metadata()) == chosen
    assert doubted(spec, chosen, data("pets")) == {"selected_on_test": 1}
    assert doubted(spec, chosen, data("others")) == {"renamed": 1}


def test_weights_that_say_nothing_raise_no_doubt(spec: dict[str, Any]) -> None:
    assert doubted(spec, None, data("pets", "all")) == {}
    gone = TrainedOn(data("gone"), CLASSES, 5)
    assert doubted(spec, gone, data("pets")) == {}


@pytest.mark.trains
def test_a_training_remembers_its_data(spec: dict[str, Any], tmp_path: Path) -> None:
    answer = trained(spec | {"data": data("pets", "all")}, tmp_path / "run")
    known = {"classes": 2, "class_names": ["cat", "dog"]}
    assert answer["extra"]["plan"]["evaluations"] == [{"n": 20, "available": 20, **known, "seen": 20}]
    weights = str(tmp_path / "run" / "weights.safetensors")
    request = {"spec": spec | {"data": data("pets")}, "weights": weights, "shard_seconds": 60.0}
    made = plan.run(request, Session(), lambda _: None)["plan"]
    assert made["evaluations"] == [{"n": 4, "available": 4, **known, "seen": 4}] * 2


def test_missing_held_out_images_are_told_before_the_training(spec: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "split").mkdir()
    (tmp_path / "pets").rename(tmp_path / "split" / "train")
    with pytest.raises(MissingData, match="The test images of"):
        trained(spec | {"data": data("split")}, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_same_classes_in_another_order_are_found_by_name(spec: dict[str, Any]) -> None:
    """Such as weights of a time when folders of numbers were sorted as text."""
    assert doubted(spec, TrainedOn(data("pets"), CLASSES[::-1], 0), data("pets")) == {}
