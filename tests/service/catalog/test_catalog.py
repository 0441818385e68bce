"""The catalog and the validation of whole specs, on a small catalog of its own."""

from __future__ import annotations

import copy
import json
import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.service.catalog.catalog import Catalog, load
from assay.service.contract.errors import InvalidSpec, NotFound
from assay.service.contract.problems import MAX_DETAILS, path_text
from assay.service.submission.validate import ValidSpec, validate
from assay.service.submission.weights import EXPIRED

FRACTION = {"type": ["number", "string"], "fraction": True, "minimum": 0, "maximum": 1}
REFERENCE = {"type": ["object", "string"], "component": "attention"}
SIZES = {
    "width": {"type": "integer", "minimum": 1, "default": 96},
    "heads": {"type": "integer", "minimum": 1, "default": 3},
}


def entry(kind: str, name: str, properties: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    properties = properties or {}
    required = [key for key, part in properties.items() if "default" not in part]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    rules = [{"expression": expression, "message": message} for expression, message in more.pop("rules", [])]
    tasks = ["classification"] if kind in ("model", "data", "evaluation", "attack") else []
    own = {"rules": rules, "tasks": tasks, "paper": None, "passes": None, "facts": None} | more
    return {"name": name, "kind": kind, "target": f"x.{name}:{name}", "summary": "S.", "schema": schema} | own


ENTRIES = [
    entry(
        "attack",
        "pgd",
        {"epsilon": {**FRACTION, "default": 0.1}, "steps": {"type": "integer", "minimum": 1, "default": 20}},
        rules=[
            ("params.epsilon <= 0.5 or params.steps > 1", "one step is too few"),
            ("params.steps < 1000 or data.size < 100", "too many steps for images of this size"),
        ],
        passes={"forward": "params.steps + 1", "backward": "params.steps"},
    ),
    entry("attention", "rpc", {"iterations": {"type": "integer", "minimum": 1, "default": 4}},
          rules=[("params.iterations <= model.width", "more iterations than width")]),
    entry("attention", "softmax"),
    entry("data", "big", {"folder": {"type": "string", "folder": True},
                          "download": {"type": "boolean", "default": False}}),
    entry("data", "digits", facts={"classes": 10, "channels": 1, "size": 8, "train": 1000, "test": 300}),
    entry("data", "colours", facts={"classes": 10, "channels": 3, "size": 32, "train": 50, "test": 20}),
    entry("data", "scenes", tasks=["segmentation"]),
    entry("evaluation", "clean", passes={"forward": "1", "backward": "0"}),
    entry("evaluation", "miou", tasks=["segmentation"]),
    entry("evaluation", "slow"),
    entry("model", "other", SIZES),
    entry("model", "pixels", {"backbone": {"type": ["object", "string"], "component": "model"},
                              "width": {"type": "integer", "default": 7}},
          tasks=["segmentation"], rules=[("model.backbone in ('vit', 'other')", "not as a part")]),
    entry("model", "timm", {"architecture": {"enum": ["vit_tiny"]}}, pulled="timm"),
    entry("model", "vit", SIZES | {"attention": {**REFERENCE, "default": {"name": "softmax", "params": {}}}},
          rules=[("model.width % model.heads == 0", "heads must divide width"),
                 ("model.width >= data.classes", "narrower than there are classes")]),
    entry("recipe", "small", {"epochs": {"type": "integer", "minimum": 1, "default": 60}}),
    entry("recipe", "robust", {"epochs": {"type": "integer", "minimum": 1, "default": 60}},
          passes={"forward": "7", "backward": "6"}, facts={"arithmetic": "float16"}),
    entry("suite", "quick", evaluations=[{"name": "clean"}, {"name": "pgd", "params": {"epsilon": "1/4"}}]),
]  # fmt: skip

RPC = {"name": "rpc", "params": {"iterations": 4}}
CATALOG = Catalog.from_json(json.dumps(ENTRIES))


@dataclass(frozen=True)
class FoundJob:
    kind: str
    state: str
    spec: dict[str, Any]
    expired: bool = False


def evaluate_body(**changes: Any) -> dict[str, Any]:
    body = {
        "kind": "evaluate",
        "model": {"name": "vit"},
        "data": {"name": "digits"},
        "evaluations": [{"name": "clean"}, {"name": "pgd", "params": {"epsilon": "8/255"}}],
    }
    return body | changes


def train_body(**changes: Any) -> dict[str, Any]:
    body = {
        "kind": "train",
        "model": {"name": "vit"},
        "data": {"name": "digits"},
        "recipe": {"name": "small"},
    }
    return body | changes


def valid(body: object, **more: Any) -> ValidSpec:
    return validate(CATALOG, body, **more)


def problems(body: object, **more: Any) -> dict[str, str]:
    """Path to message; several remarks about one place are joined."""
    with pytest.raises(InvalidSpec) as caught:
        validate(CATALOG, body, **more)
    json.dumps(caught.value.envelope().model_dump(), allow_nan=False, ensure_ascii=False).encode()
    found: dict[str, str] = {}
    for detail in caught.value.details:
        path = path_text(detail.loc)
        found[path] = f"{found[path]}; {detail.message}" if path in found else detail.message
    return found


def finder(job: FoundJob | None) -> Callable[[str], FoundJob | None]:
    return lambda job_id: job if job_id == "j1" else None


class TestLookUp:
    def test_find_and_list(self) -> None:
        assert CATALOG.find("attack", "pgd").passes is not None
        assert [component.name for component in CATALOG.list("attention")] == ["rpc", "softmax"]
        assert len(CATALOG.list()) == len(ENTRIES)
        assert CATALOG.find_evaluation("clean").kind == "evaluation"
        assert CATALOG.find_evaluation("pgd").kind == "attack"

    def test_unknown_names_and_kinds(self) -> None:
        with pytest.raises(NotFound) as caught:
            CATALOG.find("attack", "PDG")
        assert caught.value.details[0].nearest == "pgd"
        with pytest.raises(NotFound) as caught:
            CATALOG.find("atack", "pgd")
        assert caught.value.details[0].nearest == "attack"
        with pytest.raises(NotFound):
            CATALOG.list("models")
        with pytest.raises(NotFound):
            CATALOG.find_evaluation("quick")
        with pytest.raises(NotFound):
            CATALOG.find("attack", "\ud800" * 100_000)

    def test_json_has_the_schema_under_its_name(self) -> None:
        shown = CATALOG.find("model", "vit").model_dump(by_alias=True)
        assert shown["schema"]["properties"]["width"]["default"] == 96


class TestValidSpecs:
    def test_every_default_is_filled_in(self) -> None:
        spec = valid(evaluate_body(model={"name": "vit", "params": {"attention": {"name": "rpc"}}})).spec
        attention = {"name": "rpc", "params": {"iterations": 4}}
        assert spec["model"] == {
            "name": "vit", "params": {"width": 96, "heads": 3, "attention": attention}, "weights": None
        }  # fmt: skip
        assert spec["evaluations"][1] == {
            "name": "pgd",
            "params": {"epsilon": "8/255", "steps": 20},
            "data": None,
        }
        assert spec["execution"] == {
            "device": "auto", "dtype": "float32", "batch_size": "auto", "screening": None, "devices": 1
        }  # fmt: skip
        assert (spec["protocol"], spec["limit"], spec["seed"], spec["priority"]) == ("pixel", None, 0, 5)
        assert json.loads(json.dumps(spec)) == spec

    def test_float16_is_for_training_alone(self) -> None:
        execution = {"dtype": "float16"}
        assert valid(train_body(execution=execution)).spec["execution"]["dtype"] == "float16"
        found = problems(evaluate_body(execution=execution))
        assert found == {"execution.dtype": "float16 is for training: gradients of attacks vanish in it"}

    def test_recipe_is_the_arithmetic_of_the_published_training(self) -> None:
        stored = []
        for recipe in ("robust", "small"):
            for execution in ({"dtype": "recipe", "batch_size": 4}, {"batch_size": 4}):
                spec = valid(train_body(recipe={"name": recipe}, execution=execution)).spec
                stored.append((spec["execution"]["dtype"], spec["execution"]["batch_size"]))
        assert stored == [("float16", 4), ("float32", 4), ("float32", 4), ("float32", 4)]
        asked = {"dtype": "recipe"}
        assert problems(evaluate_body(execution=asked)) == {
            "execution.dtype": "recipe is for training: only trainings have a recipe"
        }

    def test_tf32_is_for_gpus(self) -> None:
        for body in (train_body, evaluate_body):
            for device in ("auto", "cuda"):
                execution = {"device": device, "dtype": "tf32"}
                assert valid(body(execution=execution)).spec["execution"]["dtype"] == "tf32"
            found = problems(body(execution={"device": "cpu", "dtype": "tf32"}))
            assert found == {"execution.dtype": "TF32 is arithmetic of GPUs: on a CPU ask for float32"}
        screened = {"dtype": "tf32", "screening": "bfloat16_gradients"}
        assert set(problems(evaluate_body(execution=screened))) == {"execution.screening"}

    def test_channels_go_last_in_evaluations_alone(self) -> None:
        execution = {"channels_last": True}
        assert valid(evaluate_body(execution=execution)).spec["execution"].get("channels_last") is True
        assert "channels_last" not in valid(evaluate_body()).spec["execution"]
        assert set(problems(train_body(execution=execution))) == {"execution.channels_last"}

    def test_captured_passes_are_for_attacks_alone(self) -> None:
        execution = {"capture": True}
        assert valid(evaluate_body(execution=execution)).spec["execution"].get("capture") is True
        assert "capture" not in valid(evaluate_body()).spec["execution"]
        assert set(problems(train_body(execution=execution))) == {"execution.capture"}

    def test_compiled_passes_are_for_attacks_under_the_protocol_that_confirms(self) -> None:
        for choice in ("auto", "on"):
            execution = {"compile": choice}
            assert valid(evaluate_body(execution=execution)).spec["execution"].get("compile") == choice
            assert set(problems(train_body(execution=execution))) == {"execution.compile"}
            found = problems(evaluate_body(execution=execution, protocol="paper"))
            assert set(found) == {"execution.compile"}
        assert "compile" not in valid(evaluate_body()).spec["execution"]
        for written in ({"compile": "off"}, {"capture": False}, {"channels_last": False}):
            assert valid(train_body(execution=written)).spec == valid(train_body()).spec
        execution = {"compile": "on", "dtype": "tf32"}
        assert set(problems(evaluate_body(execution=execution))) == {"execution.compile"}
        assert set(problems(evaluate_body(execution={"compile": True}))) == {"execution.compile"}

    def test_several_devices_are_for_training_and_for_batches_that_they_can_share(self) -> None:
        def found(body: dict[str, Any]) -> set[str]:
            return set(problems(body))

        assert valid(train_body(execution={"devices": 8})).spec["execution"]["devices"] == 8
        assert (
            valid(train_body(execution={"devices": 8, "batch_size": 15})).spec["execution"]["batch_size"]
            == 15
        )
        assert found(train_body(execution={"devices": 8, "batch_size": 14})) == {"execution.batch_size"}
        assert found(evaluate_body(execution={"devices": 2})) == {"execution.devices"}
        assert valid(evaluate_body(execution={"devices": 1})).spec["execution"]["devices"] == 1
        for wrong in (0, 65, 2.5, "2", None):
            assert found(train_body(execution={"devices": wrong})) == {"execution.devices"}

    def test_a_valid_spec_is_valid_again_and_unchanged(self) -> None:
        for body in (evaluate_body(evaluations=[{"suite": "quick"}, {"name": "slow"}]), train_body()):
            once = valid(body).spec
            assert valid(once).spec == once

    def test_the_body_is_left_alone(self) -> None:
        body = evaluate_body(model={"name": "vit", "params": {"attention": "rpc"}}, tags=["a", "a"])
        before = json.dumps(body)
        spec = valid(body).spec
        assert json.dumps(body) == before
        assert spec["tags"] == ["a"]
        assert spec["model"]["params"]["attention"] == {"name": "rpc", "params": {"iterations": 4}}

    def test_whole_floats_are_integers(self) -> None:
        spec = valid(evaluate_body(limit=10.0, execution={"batch_size": 7.0})).spec
        assert (spec["limit"], spec["execution"]["batch_size"]) == (10, 7)
        assert isinstance(spec["limit"], int)

    def test_suites_are_expanded_in_place(self) -> None:
        body = evaluate_body(evaluations=[{"name": "slow"}, {"suite": "quick"}, {"name": "slow"}])
        evaluations = valid(body).spec["evaluations"]
        assert [item["name"] for item in evaluations] == ["slow", "clean", "pgd", "slow"]
        assert evaluations[2]["params"] == {"epsilon": "1/4", "steps": 20}

    def test_an_evaluation_may_bring_its_own_data(self) -> None:
        body = evaluate_body(
            evaluations=[{"name": "clean", "data": {"name": "big", "params": {"folder": "a"}}}]
        )
        own = valid(body).spec["evaluations"][0]["data"]
        assert own == {"name": "big", "params": {"folder": "a", "download": False}}

    def test_the_committed_catalog_takes_the_issue_s_specs(self) -> None:
        sizes = {"image_size": 32, "patch_size": 8, "depth": 4, "width": 96, "heads": 3}
        model = {"name": "rpc_symvit", "params": {**sizes, "iterations": 4, "rpc_layers": "first"}}
        execution = {"device": "auto", "dtype": "float32", "batch_size": 64}
        shared = {"model": model, "data": {"name": "digits"}, "execution": execution}
        recipe = {"name": "small_vit", "params": {"epochs": 60}}
        trained = validate(load(), {"kind": "train", "recipe": recipe, **shared})
        assert trained.spec["model"]["params"]["rpc_layers"] == "first"
        evaluations = [{"name": "clean"}, {"name": "pgd", "params": {"epsilon": "2/255", "steps": 20}}]
        evaluated = validate(
            load(), {"kind": "evaluate", "evaluations": [*evaluations, {"suite": "quick"}], **shared}
        )
        assert len(evaluated.spec["evaluations"]) == 19
        assert evaluated.estimate["forward_passes"] is not None


class TestEstimateAndWarnings:
    def test_evaluation(self) -> None:
        found = valid(evaluate_body())
        assert found.estimate == {"examples": 600, "forward_passes": 300 * 22, "backward_passes": 300 * 20}
        assert [warning["code"] for warning in found.warnings] == ["untrained_weights"]

    def test_limit_and_own_data(self) -> None:
        own = {"name": "clean", "data": {"name": "big", "params": {"folder": "a"}}}
        found = valid(evaluate_body(limit=100, evaluations=[{"name": "clean"}, own]))
        assert found.estimate == {"examples": 200, "forward_passes": 200, "backward_passes": 0}
        assert [warning["code"] for warning in found.warnings] == ["untrained_weights", "subset"]
        assert valid(evaluate_body(limit=1000)).estimate["examples"] == 600
        assert valid(evaluate_body(evaluations=[own])).estimate["examples"] is None

    def test_undeclared_passes_are_unknown(self) -> None:
        found = valid(evaluate_body(evaluations=[{"name": "slow"}]))
        assert found.estimate == {"examples": 300, "forward_passes": None, "backward_passes": None}

    def test_training(self) -> None:
        body = train_body(recipe={"name": "small", "params": {"epochs": 2}})
        assert valid(body).estimate == {"examples": 2000, "forward_passes": 2000, "backward_passes": 2000}
        assert valid(body).warnings == []

    def test_training_with_several_passes_for_each_example(self) -> None:
        body = train_body(recipe={"name": "robust", "params": {"epochs": 2}})
        assert valid(body).estimate == {"examples": 2000, "forward_passes": 14000, "backward_passes": 12000}


class TestShape:
    @pytest.mark.parametrize(
        ("option", "given", "meant"),
        [
            ("dtype", "fp32", "float32"),
            ("dtype", "32", "float32"),
            ("dtype", 32, "float32"),
            ("dtype", "bf16", "bfloat16"),
            ("dtype", "TF-32", "tf32"),
            ("dtype", "fp64", "float64"),
            ("compile", True, "on"),
            ("compile", "true", "on"),
            ("compile", False, "off"),
            ("compile", "atuo", "auto"),
            ("capture", "on", "true"),
            ("capture", 1, "true"),
            ("channels_last", "off", "false"),
            ("device", "gpu", "cuda"),
            ("device", True, None),
        ],
    )
    def test_the_option_that_was_meant_is_named(self, option: str, given: object, meant: str | None) -> None:
        with pytest.raises(InvalidSpec) as caught:
            validate(CATALOG, evaluate_body(execution={option: given}))
        (detail,) = caught.value.details
        assert (detail.loc, detail.nearest) == (["execution", option], meant)

    @pytest.mark.parametrize("given", ["fp16", "half"])
    def test_half_precision_is_another_in_trainings_and_in_evaluations(self, given: str) -> None:
        """Only what the kind of job may have is allowed and meant."""
        for body, meant in ((train_body, "float16"), (evaluate_body, "bfloat16")):
            with pytest.raises(InvalidSpec) as caught:
                validate(CATALOG, body(execution={"dtype": given}))
            (detail,) = caught.value.details
            assert detail.nearest == meant
            assert isinstance(detail.allowed, list)
            assert meant in detail.allowed
            assert ("float16" in detail.allowed) == ("recipe" in detail.allowed) == (meant == "float16")
            assert all(name in detail.message for name in detail.allowed)

    def test_bodies_that_are_no_objects(self) -> None:
        for body in (None, 3, "x", [], [evaluate_body()], True, math.nan):
            assert list(problems(body)) == ["body"]

    def test_unknown_kind_does_not_hide_the_rest(self) -> None:
        body = evaluate_body(kind="evalute", seed=-1, evaluations=[{"name": "pdg"}], model={"name": "vitt"})
        found = problems(body)
        assert set(found) == {"kind", "seed", "evaluations[0].name", "model.name"}
        with pytest.raises(InvalidSpec) as caught:
            validate(CATALOG, body)
        assert caught.value.details[0].allowed == ["train", "evaluate"]
        assert caught.value.details[0].nearest == "evaluate"
        assert "is required" in problems({})["kind"]
        assert "kind" in problems(evaluate_body(kind=["train"]))

    def test_fields_of_the_other_kind_are_refused_by_that_kind(self) -> None:
        assert problems(train_body(evaluations=[])) == {
            "evaluations": "a job of kind train has no evaluations: it is a field of the kind evaluate"
        }
        assert problems(evaluate_body(recipe={"name": "small"})) == {
            "recipe": "a job of kind evaluate has no recipe: it is a field of the kind train"
        }
        with pytest.raises(InvalidSpec) as caught:
            validate(CATALOG, train_body(evaluations=[]))
        assert caught.value.details[0].nearest is None, "no other field was meant"

    def test_a_study_that_is_sent_as_a_job_names_its_command(self) -> None:
        assert "`assay studies run FILE`" in problems({"kind": "study"})["kind"]

    def test_everything_wrong_in_one_answer(self) -> None:
        found = problems(
            {
                "kind": "evaluate",
                "sed": 1,
                "seed": True,
                "limit": 0,
                "protocol": "pixl",
                "priority": 10,
                "timeout_seconds": math.inf,
                "tags": ["ok", 3],
                "execution": {"batch_size": "big", "dvice": "cpu", "dtype": "float16"},
                "model": {
                    "name": "vit",
                    "params": {"attention": {"name": "rpc", "params": {"iterations": 0}}},
                },
                "data": {"nme": "digits"},
                "evaluations": [
                    3,
                    {},
                    {"name": "pgd", "params": {"epsilonn": 1, "steps": math.nan, "epsilon": "1/0"}},
                    {"suite": "quik"},
                    {"name": "clean", "params": []},
                    {"name": "clean", "data": {"name": "digitz"}},
                ],
            }
        )
        assert set(found) == {
            "sed", "seed", "limit", "protocol", "priority", "timeout_seconds", "tags[1]",
            "execution.batch_size", "execution.dvice", "execution.dtype", "data.nme",
            "model.params.attention.params.iterations", "evaluations[0]", "evaluations[1]",
            "evaluations[2].params.epsilonn",
            "evaluations[2].params.steps", "evaluations[2].params.epsilon", "evaluations[3].suite",
            "evaluations[4].params", "evaluations[5].data.name",
        }  # fmt: skip
        assert found["execution.batch_size"] == 'must be an integer from 1 to 65536, or "auto"'

    @pytest.mark.costly
    def test_no_depth_is_too_much(self) -> None:
        nested: Any = []
        for _ in range(100_000):
            nested = [nested]
        assert list(problems({"kind": nested})) == ["body"]
        deep: Any = {}
        for _ in range(40):
            deep = {"name": "rpc", "params": {"attention": deep}}
        assert list(problems(evaluate_body(model={"name": "vit", "params": deep}))) == ["body"]

    def test_no_size_is_too_much(self) -> None:
        with pytest.raises(InvalidSpec) as caught:
            validate(CATALOG, evaluate_body(evaluations=[{"name": f"x{n}"} for n in range(400)]))
        assert len(caught.value.details) == MAX_DETAILS
        assert list(problems(evaluate_body(evaluations=[{"name": "clean"}] * 100_000))) == ["evaluations"]
        assert list(problems(evaluate_body(evaluations=[]))) == ["evaluations"]
        suites = [{"suite": "quick"}] * 251
        assert "expand to 502" in problems(evaluate_body(evaluations=suites))["evaluations"]

    def test_texts_that_no_database_takes(self) -> None:
        assert list(problems(evaluate_body(name="a\0b"))) == ["name"]
        assert list(problems(evaluate_body(tags=["\udfff"]))) == ["tags[0]"]
        assert list(problems(evaluate_body(model={"name": "vit", "params": {"\ud800": 1}}))) == [
            "model.params.\\ud800"
        ]


class TestNames:
    def test_unknown_names_have_the_nearest(self) -> None:
        with pytest.raises(InvalidSpec) as caught:
            validate(CATALOG, evaluate_body(evaluations=[{"name": "pdg"}]))
        [detail] = caught.value.details
        assert detail.loc == ["evaluations", 0, "name"]
        assert detail.nearest == "pgd"
        assert detail.allowed == ["clean", "miou", "pgd", "slow"]

    def test_names_of_another_kind_are_explained(self) -> None:
        found = problems(
            evaluate_body(
                model={"name": "rpc"}, evaluations=[{"name": "quick"}, {"name": "digits"}, {"suite": "pgd"}]
            )
        )
        assert found["model.name"] == "there is no model 'rpc'; 'rpc' is an attention"
        assert found["evaluations[0].name"].endswith('\'quick\' is a suite, written {"suite": "quick"}')
        assert found["evaluations[1].name"].endswith("'digits' is data")
        assert found["evaluations[2].suite"] == "there is no suite 'pgd'; 'pgd' is an attack"

    @pytest.mark.parametrize(
        ("model", "data", "evaluation", "said"),
        [
            ("nets:build", "digits", "pgd", {"model.name": "a service runs no code of its users"}),
            (
                "example",
                "digits",
                "pgd",
                {"model.name": "`example` is a word of `assay evaluate`"},
            ),
            ("timm:resnet50", "digits", "pgd", {"model.name": "timm:NAME, hf:NAME, checkpoint:NAME"}),
            ("mine.PT2", "digits", "pgd", {"model.name": "a file is uploaded first"}),
            (
                "tiny_vit",
                "./photos",
                "pgd",
                {"data.name": "a folder of images below the service's data root"},
            ),
            ("tiny_vit", "digits", "pgd steps=3", {"evaluations[0].name": "parameters are written"}),
            ("vitt", "photos", "pdg", {}),
        ],
    )
    def test_a_path_a_file_and_code_are_told_how_they_are_given(
        self, model: str, data: str, evaluation: str, said: dict[str, str]
    ) -> None:
        body = evaluate_body(model={"name": model}, data={"name": data}, evaluations=[{"name": evaluation}])
        found = problems(body)
        told = {place: text for place, text in found.items() if "; " in text}
        assert list(told) == list(said)
        for place, words in said.items():
            assert f"'; {words}" in told[place]

    def test_nested_components(self) -> None:
        def attention(value: object) -> dict[str, str]:
            return problems(evaluate_body(model={"name": "vit", "params": {"attention": value}}))

        assert list(attention({"name": "rcp"})) == ["model.params.attention.name"]
        assert list(attention("rcp")) == ["model.params.attention.name"]
        assert list(attention({})) == ["model.params.attention.name"]
        assert list(attention(3)) == ["model.params.attention"]
        assert list(attention({"name": "rpc", "parms": {}})) == ["model.params.attention.parms"]
        assert list(attention({"name": "rpc", "params": {"n": 1}})) == ["model.params.attention.params.n"]

    def test_names_in_a_list_stay_names_and_wrong_ones_have_the_nearest(self) -> None:
        def corrupted(names: object) -> dict[str, Any]:
            params = {"corruptions": names, "severities": [1]}
            body = evaluate_body(
                model={"name": "vit"}, evaluations=[{"name": "corruptions", "params": params}]
            )
            return {**body, "data": {"name": "digits"}}

        catalog = load()
        own = catalog.find("corruption", "fog").model_copy(update={"name": "posterize"})
        more = Catalog([*catalog.list(), own])
        spec = validate(more, corrupted(["fog", "posterize", "fog"])).spec
        assert spec["evaluations"][0]["params"]["corruptions"] == ["fog", "posterize", "fog"]
        with pytest.raises(InvalidSpec) as caught:
            validate(catalog, corrupted(["fog", "posterize", "fogg", 3, {"name": "fog"}, "clean"]))
        place = ["evaluations", 0, "params", "corruptions"]
        assert [detail.loc for detail in caught.value.details] == [[*place, n] for n in range(1, 6)]
        first, second, third, fourth, fifth = caught.value.details
        assert first.message == "there is no corruption 'posterize'"
        assert first.allowed == list(catalog.names("corruption"))
        assert (second.given, second.nearest) == ("fogg", "fog")
        assert third.message == fourth.message == "must be the name of a component of kind corruption"
        assert fifth.message == "there is no corruption 'clean'; 'clean' is an evaluation"
        for names in ([], ["fog"] * 101, "fog"):
            with pytest.raises(InvalidSpec, match="1 to 100 names of components of kind corruption"):
                validate(catalog, corrupted(names))


class TestRules:
    def test_a_broken_rule_says_the_values(self) -> None:
        found = problems(evaluate_body(model={"name": "vit", "params": {"heads": 5}}))
        assert found == {"model.params": "heads must divide width (heads is 5, width is 96)"}

    def test_several_broken_rules_are_all_said(self) -> None:
        found = problems(evaluate_body(model={"name": "vit", "params": {"width": 4, "heads": 3}}))
        assert "heads must divide width" in found["model.params"]
        assert "narrower than there are classes" in found["model.params"]

    def test_rules_see_fractions_as_numbers(self) -> None:
        params = {"epsilon": "3/4", "steps": 1}
        found = problems(evaluate_body(evaluations=[{"name": "pgd", "params": params}]))
        assert found == {"evaluations[0].params": "one step is too few (epsilon is 0.75, steps is 1)"}

    def test_facts_decide_and_unknown_facts_are_left_to_the_worker(self) -> None:
        attack = {"name": "pgd", "params": {"steps": 5000}}
        valid(evaluate_body(evaluations=[attack]))
        valid(evaluate_body(evaluations=[attack], data={"name": "big", "params": {"folder": "a"}}))
        tiny = {"name": "vit", "params": {"width": 9, "heads": 3}}
        assert "narrower" in problems(evaluate_body(model=tiny))["model.params"]
        valid(evaluate_body(model=tiny, data={"name": "big", "params": {"folder": "a"}}))

    def test_rules_of_nested_components(self) -> None:
        params = {"attention": {"name": "rpc", "params": {"iterations": 100}}}
        found = problems(evaluate_body(model={"name": "vit", "params": params}))
        assert "more iterations than width" in found["model.params.attention.params"]

    def test_rules_of_a_nested_model_are_about_itself(self) -> None:
        def pixels(backbone: object) -> dict[str, str]:
            model = {"name": "pixels", "params": {"backbone": backbone}}
            body = evaluate_body(model=model, data={"name": "scenes"}, evaluations=[{"name": "miou"}])
            return problems({**body, "extra": 0})

        assert list(pixels({"name": "vit", "params": {"width": 48}})) == ["extra"]
        found = pixels({"name": "vit", "params": {"width": 48, "heads": 5}})
        message = "heads must divide width (heads is 5, width is 48)"
        assert found["model.params.backbone.params"] == message
        attention = {"name": "rpc", "params": {"iterations": 49}}
        found = pixels({"name": "vit", "params": {"width": 48, "attention": attention}})
        assert "model.params.backbone.params.attention.params" in found

    def test_rules_see_a_nested_component_by_its_name(self) -> None:
        model = {
            "name": "pixels",
            "params": {"backbone": {"name": "timm", "params": {"architecture": "vit_tiny"}}},
        }
        found = problems(evaluate_body(model=model, data={"name": "scenes"}, evaluations=[{"name": "miou"}]))
        assert found == {"model.params": "not as a part (backbone is timm)"}

    def test_rules_hold_back_where_a_name_is_misspelt(self) -> None:
        found = problems(evaluate_body(model={"name": "vit", "params": {"heads": 5, "wdth": 100}}))
        assert list(found) == ["model.params.wdth"]
        found = problems(evaluate_body(model={"name": "vit", "params": {"heads": 5, "attention": "x"}}))
        assert set(found) == {"model.params", "model.params.attention.name"}


@pytest.mark.parametrize(
    ("data", "place", "said", "near"),
    [
        ({"name": "./my/pics"}, "data.name", '"params": {"folder": "pics"}}', None),
        ({"name": "/data/pics/"}, "data.name", '"params": {"folder": "pics"}}', None),
        ({"name": "image_folder", "params": {"folder": "./my/pics"}}, "data.params.folder", "", "my/pics"),
        ({"name": "image_folder", "params": {"folder": "../pics"}}, "data.params.folder", "", None),
    ],
)
def test_a_path_in_a_spec_is_answered_with_what_is_written_in_its_place(
    data: dict[str, Any], place: str, said: str, near: str | None
) -> None:
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), {**evaluate_body(), "model": {"name": "symvit"}, "data": data})
    (detail,) = [one for one in caught.value.details if path_text(one.loc) == place]
    assert said in detail.message
    assert detail.nearest == near


class TestTasksAndFit:
    def test_tasks_must_match(self) -> None:
        found = problems(evaluate_body(data={"name": "scenes"}))
        assert (
            found["data.name"] == "'scenes' is data for segmentation, the model 'vit' is for classification"
        )
        found = problems(evaluate_body(evaluations=[{"name": "miou"}]))
        assert list(found) == ["evaluations[0].name"]
        found = problems(evaluate_body(evaluations=[{"name": "clean", "data": {"name": "scenes"}}]))
        assert "evaluations[0].data.name" in found

    def test_own_data_must_fit_the_model(self) -> None:
        found = problems(evaluate_body(evaluations=[{"name": "clean", "data": {"name": "colours"}}]))
        assert found == {
            "evaluations[0].data.name": "'colours' has 3 channels, the model is made for the 1 of 'digits'"
        }

    def test_what_is_wrong_with_a_suite_is_said_of_the_suite(self) -> None:
        found = problems(evaluate_body(data={"name": "scenes"}, evaluations=[{"suite": "quick"}]))
        assert set(found) == {"data.name", "evaluations[0].suite"}


class TestFolders:
    def test_names_are_checked_without_a_root(self) -> None:
        found = problems(train_body(data={"name": "big", "params": {"folder": "../x"}}))
        assert list(found) == ["data.params.folder"]
        valid(train_body(data={"name": "big", "params": {"folder": "x"}}))

    def test_folders_must_exist_under_a_visible_root(self, tmp_path: Path) -> None:
        (tmp_path / "pictures").mkdir()
        valid(train_body(data={"name": "big", "params": {"folder": "pictures"}}), data_root=tmp_path)
        with pytest.raises(InvalidSpec) as caught:
            validate(
                CATALOG, train_body(data={"name": "big", "params": {"folder": "picture"}}), data_root=tmp_path
            )
        [detail] = caught.value.details
        assert detail.loc == ["data", "params", "folder"]
        assert detail.nearest == "pictures"

    def test_what_will_be_downloaded_need_not_exist(self, tmp_path: Path) -> None:
        data = {"name": "big", "params": {"folder": "new", "download": True}}
        valid(train_body(data=data), data_root=tmp_path)

    def test_own_data_of_an_evaluation(self, tmp_path: Path) -> None:
        item = {"name": "clean", "data": {"name": "big", "params": {"folder": "no"}}}
        assert list(problems(evaluate_body(evaluations=[item]), data_root=tmp_path)) == [
            "evaluations[0].data.params.folder"
        ]


class TestWeights:
    SPEC = valid(train_body(model={"name": "vit", "params": {"width": 48, "attention": "rpc"}})).spec

    def body(self, **model: Any) -> dict[str, Any]:
        return evaluate_body(model={"name": "vit", "weights": {"job": "j1"}, **model})

    @pytest.mark.parametrize("state", ["waiting", "queued", "starting", "running", "succeeded"])
    def test_parameters_come_from_the_training_job(self, state: str) -> None:
        for params in ({}, {"params": {}}):
            found = valid(self.body(**params), find_job=finder(FoundJob("train", state, self.SPEC)))
            assert found.spec["model"]["params"] == self.SPEC["model"]["params"]
            assert found.spec["model"]["weights"] == {"job": "j1"}
            assert found.warnings == []

    def test_given_parameters_must_be_the_same(self) -> None:
        find = finder(FoundJob("train", "succeeded", self.SPEC))
        same = {"width": 48.0, "heads": 3, "attention": {"name": "rpc"}}
        assert valid(self.body(params=same), find_job=find).spec["model"]["params"]["width"] == 48
        assert problems(self.body(params={"heads": 2, "attention": "softmax"}), find_job=find) == {
            "model.params.heads": "the weights are of a model with heads 3",
            "model.params.attention": f"the weights are of a model with attention {RPC}",
        }

    def test_parameters_that_are_not_given_are_the_trained_ones(self) -> None:
        find = finder(FoundJob("train", "succeeded", self.SPEC))
        found = valid(self.body(params={"heads": 3}), find_job=find)
        assert found.spec["model"]["params"] == self.SPEC["model"]["params"]

    def test_parameters_that_are_newer_than_the_job_had_their_defaults(self) -> None:
        older = {**self.SPEC, "model": {"name": "vit", "params": {"width": 48}, "weights": None}}
        find = finder(FoundJob("train", "succeeded", older))
        assert valid(self.body(), find_job=find).spec["model"]["params"]["heads"] == 3
        assert list(problems(self.body(params={"width": 48, "heads": 2}), find_job=find)) == [
            "model.params.heads"
        ]

    def test_another_model(self) -> None:
        find = finder(FoundJob("train", "succeeded", self.SPEC))
        assert problems(self.body(name="other"), find_job=find) == {
            "model.name": "the weights are of the model 'vit'"
        }

    @pytest.mark.parametrize(
        ("job", "message"),
        [
            (None, "there is no such job"),
            (FoundJob("evaluate", "succeeded", {}), "this job is of kind evaluate: it leaves no weights"),
            (FoundJob("train", "failed", {}), "this job is failed: it leaves no weights"),
            (FoundJob("train", "canceled", {}), "this job is canceled: it leaves no weights"),
            (FoundJob("train", "timed_out", {}), "this job is timed_out: it leaves no weights"),
            (FoundJob("train", "succeeded", {}, expired=True), EXPIRED),
        ],
    )
    def test_jobs_without_weights(self, job: FoundJob | None, message: str) -> None:
        assert problems(self.body(), find_job=finder(job)) == {"model.weights.job": message}

    def test_without_a_way_to_look_jobs_are_taken_on_trust(self) -> None:
        assert valid(self.body()).spec["model"]["weights"] == {"job": "j1"}

    def test_the_data_must_fit_the_trained_model(self) -> None:
        find = finder(FoundJob("train", "succeeded", self.SPEC))
        found = problems(self.body() | {"data": {"name": "colours"}}, find_job=find)
        assert found == {"data.name": "'colours' has 3 channels, the model is made for the 1 of 'digits'"}

    def test_other_sources(self) -> None:
        found = problems(evaluate_body(model={"name": "vit", "weights": {"timm": True}}))
        assert found == {"model.weights.timm": "the model 'vit' has no pulled weights"}
        timm = {"name": "timm", "params": {"architecture": "vit_tiny"}, "weights": {"timm": True}}
        assert valid(evaluate_body(model=timm)).warnings == []
        uploaded = {"checkpoint": "c", "sha256": "no hash"}
        assert "model.weights.sha256" in problems(evaluate_body(model={"name": "vit", "weights": uploaded}))
        assert "model.weights" in problems(evaluate_body(model={"name": "vit", "weights": {}}))
        assert "model.weights" in problems(evaluate_body(model={"name": "vit", "weights": "j1"}))


NASTY = [
    None, True, 0, -1, 10**30, 1.5, math.nan, -math.inf, "", "x" * 300, "\ud800", "a\0", "pgd",
    [], {}, [[]], ["\udfff"], {"": None}, {"name": 3}, {"name": "pgd", "params": {"epsilon": []}},
    {"suite": None}, {"job": "j1"},
]  # fmt: skip


@pytest.mark.costly
def test_nothing_but_invalid_spec_is_ever_raised() -> None:
    """Random damage anywhere in a body is either harmless or an InvalidSpec that can be sent as JSON."""
    draw = random.Random(0)
    find = finder(FoundJob("train", "succeeded", TestWeights.SPEC))
    refused = 0
    for _ in range(1500):
        full = {
            "weights": {"job": "j1"},
            "name": "vit",
            "params": {"attention": {"name": "rpc", "params": {}}},
        }
        body: Any = evaluate_body(model=full, execution={}, tags=["a"])
        body["evaluations"].append({"suite": "quick"})
        for _ in range(draw.randint(1, 3)):
            place = body
            while True:
                keys: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))
                key = draw.choice(keys) if keys and draw.random() < 0.9 else "extra"
                if not isinstance(place, dict) and key == "extra":
                    break
                if (
                    isinstance(place.get(key) if isinstance(place, dict) else place[key], dict | list)
                    and draw.random() < 0.7
                ):
                    place = place[key]
                    continue
                place[key] = copy.deepcopy(draw.choice(NASTY))
                break
        body = json.loads(json.dumps(body))
        try:
            json.dumps(
                validate(CATALOG, body, find_job=find).spec, allow_nan=False, ensure_ascii=False
            ).encode()
        except InvalidSpec as error:
            refused += 1
            json.dumps(error.envelope().model_dump(), allow_nan=False, ensure_ascii=False).encode()
    assert refused > 1000


# Kinds that compute something; data sets, recipes and suites are described by facts, parameters and parts.
COMPUTING = ("attention", "attack", "corruption", "evaluation", "model", "words")


@pytest.mark.parametrize("kind", COMPUTING)
def test_what_computes_has_a_formula(kind: str) -> None:
    for component in load().list(kind):
        assert component.formula, f"{component.name}: an indented block of its module's docstring"


@pytest.mark.parametrize("kind", ["attention", "attack", "corruption", "words"])
def test_what_is_published_has_a_paper(kind: str) -> None:
    for component in load().list(kind):
        assert component.paper, component.name


@pytest.mark.parametrize("kind", COMPUTING)
def test_formulas_name_parameters_and_components_that_exist(kind: str) -> None:
    catalog = load()
    names = {component.name for component in catalog.list()}
    for component in catalog.list(kind):
        for named in re.findall(r"`(\w+)`", component.formula or ""):
            assert named in names | set(component.parameters["properties"]) | set(component.fixed), (
                f"{component.name}: there is no `{named}`"
            )


@pytest.mark.parametrize(
    ("kind", "name", "part"),
    [
        ("attention", "softmax", "softmax(q k^T / sqrt(D))"),
        ("attack", "apgd_dlr", "(z_1 - z_3)"),
        ("corruption", "fog", "(x + c f) m / (m + c)"),
        ("evaluation", "perplexity", "exp("),
        ("evaluation", "pwws", "softmax_i(s(text with [UNK] for word i))"),
        ("model", "vit", "logits = W' LN(x)_class + b'"),
        ("words", "swapped_characters", "w_(i+1) w_i"),
    ],
)
def test_a_formula_is_that_of_its_component(kind: str, name: str, part: str) -> None:
    (found,) = (one for one in load().list(kind) if one.name == name)
    assert part in (found.formula or "")
