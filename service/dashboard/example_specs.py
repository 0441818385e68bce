"""Example jobs: a small valid job for every component of the catalog, and the presets of `presets.json`.

A job is put together from a small model, data set and recipe of a task, and the component. A test validates
each against the catalog. Data sets that are read from a folder stay as they are: the job waits for no file,
it is refused where the service sees that the folder is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.service.catalog.catalog import Catalog
from assay.service.catalog.component import EVALUATIONS, Component
from assay.service.catalog.tasks import TaskExample
from assay.service.contract.errors import InvalidSpec, NotFound
from assay.service.dashboard.spec_form import reduced
from assay.service.submission.validate import validate

Params = Mapping[str, Any]
SpecBody = dict[str, Any]

EXECUTION = {"batch_size": 64}
LIMIT = 64  # Examples of an evaluation: enough to see that it runs.


_PARTS = json.loads(Path(__file__).with_name("example_specs.json").read_text(encoding="utf-8"))
# Parameters that make a model small, each used where the model has it.
SMALL: Params = _PARTS["small"]
# Parameters of components that need more than their defaults.
PARAMETERS: Mapping[str, Mapping[str, Params]] = _PARTS["parameters"]
# Where the parts of a task do not suit a component.
SENTENCES = {"name": "imdb", "params": {}}
DATA_OF: Mapping[str, SpecBody] = {
    name: {"name": data, "params": {}} for name, data in _PARTS["data"].items()
}
FREE_TASK = {"attention": "classification", "corruption": "classification", "words": "language"}


@dataclass(frozen=True)
class Preset:
    """A job that the submit page offers as a start."""

    name: str
    title: str
    summary: str
    spec: SpecBody


PRESETS = tuple(
    Preset(**preset)
    for preset in json.loads(Path(__file__).with_name("presets.json").read_text(encoding="utf-8"))
)
# RPC-Attention in every layer, where suites of its paper apply.
ROBUST_MODEL: SpecBody = PRESETS[0].spec["model"]


def example_of(catalog: Catalog, component: Component) -> SpecBody:
    """A small job that uses the component, as a person would write it."""
    for variant in _variants(catalog, component):
        body = {**variant, "name": f"example of {component.name}"[:200]}
        try:
            validate(catalog, body)
        except InvalidSpec:
            continue
        return reduced(catalog, body)
    raise NotFound(
        f"there is no example of the {component.kind} {component.name!r}: choose its parts yourself"
    )


def conditions_of(catalog: Catalog, spec: Mapping[str, Any]) -> list[str]:
    """What a job needs beside the service, in sentences: folders, packages, weights, other jobs."""
    found = []
    weights = spec["model"].get("weights") or {}
    if "checkpoint" in weights:
        found.append(f"It needs an uploaded checkpoint: write its name in place of {weights['checkpoint']}.")
    if "pulled" in weights:
        found.append("It reads pulled weights: `assay pull` fetches them to the machines of the workers.")
    for reference in (spec["data"], *(item.get("data") for item in spec.get("evaluations", []))):
        if not reference:
            continue
        data = catalog.find("data", reference["name"])
        properties = data.parameters["properties"]
        params = {
            **{name: part.get("default") for name, part in properties.items()},
            **reference.get("params", {}),
        }
        folders = [params[name] for name, part in properties.items() if part.get("folder") and params[name]]
        found += [f"It reads the folder {folder} under the data root of the workers." for folder in folders]
        if package := (data.facts or {}).get("package"):
            found.append(f"It needs the package {package} on the workers.")
    for item in spec.get("evaluations", []):
        if "name" in item and list(catalog.find_evaluation(item["name"]).jobs(item.get("params", {}))):
            found.append("It takes the model of another training job: write its id in place of the one here.")
    return list(dict.fromkeys(found))


def _variants(catalog: Catalog, component: Component) -> Iterator[SpecBody]:
    tasks = component.tasks or [FREE_TASK[component.kind], "language", "sequence", "series", "control"]
    for task in tasks:
        facts = catalog.task(task)
        example = facts.example or catalog.task(facts.done_by or task).example
        if example is not None:
            yield from MAKERS[component.kind](catalog, component, example)


def _model(catalog: Catalog, name: str, *choices: Params) -> Iterator[SpecBody]:
    known = catalog.find("model", name).parameters["properties"]
    for choice in (*choices, {}):
        yield {"name": name, "params": {key: value for key, value in choice.items() if key in known}}


def _training(parts: TaskExample, **changes: Any) -> SpecBody:
    return {
        "kind": "train",
        "model": {"name": parts.model, "params": dict(parts.model_params)},
        "data": _data(parts),
        "recipe": {"name": parts.recipe, "params": dict(parts.recipe_params)},
        "execution": EXECUTION,
        **changes,
    }


def _evaluation(parts: TaskExample, evaluations: Sequence[SpecBody], **changes: Any) -> SpecBody:
    return {
        "kind": "evaluate",
        "limit": LIMIT,
        "model": {"name": parts.model, "params": dict(parts.model_params)},
        "data": _data(parts),
        "evaluations": list(evaluations),
        "execution": EXECUTION,
        **changes,
    }


def _data(parts: TaskExample) -> SpecBody:
    return {"name": parts.data, "params": dict(PARAMETERS["data"].get(parts.data, {}))}


def _example_of_model(catalog: Catalog, component: Component, parts: TaskExample) -> Iterator[SpecBody]:
    stated = PARAMETERS["model"].get(component.name, {})
    for model in _model(catalog, component.name, {**SMALL, **parts.model_params, **stated}, stated):
        data = DATA_OF.get(component.name, _data(parts))
        yield _training(parts, model=model, data=data)
        yield _training(parts, model=model, data=SENTENCES)
        finals = dict.fromkeys(catalog.task(task).final.name for task in component.tasks)
        for weights in ({"checkpoint": "my-model"}, {"pulled": True}):
            for final in finals:
                yield _evaluation(parts, [{"name": final}], model={**model, "weights": weights}, data=data)


def _example_of_attention(catalog: Catalog, component: Component, parts: TaskExample) -> Iterator[SpecBody]:
    stated = PARAMETERS["attention"].get(component.name, {})
    for layers in ("all", "last"):
        attention = {"name": component.name, "params": dict(stated)}
        params = {**parts.model_params, "attention": attention, "layers": layers}
        yield _training(parts, model={"name": parts.model, "params": params})


def _example_of_data(catalog: Catalog, component: Component, parts: TaskExample) -> Iterator[SpecBody]:
    data = {"name": component.name, "params": dict(PARAMETERS["data"].get(component.name, {}))}
    for changes in ({}, {"model": {"name": parts.model, "params": {**parts.model_params, "pairs": True}}}):
        yield _training(parts, data=data, **changes)
    for name in ("clean", "corruptions", "aupr"):
        params = {"source": "stored"} if name == "corruptions" else {}
        yield _evaluation(parts, [{"name": name, "params": params}], data=data)


def _example_of_recipe(catalog: Catalog, component: Component, parts: TaskExample) -> Iterator[SpecBody]:
    known = component.parameters["properties"]
    few = {"epochs": 1, "steps": 200, "warmup_epochs": 0, "warmup_steps": 20, "crop_size": 64}
    params = {key: value for key, value in few.items() if key in known}
    data = DATA_OF.get(component.name, _data(parts))
    for chosen in (params, {}):
        yield _training(parts, recipe={"name": component.name, "params": chosen}, data=data)


def _example_of_evaluation(catalog: Catalog, component: Component, parts: TaskExample) -> Iterator[SpecBody]:
    properties = component.parameters["properties"]
    stated: SpecBody = {"job": "01jd3q0x5v8f7m2n9k4t6w1z0y"} if "job" in properties else {}
    if "source" in properties:
        stated = {"severities": [1, 3, 5]}
    stated |= PARAMETERS.get(component.kind, {}).get(component.name, {})
    item = {"name": component.name, "params": stated}
    model = {"name": "rpc_symvit", "params": dict(parts.model_params)}
    data = DATA_OF.get(component.name, _data(parts))
    yield _evaluation(parts, [item], data=data)
    yield _evaluation(parts, [item], model=model)
    yield _evaluation(parts, [item], data=SENTENCES)


def _example_of_suite(catalog: Catalog, component: Component, parts: TaskExample) -> Iterator[SpecBody]:
    item = {"suite": component.name}
    for changes in ({}, {"protocol": "paper"}, {"model": ROBUST_MODEL}):
        yield _evaluation(parts, [item], **changes)
    yield _evaluation(parts, [item], data=DATA_OF.get(component.name, SENTENCES))
    for data in ("imagenet", "ade20k", "wikitext"):
        yield _evaluation(parts, [item], data={"name": data, "params": {}})
        yield _evaluation(
            parts, [item], model={"name": "rpc_symmlm_tiny", "params": {}}, data={"name": data, "params": {}}
        )


def _example_of_corruption(catalog: Catalog, component: Component, parts: TaskExample) -> Iterator[SpecBody]:
    params = {"corruptions": [component.name], "severities": [1, 3, 5]}
    yield _evaluation(parts, [{"name": "clean"}, {"name": "corruptions", "params": params}])


def _example_of_task(catalog: Catalog, component: Component, parts: TaskExample) -> Iterator[SpecBody]:
    if catalog.task(component.name).example is not None:
        yield _training(parts)
    for data in catalog.list("data"):
        if component.name in data.tasks:
            yield from _example_of_data(catalog, data, parts)


def _example_of_words(catalog: Catalog, component: Component, parts: TaskExample) -> Iterator[SpecBody]:
    params = {"words": {"name": component.name, "params": {}}}
    yield _evaluation(parts, [{"name": "perplexity"}, {"name": "word_swap", "params": params}])


Maker = Callable[[Catalog, Component, TaskExample], Iterator[SpecBody]]
MAKERS: Mapping[str, Maker] = {
    "model": _example_of_model,
    "attention": _example_of_attention,
    "data": _example_of_data,
    "recipe": _example_of_recipe,
    "suite": _example_of_suite,
    "corruption": _example_of_corruption,
    "task": _example_of_task,
    "words": _example_of_words,
    **dict.fromkeys(EVALUATIONS, _example_of_evaluation),
}
