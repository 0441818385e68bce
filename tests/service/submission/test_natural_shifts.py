"""Jobs that do not fit the ImageNet sets are refused at submission, with the reason."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.problems import path_text
from assay.service.submission.validate import validate
from assay.workers.catalog import resolve

A = {"name": "top1", "data": {"name": "imagenet_a"}}
O = {"name": "aupr", "data": {"name": "imagenet_o"}}  # noqa: E741 (the set's letter)


def job(*evaluations: dict[str, Any], data: str = "imagenet", **changes: Any) -> dict[str, Any]:
    return {
        "kind": "evaluate",
        "model": {"name": "symvit"},
        "data": {"name": data},
        "evaluations": list(evaluations),
        **changes,
    }


def problems(body: dict[str, Any], **known: Any) -> dict[str, str]:
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), body, **known)
    return {path_text(detail.loc): detail.message for detail in caught.value.details}


def test_the_designs_example_and_the_suite_are_taken() -> None:
    folder = {"name": "imagenet_a", "params": {"folder": "imagenet-a"}}
    spec = validate(load(), job({"name": "top1", "data": folder}, O, {"suite": "natural_shifts"})).spec
    assert [item["name"] for item in spec["evaluations"]] == ["top1", "aupr", "top1", "top1", "top1", "aupr"]
    assert spec["evaluations"][0] == spec["evaluations"][4]
    assert spec["evaluations"][1]["data"]["params"]["negatives_folder"] == "imagenet"


def test_an_attack_on_a_shift_is_taken() -> None:
    validate(
        load(), job({"name": "pgd", "data": {"name": "imagenet_a"}}, {"name": "clean"}, data="imagenet_a")
    )


def test_other_classes_are_refused() -> None:
    found = problems(job(A, {"name": "top1", "data": {"name": "imagenet"}}, O, data="cifar10"))
    given = ["'imagenet_a' has 200 of 1000", "'imagenet' has 1000", "'imagenet_o' has 200 of 1000"]
    assert found == {
        f"evaluations[{number}].data.name": f"{text} classes, the model is made for the 10 of 'cifar10'"
        for number, text in enumerate(given)
    }


def test_a_checkpoint_of_another_model_is_refused() -> None:
    checkpoint = SimpleNamespace(
        state="ready",
        reason="",
        sha256="0" * 64,
        facts={"classes": 200, "channels": 3},
        reading={},
        foreign=False,
        gradients=True,
        task=None,
        dtypes=None,
        model=validate(load(), job(A)).spec["model"],
    )
    body = job(A, model={"name": "symvit", "weights": {"checkpoint": "mine"}})
    found = problems(body, find_checkpoint=lambda name: checkpoint)
    message = "'imagenet_a' has 200 of 1000 classes, the model is made for the 200 of its weights"
    assert found["evaluations[0].data.name"] == message
    assert "data.name" in found
    checkpoint.facts = {"classes": 1000, "channels": 3}
    validate(load(), body, find_checkpoint=lambda name: checkpoint)


def test_anomalies_have_no_class_and_classes_no_anomalies() -> None:
    wrong = [{"name": name, "data": {"name": "imagenet_o"}} for name in ("top1", "clean", "pgd")]
    found = problems(job(*wrong, {"name": "aupr"}))
    for number, name in enumerate(("top1", "clean", "pgd")):
        assert found[f"evaluations[{number}].name"].startswith(f"{name!r} is for classification")
        assert found[f"evaluations[{number}].name"].endswith("'imagenet_o' is for anomaly_detection")
    assert found["evaluations[3].name"].endswith("the data 'imagenet' is for classification")


def test_a_segmenter_finds_no_anomalies() -> None:
    found = problems(job({"name": "aupr"}, data="imagenet_o", model={"name": "segmenter"}))
    message = "'imagenet_o' is data for anomaly_detection, the model 'segmenter' is for segmentation"
    assert found["data.name"] == message


@pytest.mark.parametrize("name", ["imagenet_a", "imagenet_r", "imagenet_o"])
def test_nothing_is_trained_on_a_test_set(name: str) -> None:
    training = {
        "kind": "train",
        "model": {"name": "symvit"},
        "data": {"name": name},
        "recipe": {"name": "small_vit"},
    }
    assert problems(training)["data.name"] == f"{name!r} is a test set: it has no training images"


def test_both_folders_are_looked_up(tmp_path: Path) -> None:
    (tmp_path / "imagenet").mkdir()
    (tmp_path / "imagenet-o").mkdir()
    data = {"name": "imagenet_o", "params": {"folder": "imagenet-0", "negatives_folder": "../imagenet"}}
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), job({"name": "aupr", "data": data}), data_root=tmp_path)
    details = {path_text(detail.loc).rpartition(".")[2]: detail for detail in caught.value.details}
    assert details["folder"].nearest == "imagenet-o"
    assert "must not contain" in details["negatives_folder"].message


def test_facts_are_those_of_the_sets() -> None:
    for name in ("imagenet", "imagenet_a", "imagenet_o", "imagenet_r"):
        component = load().find("data", name)
        assert callable(resolve(component))
        assert component.facts is not None
        assert component.facts.get("model_classes", component.facts["classes"]) == 1000
