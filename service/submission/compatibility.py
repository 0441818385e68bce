"""Compatibility of a model, its weights and data: tasks, classes, channels, image sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.service.catalog.catalog import Catalog, Checked
from assay.service.catalog.component import BY_PARAMETER, EVALUATIONS, Component
from assay.service.catalog.schema_text import choices
from assay.service.contract.problems import Loc, Problems, nearest
from assay.service.contract.stored_specs import ComponentReference, Params
from assay.service.submission.class_folders import count_classes, describe_classes
from assay.service.submission.weights import NO_GRADIENTS

COMPARED_FACTS = ("classes", "channels")  # Shape of logits and input: where it differs, no weights fit.
BACKBONE_FACTS = ("channels",)  # A backbone has no classes.

REQUIREMENT_TEXT = {
    "softmax": "a softmax over all tokens in every layer of self-attention, with q, k and v to be seen",
    "attention_matrix": "an attention matrix in every layer",
    "kernel_matrix": "a kernel matrix",
    "pursuit": "RPC-Attention in some layer",
    "word_vectors": "the layer that makes words vectors (a method word_vectors)",
}
OF_MODELS = {"word_vectors"}  # Capabilities of models alone: no other part is asked for them.
ALTERNATIVE = " or "  # Between capabilities that are alternatives: a part needs any one.


@dataclass(frozen=True)
class MadeFor:
    """The data and sizes that a model was, or will be, made for."""

    data: str | None  # The set that it was or will be trained on, as by `data_text`; None where unknown
    facts: Mapping[str, Any]  # Facts of that data set
    weights: Mapping[str, int]  # `classes`, `channels` and `image_size`, as far as its weights tell
    image_size: Any  # In pixels, None where unknown
    compared: tuple[str, ...]  # The facts of data that must be equal


def facts_of(catalog: Catalog, data: ComponentReference) -> Mapping[str, Any]:
    """Facts of a data set with its parameters; empty where this version does not have it."""
    known = data["name"] in catalog.names("data")
    return catalog.find("data", data["name"]).facts_for(data["params"]) if known else {}


def data_text(component: Component, params: Params, fact: str | None = None) -> str:
    """A data set's name, and the parameters that its facts, or the given fact, depend on."""
    named = [
        f"{name} {params[name]}"
        for name, branches in (component.facts or {}).get(BY_PARAMETER, {}).items()
        if name in params and (fact is None or any(fact in branch for branch in branches.values()))
    ]
    return f"{component.name!r} ({', '.join(named)})" if named else repr(component.name)


def check_fit(
    data: Checked | None, model: MadeFor, problems: Problems, loc: Loc, root: Path | None = None
) -> None:
    """Report data with other classes or channels than the model is made for."""
    if data is None or model.data is None:
        return
    facts = data.component.facts_for(data.params)
    if "classes" not in facts and (counted := count_classes(data, root)) is not None:
        facts = {**facts, "classes": counted}
    for fact in model.compared:
        made_for = model.weights.get(fact, _of_model(model.facts, fact))
        needed = _of_model(facts, fact)
        if needed is None or made_for is None or needed == made_for:
            continue
        whose = "its weights" if fact in model.weights else model.data
        given = f"{needed}" if needed == facts[fact] else f"{facts[fact]} of {needed}"
        message = (
            f"{data_text(data.component, data.params, fact)} has {given} {fact}, the model is made for the"
            f" {made_for} of {whose}"
        )
        if fact == "classes" and (folders := describe_classes(data, root)) is not None:
            message += f"; its class folders are {folders}"
        allowed = f"data with {made_for} {fact}"
        if made_for in [values.get(fact) for values in _by_parameter(data.component, fact)]:
            message += f'; state it: "{fact}": {made_for}'
        problems.add((*loc, "name"), message, given=data.component.name, allowed=allowed)


def _by_parameter(data: Component, parameter: str) -> list[dict[str, Any]]:
    return list((data.facts or {}).get(BY_PARAMETER, {}).get(parameter, {}).values())


def misfits(
    theirs: ComponentReference,
    their_facts: Mapping[str, Any],
    data: Checked | None,
    ours: MadeFor,
    whose: str = "job",
) -> Iterator[tuple[str, str]]:
    """Mismatches of another model with the data and sizes of this job's model, and the right values."""
    # The facts are of the other model's training data or weights file; `data` is None where unknown; `whose`
    # says, for messages, what the other model belongs to.
    facts = data.component.facts_for(data.params) if data is not None else {}
    for fact in COMPARED_FACTS:
        trained, needed = _of_model(their_facts, fact), _of_model(facts, fact)
        if needed is not None and trained is not None and needed != trained:
            yield f"this {whose}'s model is made for {trained} {fact}", f"{needed} {fact}"
    size = theirs["params"].get("image_size", their_facts.get("image_size"))
    if size is not None and ours.image_size is not None and size != ours.image_size:
        yield f"this {whose}'s model is for images of {size} pixels", f"images of {ours.image_size} pixels"


def check_tasks(
    catalog: Catalog,
    component: Component,
    model: Checked | None,
    data: Checked | None,
    problems: Problems,
    loc: Loc,
    field: str = "name",
) -> None:
    """Report a recipe, an evaluation or a suite for another task than the model's or the data's."""
    others = [other for other in (model, data) if other is not None]

    def fits(one: Component, other: Checked) -> bool:
        tasks = _done_by(catalog, one.tasks) if other is model else one.tasks
        return _share(tasks, other.component.tasks)

    for other in others:
        if not fits(component, other):
            message = (
                f"{component.name!r} is for {_list(component.tasks)}, the {other.component.kind}"
                f" {other.component.name!r} is for {_list(other.component.tasks)}"
            )
            kinds = EVALUATIONS if component.kind in EVALUATIONS else (component.kind,)
            same = [one for kind in kinds for one in catalog.list(kind)]
            # Where the model does not fit the data, nothing fits both.
            able = [one.name for one in same if all(fits(one, o) for o in others)] or [
                one.name for one in same if fits(one, other)
            ]
            near = nearest(component.name, able)
            problems.add((*loc, field), message, given=component.name, allowed=able, nearest=near)
            break


def check_data_tasks(
    catalog: Catalog, data: Component, model: Component, problems: Problems, loc: Loc
) -> None:
    """Report data for other tasks than the model's; `loc` is the place of the data in the body."""
    if not _share(model.tasks, _done_by(catalog, data.tasks)):
        able = [one.name for one in catalog.list("data") if _share(model.tasks, _done_by(catalog, one.tasks))]
        message = (
            f"{data.name!r} is data for {_list(data.tasks)},"
            f" the model {model.name!r} is for {_list(model.tasks)}"
        )
        near = nearest(data.name, able)
        problems.add((*loc, "name"), message, given=data.name, allowed=able, nearest=near)


def check_protocol(catalog: Catalog, protocol: str | None, data: Checked | None, problems: Problems) -> None:
    """Report the protocol `paper` for data with tasks of a single protocol, on which it has no effect."""
    if protocol != "paper" or data is None or not data.component.tasks:
        return
    if all(catalog.task(task).row_protocol("paper") != "paper" for task in data.component.tasks):
        message = (
            f"{data.component.name!r} is data for {_list(data.component.tasks)}, which has one protocol only"
        )
        problems.add(("protocol",), message, given=protocol, allowed=["pixel"], nearest="pixel")


def with_facts_of_data(
    recipe: Checked | None, data: Checked | None, problems: Problems, loc: Loc
) -> Checked | None:
    """A recipe with the facts of the data in the parameters that stand for them (`fact`); reports others."""
    if recipe is None or data is None:
        return recipe
    params, facts = dict(recipe.params), data.component.facts or {}
    for name, schema in recipe.component.parameters["properties"].items():
        if "fact" not in schema or name not in params:
            continue
        given, stated, where = params[name], facts.get(schema["fact"]), (*loc, "params", name)
        if given is None and stated is None:
            allowed = [value for value in choices(schema) if value is not None]
            message = f"must be stated: the data {data.component.name!r} does not say it"
            problems.add(where, message, given=None, allowed=allowed)
        elif given is not None and stated is not None and given != stated:
            message = f"the data {data.component.name!r} is for {name} {stated!r}"
            problems.add(where, message, given=given, allowed=[stated], nearest=stated)
        params[name] = stated if given is None else given
    return replace(recipe, params=params)


def classes_of_model(facts: Mapping[str, Any]) -> int | None:
    """The classes of a model for data with these facts: a set may have some of its classes."""
    found: int | None = facts.get("model_classes", facts.get("classes"))
    return found


def _of_model(facts: Mapping[str, Any], fact: str) -> Any:
    return classes_of_model(facts) if fact == "classes" else facts.get(fact)


def _done_by(catalog: Catalog, tasks: Sequence[str]) -> list[str]:
    """The tasks of models that can do these tasks: a classifier's confidence detects anomalies."""
    return [catalog.task(task).done_by or task for task in tasks]


def _share(some: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two components have a task in common; no tasks means any."""
    return not some or not others or bool(set(some) & set(others))


def _list(tasks: Sequence[str]) -> str:
    return " and ".join(tasks)


def check_capabilities(
    catalog: Catalog, evaluation: Component, model: Checked, problems: Problems, loc: Loc
) -> None:
    """Report each part of a model without a required capability, unless `check_tasks` reports its task."""
    if not _share(_done_by(catalog, evaluation.tasks), model.component.tasks):
        return
    parts = list(_parts(catalog, model.component, model.params))
    for requirement in evaluation.needs:
        capabilities = requirement.split(ALTERNATIVE)
        for part in parts:
            if not {*capabilities}.isdisjoint(part.offers):
                continue
            if part.kind != "model" and OF_MODELS.issuperset(capabilities):
                continue
            able = [
                entry.name
                for entry in catalog.list(part.kind)
                if not {*capabilities}.isdisjoint(entry.offers) and _share(entry.tasks, part.tasks)
            ]
            wanted = ALTERNATIVE.join(REQUIREMENT_TEXT.get(one, one) for one in capabilities)
            message = (
                f"{evaluation.name!r} needs {wanted}, which the {part.kind} {part.name!r} does not offer"
            )
            problems.add((*loc, "name"), message, given=evaluation.name, allowed=able)


def check_gradients(catalog: Catalog, evaluation: Component, problems: Problems, loc: Loc) -> None:
    """Report an attack that follows gradients, for a model that has none."""

    def follows(one: Component) -> bool:
        return one.threat is not None and one.threat.knowledge == "white_box"

    if follows(evaluation):
        able = [
            entry.name
            for entry in catalog.list("attack")
            if entry.threat is not None and not follows(entry) and _share(entry.tasks, evaluation.tasks)
        ]
        message = f"{evaluation.name!r} follows gradients, and {NO_GRADIENTS}"
        problems.add((*loc, "name"), message, given=evaluation.name, allowed=able)


def known_of_model(catalog: Catalog, component: Component, params: Params) -> dict[str, object]:
    """Values under `model` for rules: its parameters and facts, and those that only its backbone has."""
    known: dict[str, object] = {}
    for _, kind, reference in component.references(params):
        if kind == "model":
            nested = catalog.find(kind, reference["name"])
            known |= known_of_model(catalog, nested, reference["params"])
    return {**known, **component.known(params)}


def known_of_parts(catalog: Catalog, component: Component, params: Params) -> dict[str, object]:
    """Values under `part` for rules: of a model's parts, and of its backbone's parts by their own names."""
    known: dict[str, object] = {}
    for _, kind, reference in component.references(params):
        if kind == "model":
            known |= known_of_parts(catalog, catalog.find(kind, reference["name"]), reference["params"])
    return {**known, **catalog.known_of_parts(component, params)}


def _parts(catalog: Catalog, component: Component, params: Params) -> Iterator[Component]:
    yield component
    for _, kind, reference in component.references(params):
        yield from _parts(catalog, catalog.find(kind, reference["name"]), reference["params"])
