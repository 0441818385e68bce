"""Studies against the real catalog: the example of the documents, and arms that are not trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec, WeightsUnavailable
from assay.service.contract.problems import Problems, path_text
from assay.service.studies.primary import check_until
from assay.service.studies.submission import check_seeds, check_study
from tests.support.study_specs import DOCS, check, example, unlimited

FILES = sorted(DOCS.glob("*.study.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_studies_of_the_documents_are_valid(file: Path) -> None:
    valid = check(json.loads(file.read_text()))
    assert len(valid.arms) > 1
    assert all(arm.template["train"] is not None for arm in valid.arms)


@pytest.mark.parametrize("other", ["Soft ", "SOFT", " soft"])
def test_names_that_look_alike_are_refused(other: str) -> None:
    body = example()
    body["arms"][0]["name"], body["arms"][1]["name"] = "soft", other
    with pytest.raises(InvalidSpec) as caught:
        check(body | {"baseline": None})
    (detail,) = caught.value.details
    assert detail.loc == ["arms", 1, "name"]
    assert f"{other!r} and 'soft', the name of arm 0, differ in case or blank space only" in detail.message


def test_pretrained_weights_of_timm_are_measured_and_not_trained() -> None:
    body = example() | {"data": None, "recipe": None, "limit": 100}
    body["arms"] = [
        {
            "name": name,
            "model": {"name": "timm", "params": {"architecture": name}},
            "weights": {"timm": True},
            "data": {"name": "imagenet", "params": {"folder": "imagenet"}},
        }
        for name in ("deit_tiny_patch16_224", "vit_tiny_patch16_224")
    ]
    valid = check(body | {"baseline": None})
    assert [arm.template["train"] for arm in valid.arms] == [None, None]
    assert valid.arms[0].template["evaluate"]["model"]["weights"] == {
        "pulled": True,
        "sha256": None,
    }
    assert valid.spec["baseline"] == "deit_tiny_patch16_224"


def test_weights_that_are_not_pulled_are_refused_at_their_arm() -> None:
    body = example() | {"data": None, "recipe": None, "limit": 100, "baseline": None}
    model = {"name": "timm", "params": {"architecture": "resnet50"}}
    data = {"name": "imagenet", "params": {"folder": "imagenet"}}
    arm = {"model": model, "weights": {"pulled": True}, "data": data}
    body["arms"] = [
        {**arm, "name": "a"},
        {**arm, "name": "b", "model": {**model, "params": {"architecture": "x"}}},
    ]
    with pytest.raises(InvalidSpec) as caught:
        check_study(load(), body, work=unlimited, list_pulled=dict)
    assert caught.value.type == "invalid_spec", "another arm is wrong too"
    body["arms"][1]["model"] = {**model, "params": {"architecture": "resnet18"}}
    with pytest.raises(WeightsUnavailable) as missing:
        check_study(load(), body, work=unlimited, list_pulled=dict)
    said = [(detail.loc, detail.message.rpartition(": ")[2]) for detail in missing.value.details]
    assert said == [
        (["arms", 0, "weights"], "assay pull timm:resnet50"),
        (["arms", 1, "weights"], "assay pull timm:resnet18"),
    ]


def test_options_go_to_the_jobs_that_have_them() -> None:
    execution = {"device": "cuda", "dtype": "float16", "batch_size": 64, "devices": 2}
    arm = check(example() | {"execution": execution}).arms[0].template
    assert arm["train"] is not None
    assert (arm["train"]["execution"]["dtype"], arm["train"]["execution"].get("devices")) == ("float16", 2)
    assert (arm["evaluate"]["execution"]["dtype"], arm["evaluate"]["execution"].get("devices")) == (
        "float32",
        1,
    )
    arm = check(example() | {"execution": {"dtype": "recipe"}}).arms[0].template
    assert arm["train"] is not None
    assert (arm["train"]["execution"]["dtype"], arm["evaluate"]["execution"]["dtype"]) == ("float32",) * 2
    also = {"capture": True, "channels_last": True, "compile": "on"}
    execution = {"screening": "bfloat16", "repeat": 0.5, **also}
    screened = check(example() | {"execution": execution}).arms[0].template
    assert screened["train"] is not None
    assert screened["train"]["execution"].get("screening") is None
    assert screened["evaluate"]["execution"].get("screening") == "bfloat16"
    assert screened["train"]["execution"].get("repeat") is None
    assert screened["evaluate"]["execution"].get("repeat") == 0.5
    for name in ("capture", "channels_last"):
        assert name not in screened["train"]["execution"]
        assert screened["evaluate"]["execution"].get(name) is True
    assert "compile" not in screened["train"]["execution"]
    assert screened["evaluate"]["execution"].get("compile") == "on"


def test_an_arm_may_have_data_and_a_recipe_of_its_own() -> None:
    body = example()
    body["arms"][1] |= {"recipe": {"name": "small_vit", "params": {"epochs": 3}}, "data": {"name": "digits"}}
    valid = check(body)
    epochs = [
        train["recipe"]["params"]["epochs"]
        for arm in valid.arms
        if (train := arm.template["train"]) is not None
    ]
    assert epochs == [40, 3]


def wrong(body: Any) -> dict[str, str]:
    with pytest.raises(InvalidSpec) as caught:
        check(body)
    return {".".join(map(str, detail.loc)): detail.message for detail in caught.value.details}


def test_errors_are_told_once_and_in_their_place() -> None:
    body = example()
    body["arms"][0]["model"]["params"]["widht"] = 3
    body["arms"][1]["recipe"] = {"name": "small_vit", "params": {"epochs": 0}}
    body["evaluations"][1]["params"]["epsilonn"] = 1
    found = wrong(body)
    assert set(found) == {
        "arms.0.model.params.widht",
        "arms.1.recipe.params.epochs",
        "evaluations.1.params.epsilonn",
    }
    twice = example()
    twice["arms"][0] |= {"weights": {"timm": True}, "model": {"name": "timm", "weights": {"timm": True}}}
    assert "given here and in the model" in wrong(twice)["arms.0.weights"]
    assert "unknown field" in wrong(example() | {"executoin": {}})["executoin"]


def test_an_option_that_both_jobs_refuse_is_refused_once() -> None:
    with pytest.raises(InvalidSpec) as caught:
        check(example() | {"execution": {"dtype": "half", "batch_size": 0}})
    assert [detail.loc for detail in caught.value.details] == [
        ["execution", "dtype"],
        ["execution", "batch_size"],
    ]
    assert caught.value.details[0].nearest == "float16"


@pytest.mark.parametrize("body", [None, [], "x", 3])
def test_a_body_that_is_no_object_is_refused(body: object) -> None:
    assert wrong(body) == {"": "must be a JSON object"}


def test_seeds_to_add() -> None:
    assert check_seeds({"seeds": [3, 4, 3]}) == [3, 4]
    for body in ({}, {"seeds": []}, {"seeds": [-1]}, {"seeds": 3}, {"seeds": [1.5]}, {"sedes": [1]}):
        with pytest.raises(InvalidSpec):
            check_seeds(body)


def test_a_metric_that_no_evaluation_has_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidSpec) as caught:
        check(example() | {"metrics": ["top1", "topp5"]})
    (detail,) = caught.value.details
    assert (detail.loc, detail.nearest) == (["metrics", 1], "top5")
    assert check(example() | {"metrics": ["attack_success_rate"]}).spec["metrics"] == ["attack_success_rate"]


def test_the_extension_of_a_study_is_checked_and_filled_in() -> None:
    body = example() | {"seeds": 3, "primary": {"evaluation": "clean"}, "until": {"width": 0.02}}
    assert check(body).spec["until"] == {"width": 0.02, "max_seeds": 20, "step": 1}
    assert check(example()).spec["until"] is None
    assert set(wrong(example() | {"seeds": 1, "until": {"width": 0.02}})) == {"primary"}
    assert set(wrong(body | {"seeds": 1})) == {"seeds"}
    few = body | {"seeds": 5, "until": {"width": 1, "max_seeds": 4}}
    assert "above the 5 seeds" in wrong(few)["until.max_seeds"]
    assert "until.width" in wrong(body | {"until": {"width": 0}})
    assert "until.max_seeds" in wrong(body | {"until": {"width": 1, "max_seeds": 101}})
    many = body | {"arms": [body["arms"][0] | {"name": f"arm {place}"} for place in range(20)]}
    many |= {
        "baseline": None,
        "primary": {"evaluation": "clean", "arm": "arm 1"},
        "until": {"width": 1, "max_seeds": 26},
    }
    assert "up to 1040 jobs; at most 1000" in wrong(many)["until.max_seeds"]
    problems = Problems()
    arms = {"a": True, "b": False}
    check_until({"width": 1, "max_seeds": 9}, {"arm": "b"}, [0, 1], arms, "a", problems)
    (detail,) = problems.details
    assert (detail.loc, detail.message) == (
        ["until"],
        "arm 'b' is not trained: more seeds do not tell more of its method",
    )


def faults(body: dict[str, Any]) -> dict[str, str | None]:
    with pytest.raises(InvalidSpec) as caught:
        check(body)
    return {path_text(detail.loc): detail.nearest for detail in caught.value.details}


def test_a_seed_that_is_given_twice_is_told() -> None:
    told = wrong(example() | {"seeds": [0, 0, 2, 0], "metrics": ["topp1"]})
    assert {"seeds.1", "seeds.3", "metrics.0"} == {*told}
    assert told["seeds.1"] == "is given twice"


def test_faults_of_a_study_and_of_its_arms_are_told_at_once() -> None:
    body = example() | {"metrics": ["topp1"], "primary": {"evaluation": "pgdd"}}
    body["sede"] = body.pop("seeds")
    assert faults(body) == {"sede": "seeds", "metrics[0]": "top1", "primary.evaluation": "pgd"}
    body["arms"][0]["model"]["name"] = "symvitt"
    body["evaluations"] = ["pgd"]
    found = faults(body | {"tags": 3})
    assert found["evaluations[0]"] == '{"name": "pgd"} or {"suite": "pgd"}'
    assert {"sede", "tags", "arms[0].model.name"} < found.keys()


def test_arms_that_are_no_arms_are_told_without_their_jobs() -> None:
    body = example() | {"tags": 3}
    body["arms"][0] = 3
    assert faults(body).keys() == {"tags", "arms[0]"}
    assert faults(body | {"arms": "all"}).keys() == {"tags", "arms"}


def test_a_hundred_faults_and_faults_that_follow_from_others() -> None:
    many = example() | {f"x{number}": 1 for number in range(99)}
    for wrong in ({"seeds": {}, "metrics": 3}, {"seeds": {}, "primary": 3}, {"baseline": 3, "metrics": 3}):
        assert len(faults(many | wrong)) == 100
    body = example() | {"primary": {"evaluation": "pgd"}}
    body["arms"][0] = {"naem": "softmax", **{k: v for k, v in body["arms"][0].items() if k != "name"}}
    assert faults(body) == {"arms[0].naem": "name"}
    body = example() | {"primay": {"evaluation": "pgd"}, "until": {"width": 0.02}}
    assert faults(body) == {"primay": "primary"}


def test_an_epsilon_in_pixel_steps_is_told_beside_an_unknown_data_set() -> None:
    body = example() | {"data": {"name": "cifarr"}}
    body["evaluations"] = [{"name": "pgd", "params": {"epsilon": 8}}]
    assert faults(body)["evaluations[0].params.epsilon"] == "8/255"
