"""Every component has an example that is valid, and the form holds each without loss."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import KINDS, Catalog, load
from assay.service.contract.errors import NotFound
from assay.service.dashboard.example_specs import PRESETS, conditions_of, example_of
from assay.service.dashboard.spec_form import defaults_of_training, form_of, has_form, read_spec, reduced
from assay.service.submission.validate import validate
from tests.service.conftest import component


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_component_has_a_valid_example_that_uses_it(catalog: Catalog, kind: str) -> None:
    for entry in catalog.list(kind):
        spec = example_of(catalog, entry)
        valid = validate(catalog, spec).spec
        wanted = [item["name"] for item in entry.evaluations or []] or [entry.name]
        if kind == "task":
            wanted = [data.name for data in catalog.list("data") if data.tasks == [entry.name]]
        assert any(f"'{name}'" in str(valid) for name in wanted), entry.name
        if entry.evaluations:
            assert spec["evaluations"] == [{"suite": entry.name}]


@pytest.mark.costly
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_form_holds_every_example_as_written_and_as_stored(catalog: Catalog, kind: str) -> None:
    for entry in catalog.list(kind):
        spec = example_of(catalog, entry)
        stored = validate(catalog, spec).spec
        for one in (spec, stored):
            short = reduced(catalog, one)
            assert has_form(catalog, short), entry.name
            assert read_spec(catalog, form_of(catalog, short).texts()) == short
        again = validate(catalog, reduced(catalog, stored)).spec
        assert {**again, "left_out": []} == {**stored, "left_out": []}, entry.name


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_presets_are_valid_and_need_no_file(catalog: Catalog, preset: Any) -> None:
    validate(catalog, preset.spec)
    assert conditions_of(catalog, preset.spec) == []
    assert has_form(catalog, reduced(catalog, preset.spec))


def test_what_an_example_needs_is_said(catalog: Catalog) -> None:
    def conditions(kind: str, name: str) -> str:
        return " ".join(conditions_of(catalog, example_of(catalog, catalog.find(kind, name))))

    assert "folder imagenet-a" in conditions("data", "imagenet_a")
    assert "checkpoint" in conditions("model", "exported")
    assert "training job" in conditions("attack", "transfer")
    assert "package gymnasium" in conditions("data", "minari")
    assert conditions("attack", "pgd") == ""


def test_a_component_without_an_example_says_so(catalog: Catalog) -> None:
    with pytest.raises(NotFound, match="no example of the model 'odd'"):
        example_of(catalog, component("model", "odd", {}, tasks=["dreaming"]))


def test_parameters_of_a_training_are_the_defaults_of_jobs_with_its_weights(catalog: Catalog) -> None:
    params = {"image_size": 32, "patch_size": 8, "attention": {"name": "rpc", "params": {"iterations": 2}}}
    body = {
        "kind": "train",
        "model": {"name": "vit", "params": params},
        "data": {"name": "digits"},
        "recipe": {"name": "small_vit"},
    }
    trained = defaults_of_training(catalog, validate(catalog, body).spec["model"])
    weights = {"job": "01jd3q0x5v8f7m2n9k4t6w1z0y"}
    spec: dict[str, Any] = {
        "kind": "evaluate",
        "model": {"name": "vit", "weights": weights},
        "data": {"name": "digits"},
        "evaluations": [{"name": "clean"}],
    }
    form = form_of(catalog, spec, trained)
    size = next(field for field in form.model.nested if field.label == "image_size")
    assert (size.value, size.default) == ("", "32")
    assert read_spec(catalog, form.texts(), trained) == spec
    stated = {**spec, "model": {"name": "vit", "params": params, "weights": weights}}
    assert reduced(catalog, stated, trained) == spec
    assert has_form(catalog, spec, trained)


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "evaluate", "evaluations": [{"name": "clean"}] * 41},
        {"kind": "evaluate", "evaluations": [{"nam": "clean"}]},
        {"kind": "evaluate", "evaluations": [{"name": None}]},
        {"kind": "evaluate", "evaluations": [], "model": {"name": None, "weights": {"job": "a"}}},
        {"kind": "evaluate", "evaluations": [], "name": "two\nlines"},
        {"kind": "evaluate", "evaluations": [], "unknown": 1},
        {"kind": "evaluate", "evaluations": [], "model": {"name": "vit", "params": {"depth": {"a": 1}}}},
        {"kind": "evaluate", "evaluations": [], "model": {"name": "vit", "params": {"dept": 1}}},
        {"kind": "evaluate", "evaluations": [], "model": {"name": ["vit"], "params": 3}},
        {"kind": "evaluate", "evaluations": [], "execution": {"gpu": 1}},
    ],
)
def test_what_a_form_would_lose_is_edited_as_json(catalog: Catalog, spec: dict[str, Any]) -> None:
    assert not has_form(catalog, reduced(catalog, spec))
