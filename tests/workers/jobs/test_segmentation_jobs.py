"""Segmentation jobs, from the spec to the columns of their shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from assay.service.catalog.catalog import load
from assay.service.contract.corruption_cells import cells_of
from assay.service.contract.errors import InvalidSpec
from assay.service.metrics import table as table_module
from assay.service.metrics.registry import TABLES
from assay.service.metrics.tables.corrupted_segmentation import corrupted_segmentation_metrics
from assay.service.metrics.tables.segmentation import segmentation_metrics
from assay.service.metrics.tables.worst_case import worst_case
from assay.service.submission.validate import validate
from assay.workers.data.formats.dataset import MissingData
from assay.workers.jobs import evaluate, plan, train
from assay.workers.jobs.session import Session

BACKBONE = {
    "name": "vit",
    "params": {"image_size": 32, "patch_size": 4, "width": 32, "depth": 2, "heads": 2, "drop_path": 0.0},
}
EXECUTION = {"device": "cpu", "batch_size": 32}
SEGMENTER = {"name": "segmenter", "params": {"backbone": BACKBONE, "decoder": "linear"}}


def training(**changes: Any) -> dict[str, Any]:
    recipe = {"name": "small_segmenter", "params": {"epochs": 1, "warmup_epochs": 0.1}}
    shared = {"model": SEGMENTER, "data": {"name": "shapes"}, "execution": EXECUTION}
    return {"kind": "train", "recipe": recipe, **shared, **changes}


def evaluating(**changes: Any) -> dict[str, Any]:
    shared = {"model": SEGMENTER, "data": {"name": "shapes"}, "execution": EXECUTION}
    return {"kind": "evaluate", "evaluations": [{"name": "clean"}], **shared, **changes}


def problems(body: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), body)
    return {".".join(map(str, detail.loc)): detail.message for detail in caught.value.details}


def trained(folder: Path, **changes: Any) -> dict[str, Any]:
    spec = validate(load(), training(**changes)).spec
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


def shards(spec: dict[str, Any], weights: str | None, shard_seconds: float) -> list[dict[str, Any]]:
    session = Session()
    request = {"spec": spec, "weights": weights, "shard_seconds": shard_seconds}
    made = plan.run(request, session, lambda _: None)["plan"]
    common = {"spec": spec, "plan": made, "weights": weights}
    return [evaluate.run(common | shard, session, lambda _: None) for shard in made["shards"]]


def joined(outcomes: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {
        name: [value for outcome in outcomes for value in outcome["columns"][name]]
        for name in outcomes[0]["columns"]
    }


def test_what_is_for_classification_is_refused_with_the_reason() -> None:
    classifier = {"model": {"name": "vit"}, "data": {"name": "digits"}}
    found = problems(evaluating(evaluations=[{"name": "sea"}], **classifier))
    message = "'sea' is for segmentation, the model 'vit' is for classification"
    assert found == {"evaluations.0.name": message}
    found = problems(evaluating(evaluations=[{"name": "pgd"}, {"name": "autoattack"}]))
    assert found == {
        f"evaluations.{number}.name": f"{name!r} is for {tasks}, the model 'segmenter' is for segmentation"
        for number, (name, tasks) in enumerate(
            [("pgd", "classification and series"), ("autoattack", "classification")]
        )
    }
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), evaluating(evaluations=[{"name": "pgd"}]))
    (detail,) = caught.value.details
    assert detail.nearest == "segpgd"
    assert {"segpgd", "sea", "sliding_window"} <= set(detail.allowed)
    assert "pgd" not in detail.allowed
    message = "'small_vit' is for classification, the model 'segmenter' is for segmentation"
    assert problems(training(recipe={"name": "small_vit"})) == {"recipe.name": message}
    message = "'digits' is data for classification, the model 'segmenter' is for segmentation"
    assert problems(evaluating(data={"name": "digits"})) == {"data.name": message}
    message = "'shapes' is data for segmentation, the model 'vit' is for classification"
    assert problems(evaluating(model={"name": "vit"}))["data.name"] == message


def test_a_backbone_that_does_not_fit_is_refused_with_the_reason() -> None:
    resnet = {"name": "timm", "params": {"architecture": "resnet18"}}
    found = problems(evaluating(model={"name": "segmenter", "params": {"backbone": resnet}}))
    message = "the model 'timm' has no patch_tokens, which backbone must have"
    assert found["model.params.backbone.name"] == message
    uneven = {"name": "vit", "params": {"width": 50}}
    found = problems(evaluating(model={"name": "segmenter", "params": {"backbone": uneven}}))
    assert "heads must divide width" in found["model.params.backbone.params"]


def test_shards_add_up_to_the_whole(tmp_path: Path) -> None:
    spec = validate(load(), evaluating(limit=100)).spec
    whole, parts = shards(spec, None, 1e9), shards(spec, None, 1e-9)
    assert (len(whole), len(parts)) == (1, 4)
    assert joined(parts) == joined(whole)
    assert sum(outcome["forward_passes"] for outcome in parts) == 100
    targets = torch.tensor(joined(whole)["target"])
    assert (targets.shape, bool((targets.sum(1) <= 32 * 32).all())) == ((100, 5), True)


@pytest.mark.costly
@pytest.mark.trains
def test_a_trained_model_is_measured_as_at_the_end_of_its_training(tmp_path: Path) -> None:
    answer = trained(tmp_path)
    names = ["background", "disc", "square", "triangle", "diamond"]
    known = {"classes": 5, "class_names": names}
    assert answer["extra"]["plan"]["evaluations"] == [{"n": 200, "available": 200, **known}]
    model = {**SEGMENTER, "weights": {"job": "j"}}
    spec = validate(load(), evaluating(model=model)).spec
    measured = joined(shards(spec, str(tmp_path / "weights.safetensors"), 1e-9))
    assert measured == joined([answer])
    again = trained(tmp_path / "again")
    assert again["columns"] == answer["columns"]


@pytest.mark.costly
@pytest.mark.trains
def test_segmenters_recipe_trains_on_crops_and_is_measured_in_windows(tmp_path: Path) -> None:
    params = {"epochs": 2, "crop_size": 24, "short_side": 32, "learning_rate": 0.05}
    answer = trained(tmp_path, recipe={"name": "segmenter", "params": params})
    assert answer["backward_passes"] == 2 * 800
    model = {**SEGMENTER, "weights": {"job": "j"}}
    windows = {"name": "sliding_window", "params": {"short_side": 64, "window": 32, "stride": 24}}
    spec = validate(load(), evaluating(model=model, evaluations=[windows], limit=100)).spec
    whole, parts = (shards(spec, str(tmp_path / "weights.safetensors"), seconds) for seconds in (1e9, 1e-9))
    assert (len(whole), len(parts)) == (1, 4)
    assert joined(parts) == joined(whole)
    assert sum(outcome["forward_passes"] for outcome in parts) == 9 * 100
    columns = joined(whole)
    judged = {sum(row) for row in columns["target"]}
    assert 50 * 50 < min(judged) <= max(judged) <= 64 * 64  # every pixel of the file but the outlines
    metrics = segmentation_metrics(columns)["pixel_accuracy"]
    assert metrics.value is not None
    assert metrics.value > 0.6


CELLS = {"corruptions": ["gaussian_noise", "fog"], "severities": [1, 4]}


@pytest.mark.costly
@pytest.mark.parametrize(
    ("name", "params", "forward"),
    [
        ("corruptions", CELLS, 5),
        ("sliding_window_corruptions", {**CELLS, "short_side": 64, "window": 32, "stride": 32}, 20),
    ],
)
def test_corrupted_shards_add_up_to_the_whole(name: str, params: dict[str, Any], forward: int) -> None:
    item = {"name": name, "params": params}
    spec = validate(load(), evaluating(evaluations=[item], limit=70)).spec
    whole, parts = shards(spec, None, 1e9), shards(spec, None, 1e-9)
    assert (len(whole), len(parts)) == (1, 3)
    assert joined(parts) == joined(whole)
    assert sum(outcome["forward_passes"] for outcome in parts) == forward * 70
    table = TABLES["corrupted_segmentation"]
    columns = table_module.joined(table.columns, [outcome["columns"] for outcome in parts[::-1]])
    assert columns == joined(whole)
    header, first, *_ = table_module.as_csv(columns).splitlines()
    assert header.split(",")[-1] == "corrupted_pixels"
    assert first.split(",")[-1] == columns["corrupted_pixels"][0]
    metrics, breakdown = corrupted_segmentation_metrics(columns, cells_of(params))
    names = ("gaussian_noise", "fog")
    every = ["mean/1", "mean/4", *names, *(f"{name}/{severity}" for name in names for severity in (1, 4))]
    assert [part.label for part in breakdown] == every
    assert all(metric.n == 70 for metric in metrics.values())


@pytest.mark.parametrize("name", ["sliding_window", "sliding_window_corruptions"])
def test_windows_are_refused_where_they_make_no_sense(name: str) -> None:
    windows = {"name": name, "params": {"window": 32, "stride": 33}}
    found = problems(evaluating(evaluations=[windows]))
    assert "stride must not be larger than window" in found["evaluations.0.params"]
    found = problems(evaluating(model={"name": "vit"}, data={"name": "digits"}, evaluations=[windows]))
    assert f"{name!r} is for segmentation" in found["evaluations.0.name"]


def test_attention_for_so_many_patches_takes_no_larger_windows_and_crops() -> None:
    attention = {"name": "scaled_learned", "params": {"patches": 64}}
    scaled = {"name": "vit", "params": {**BACKBONE["params"], "attention": attention}}  # type: ignore[dict-item]
    model = {"name": "segmenter", "params": {"backbone": scaled, "decoder": "linear"}}

    def windows(side: int) -> list[dict[str, Any]]:
        return [{"name": "sliding_window", "params": {"window": side, "stride": 8}}]

    def recipe(side: int) -> dict[str, Any]:
        return {"name": "segmenter", "params": {"crop_size": side}}

    validate(load(), evaluating(model=model, evaluations=windows(32)))
    validate(load(), training(model=model, recipe=recipe(32)))
    found = problems(evaluating(model=model, evaluations=windows(33)))
    assert "its learned S is for that many patches" in found["evaluations.0.params"]
    found = problems(training(model=model, recipe=recipe(33)))
    assert "crop_size must not be larger than the backbone's image_size" in found["recipe.params"]
    validate(load(), evaluating(evaluations=windows(33)))


@pytest.mark.costly
@pytest.mark.trains
def test_training_learns_more_than_the_background(tmp_path: Path) -> None:
    columns = joined([trained(tmp_path, recipe={"name": "small_segmenter", "params": {"epochs": 6}})])
    nothing_found = {
        "target": columns["target"],
        "intersection": [[row[0], 0, 0, 0, 0] for row in columns["target"]],
        "predicted": [[sum(row), 0, 0, 0, 0] for row in columns["target"]],
    }
    metrics, background = segmentation_metrics(columns), segmentation_metrics(nothing_found)
    for name in ("pixel_accuracy", "miou", "mean_accuracy"):
        low = metrics[name].ci_low
        # The background's mean accuracy is one class of five in every resample: it has no interval.
        constant = background[name].value if name == "mean_accuracy" else background[name].ci_high
        assert low is not None
        assert constant is not None
        assert low > constant


SEA = {"name": "sea", "params": {"epsilon": "4/255", "steps": 10}}


@pytest.mark.costly
def test_an_attack_is_cut_into_shards_and_weighs_classes_by_the_training_images() -> None:
    both = [SEA, {"name": "segpgd", "params": {"epsilon": "4/255", "steps": 3}}]
    small = {"device": "cpu", "batch_size": 6}
    spec = validate(load(), evaluating(evaluations=both, limit=12, execution=small)).spec
    facts = plan.run({"spec": spec, "weights": None, "shard_seconds": 1e9}, Session(), lambda _: None)
    first, second = facts["plan"]["evaluations"]
    maps = Session().data(spec["data"], "train").label_maps(range(800), 32)  # type: ignore[attr-defined]
    assert first["class_pixels"] == [int((maps == label).sum()) for label in range(5)]
    assert "class_pixels" not in second
    whole, parts = shards(spec, None, 1e9), shards(spec, None, 1e-9)
    assert (len(whole), len(parts)) == (2, 4)
    assert joined(parts[:2]) == joined(whole[:1])
    found = worst_case(joined(whole[:1]))
    for name, metric in found.metrics.items():
        clean = found.alone["clean"][name].value
        assert metric.value is not None
        assert clean is not None
        assert metric.value < clean


def test_a_balanced_loss_without_training_images_fails_with_the_reason(monkeypatch: Any) -> None:
    data, spec = Session.data, validate(load(), evaluating(evaluations=[SEA])).spec

    def without(self: Session, named: Any, split: str) -> Any:
        if split == "train":
            raise MissingData("the folder 'training' is not there")
        return data(self, named, split)

    monkeypatch.setattr(Session, "data", without)
    with pytest.raises(MissingData, match=r"mce_bal.*the folder 'training' is not there"):
        plan.run({"spec": spec, "weights": None, "shard_seconds": 1e9}, Session(), lambda _: None)
