"""The field's words for our names, as a refusal suggests them."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.problems import nearest
from assay.service.submission.validate import validate
from assay.workers.discovery.signatures import SYNONYMS, with_synonyms
from assay.workers.discovery.walk import checked_words


def suggested(name: str, params: dict[str, Any] | None = None) -> list[tuple[str, str | None]]:
    """The last part of the place, and the suggestion, of every error of a job with one evaluation."""
    body = {
        "kind": "evaluate",
        "model": {"name": "vit", "params": {"image_size": 32, "patch_size": 4}},
        "data": {"name": "cifar10"},
        "evaluations": [{"name": name, "params": params or {}}],
    }
    try:
        validate(load(), body)
    except InvalidSpec as error:
        return [(str(detail.loc[-1]), detail.nearest) for detail in error.details]
    return []


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ("AA", "autoattack"), ("auto-attack", "autoattack"), ("cw", "carlini_wagner"),
        ("carlini", "carlini_wagner"),
        ("C&W", "carlini_wagner"), ("BIM", "pgd"), ("mim", "mi_fgsm"), ("PGD", "pgd"), ("accuracy", "clean"),
        ("boundary_attack", "hop_skip_jump"), ("pgdd", "pgd"),
    ],
)  # fmt: skip
def test_names_of_other_libraries(given: str, ours: str) -> None:
    assert suggested(given) == [("name", ours)]


@pytest.mark.parametrize(
    ("given", "value", "ours"),
    [
        ("eps", "8/255", "epsilon"), ("epsilons", "8/255", "epsilon"), ("epsilonn", "8/255", "epsilon"),
        ("num_steps", 10, "steps"), ("nb_iter", 10, "steps"), ("iterations", 10, "steps"),
        ("n_iter", 10, "steps"),
        ("alpha", 0.1, "step_size"), ("eps_iter", 0.1, "step_size"), ("n_restarts", 2, "restarts"),
        ("rand_init", True, "random_start"), ("ord", "inf", "norm"),
    ],
)  # fmt: skip
def test_parameters_of_other_libraries(given: str, value: Any, ours: str) -> None:
    assert suggested("pgd", {given: value}) == [(given, ours)]


@pytest.mark.parametrize(
    ("data", "given", "ours"),
    [
        ("text_table", "text_column", "text"), ("text_table", "label_column", "label"),
        ("image_table", "image_column", "image"), ("image_folder", "crop", "crop_fraction"),
        ("image_folder", "crop_pct", "crop_fraction"), ("imagenet", "resize_fraction", "crop_fraction"),
    ],
)  # fmt: skip
def test_parameters_of_data_of_other_libraries(data: str, given: str, ours: str) -> None:
    properties = load().find("data", data).parameters["properties"]
    also = {name: part["also"].split() for name, part in properties.items() if "also" in part}
    assert nearest(given, properties, also) == ours


@pytest.mark.parametrize(
    ("given", "ours"), [("linf", "Linf"), ("l2", "L2"), ("inf", "Linf"), ("l_inf", "Linf"), (2, "L2")]
)
def test_spellings_of_norms(given: Any, ours: str) -> None:
    assert suggested("pgd", {"norm": given}) == [("norm", ours)]


def test_a_radius_in_steps_of_pixels() -> None:
    assert suggested("pgd", {"epsilon": 8}) == [("epsilon", "8/255")]
    assert suggested("square", {"epsilon": 4.0}) == [("epsilon", "4/255")]
    assert suggested("pgd", {"epsilon": 0.031}) == []
    assert suggested("pgd", {"epsilon": 3, "norm": "L2"}) == []
    assert suggested("pgd", {"epsilon": 2.5}) == [("epsilon", None)]


@pytest.mark.parametrize(
    ("kind", "given", "ours"),
    [
        ("evaluate", "dataset", "data"), ("evaluate", "n_examples", "limit"),
        ("evaluate", "num_examples", "limit"), ("evaluate", "attacks", "evaluations"),
        ("evaluate", "batch_size", "execution.batch_size"),
        ("evaluate", "weights", "model.weights"), ("evaluate", "epochs", None), ("evaluate", "sede", "seed"),
        ("train", "epochs", "recipe.params.epochs"), ("train", "num_epochs", "recipe.params.epochs"),
        ("evaluate", "repeat", "execution.repeat"),
        ("train", "lr", "recipe.params.learning_rate"), (None, "dataset", "data"),
    ],
)  # fmt: skip
def test_words_for_the_fields_of_a_spec(kind: str | None, given: str, ours: str | None) -> None:
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), {"kind": kind, given: 3})
    assert [detail.nearest for detail in caught.value.details if detail.loc == [given]] == [ours]


def test_words_for_the_fields_of_parts_of_a_spec() -> None:
    model = {"name": "vit", "kwargs": {}, "checkpoint": "ours"}
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), {"kind": "evaluate", "model": model})
    found = {detail.loc[-1]: detail.nearest for detail in caught.value.details}
    assert (found["kwargs"], found["checkpoint"]) == ("params", "weights")


def test_the_own_name_goes_before_the_words_for_another() -> None:
    assert nearest("LR", ["lr", "learning_rate"], {"learning_rate": ["lr"]}) == "lr"
    assert nearest("///", ["a"], {"a": ["b"]}) is None
    schema = with_synonyms({"steps": {}, "iterations": {}, "share": {}})
    assert "iterations" not in schema["steps"]["also"].split()
    assert schema["share"] == {}


def test_every_word_means_one_parameter_of_a_component() -> None:
    for component in load().list():
        known: dict[str, str] = {}
        for name, part in component.parameters["properties"].items():
            for word in part.get("also", "").split():
                assert known.setdefault(word, name) == name, f"{component.name}: {word}"
    names = {name for entry in load().list() for name in entry.parameters["properties"]}
    assert set(SYNONYMS) <= names, "words for a parameter that no component has"


def test_a_text_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(ValueError, match="x: ALSO must list other names"):
        checked_words("x", "AA")
