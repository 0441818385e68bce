"""Specs of models that begin with the weights of a backbone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.submission.dependencies import dependencies_of
from assay.service.submission.validate import validate

VIT = {"image_size": 32, "patch_size": 8, "width": 48, "depth": 2, "heads": 3}


@dataclass
class Job:
    spec: dict[str, Any]
    kind: str = "train"
    state: str = "running"
    expired: bool = False


@dataclass
class Checkpoint:
    model: dict[str, Any]
    facts: dict[str, int] = field(default_factory=lambda: {"classes": 1000, "channels": 3})
    state: str = "ready"
    reason: str = ""
    sha256: str = "0" * 64
    dtypes: list[str] | None = None
    foreign: bool = False
    gradients: bool = True
    task: str | None = None
    reading: dict[str, Any] = field(default_factory=lambda: {"normalization": "data", "positions": None})


def of_classifier(data: str = "image_folder", **params: Any) -> Job:
    body = {
        "kind": "train",
        "model": {"name": "vit", "params": {**VIT, **params}},
        "data": {"name": data, "params": {"folder": "x"} if data == "image_folder" else {}},
        "recipe": {"name": "small_vit"},
    }
    return Job(validate(load(), body).spec)


def spec(params: dict[str, Any], weights: dict[str, Any], source: Job | None = None, **changes: Any) -> Any:
    body = {
        "kind": "train",
        "model": {"name": "segmenter", "params": params, "weights": weights},
        "data": {"name": "shapes"},
        "recipe": {"name": "small_segmenter"},
        **changes,
    }
    checkpoint = Checkpoint(validate(load(), of_classifier().spec).spec["model"])
    found = source or of_classifier()
    return validate(load(), body, find_job=lambda _: found, find_checkpoint=lambda _: checkpoint).spec


def problems(*arguments: Any, **changes: Any) -> dict[str, str]:
    with pytest.raises(InvalidSpec) as caught:
        spec(*arguments, **changes)
    return {".".join(map(str, detail.loc)): detail.message for detail in caught.value.details}


FROM_JOB = {"job": "source", "part": "backbone"}


def test_what_is_not_said_of_the_backbone_is_the_trained_ones() -> None:
    for given in ({}, {"backbone": "vit"}, {"backbone": {"name": "vit", "params": {"depth": 2}}}):
        made = spec({**given, "decoder": "linear"}, FROM_JOB)
        assert made["model"]["params"]["backbone"] == {**of_classifier().spec["model"], "weights": None} or (
            made["model"]["params"]["backbone"]["params"] == of_classifier().spec["model"]["params"]
        )
        assert made["model"]["weights"] == FROM_JOB
        assert [dependency.job for dependency in dependencies_of(made)] == ["source"]
        again = validate(load(), made, find_job=lambda _: of_classifier()).spec
        assert again == made


def test_size_and_rates_may_differ_and_nothing_else() -> None:
    free = {"image_size": 64, "drop_path": 0.3, "dropout": 0.2}
    made = spec({"backbone": {"name": "vit", "params": free}}, FROM_JOB)
    params = made["model"]["params"]["backbone"]["params"]
    assert {key: params[key] for key in free} == free
    assert params["width"] == 48
    wrong = {"depth": 3, "patch_size": 16, "attention": "rpc"}
    found = problems({"backbone": {"name": "vit", "params": wrong}}, FROM_JOB)
    place = "model.params.backbone.params"
    assert found[f"{place}.depth"] == "the weights are of a model with depth 2"
    assert set(found) == {f"{place}.{name}" for name in wrong}
    found = problems({"backbone": "symvit"}, FROM_JOB)
    assert found == {"model.params.backbone.name": "the weights are of the model 'vit'"}


def test_another_segmenter_gives_its_backbone() -> None:
    body = {
        "kind": "train",
        "model": {"name": "segmenter", "params": {"backbone": {"name": "symvit", "params": VIT}}},
        "data": {"name": "camvid"},
        "recipe": {"name": "segmenter"},
    }
    source = Job(validate(load(), body).spec)
    made = spec({"decoder": "linear"}, FROM_JOB, source)  # 11 classes there, 5 here
    assert made["model"]["params"]["backbone"] == source.spec["model"]["params"]["backbone"]


def test_uploaded_weights() -> None:
    made = spec({}, {"checkpoint": "mine", "part": "backbone"})
    assert made["model"]["weights"] == {
        "checkpoint": "mine",
        "part": "backbone",
        "sha256": "0" * 64,
        "normalization": "data",
        "positions": None,
    }
    assert made["model"]["params"]["backbone"]["params"]["width"] == 48


def test_where_no_part_can_be_taken() -> None:
    found = problems({}, {"job": "source", "part": "decoder"})
    assert found["model.weights.part"].startswith('must be "backbone"')
    evaluation = {
        "kind": "evaluate",
        "model": {"name": "segmenter", "weights": FROM_JOB},
        "data": {"name": "shapes"},
        "evaluations": [{"name": "clean"}],
    }
    with pytest.raises(InvalidSpec, match=r"part: only training begins with the weights of a part"):
        validate(load(), evaluation, find_job=lambda _: of_classifier())
    with pytest.raises(InvalidSpec, match="has no part 'backbone'"):
        validate(
            load(),
            {
                "kind": "train",
                "model": {"name": "vit", "params": VIT, "weights": FROM_JOB},
                "data": {"name": "digits"},
                "recipe": {"name": "small_vit"},
            },
            find_job=lambda _: of_classifier("digits"),
        )


def test_channels_must_be_the_same_and_classes_need_not() -> None:
    found = problems({}, FROM_JOB, of_classifier("digits"))
    assert found == {"data.name": "'shapes' has 3 channels, the model is made for the 1 of 'digits'"}
    assert spec({}, FROM_JOB, of_classifier("cifar10"))["data"]["name"] == "shapes"


def test_whole_weights_are_written_as_ever() -> None:
    body = {
        "kind": "evaluate",
        "model": {"name": "vit", "weights": {"job": "source"}},
        "data": {"name": "cifar10"},
        "evaluations": [{"name": "clean"}],
    }
    made = validate(load(), body, find_job=lambda _: of_classifier("cifar10")).spec
    assert made["model"]["weights"] == {"job": "source"}
