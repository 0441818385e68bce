"""Estimated work of a job, from catalog facts alone."""

from __future__ import annotations

from typing import Any

from assay.service.catalog.catalog import Catalog
from assay.service.catalog.component import Component
from assay.service.catalog.parameters import numbers
from assay.service.catalog.rules import Namespaces, UnknownName, evaluate
from assay.service.contract.stored_specs import Params, TrainJobSpec, UserSpec


def estimate(catalog: Catalog, spec: UserSpec) -> dict[str, int | None]:
    """Examples and model passes of a valid spec, summed over its evaluations or epochs.

    Returns:
        "examples", "forward_passes" and "backward_passes"; None where the data's size or a component's passes
        are unknown. They are upper bounds: examples leave an attack as soon as they are broken.
    """
    if spec["kind"] == "train":
        examples = _training_examples(catalog, spec)
        recipe = catalog.find("recipe", spec["recipe"]["name"])
        per_example = passes(recipe, spec["recipe"]["params"]) or (1, 1)
        made = [_total([_times(examples, count)]) for count in per_example]
        return {"examples": examples, "forward_passes": made[0], "backward_passes": made[1]}
    totals: list[tuple[int | None, float | None, float | None]] = []
    for item in spec["evaluations"]:
        data = item["data"] or spec["data"]
        component = catalog.find_evaluation(item["name"])
        n: int | None = repeats(component, item["params"])
        if n is None:
            n = _evaluation_examples(catalog.find("data", data["name"]), spec["limit"])
        forward, backward = passes(component, item["params"]) or (None, None)
        totals.append((n, _times(n, forward), _times(n, backward)))
    examples, forward_passes, backward_passes = (_total(column) for column in zip(*totals, strict=True))
    return {"examples": examples, "forward_passes": forward_passes, "backward_passes": backward_passes}


def passes(component: Component, params: Params) -> tuple[float, float] | None:
    """Forward and backward passes of the model per example, or None where they are not declared.

    Args:
        component: An attack, an evaluation or a recipe.
        params: Its parameters; those missing in an earlier version of the component have their defaults.
    """
    if component.passes is None:
        return None
    known = _known(component, params)
    forward = _count(component.passes.forward, known)
    backward = _count(component.passes.backward, known)
    return None if forward is None or backward is None else (forward, backward)


def repeats(component: Component, params: Params) -> int | None:
    """How often an evaluation measures the machine; None where it measures examples.

    Args:
        component: An attack or an evaluation.
        params: Its parameters, as for `passes`.
    """
    if component.repeats is None:
        return None
    count = _count(component.repeats, _known(component, params))
    return None if count is None else int(count)


def _known(component: Component, params: Params) -> Namespaces:
    defaults = {
        name: part["default"]
        for name, part in component.parameters["properties"].items()
        if "default" in part
    }
    return {"params": numbers(component.parameters, {**defaults, **params})}


def _count(expression: str, known: Namespaces) -> float | None:
    try:
        value = evaluate(expression, known)
    except (UnknownName, ValueError):
        return None
    return value if isinstance(value, int | float) else None


def _training_examples(catalog: Catalog, spec: TrainJobSpec) -> int | None:
    facts = catalog.find("data", spec["data"]["name"]).facts or {}
    epochs = spec["recipe"]["params"].get("epochs")
    size = facts.get("train")
    return _total([_times(size, epochs)])


def _evaluation_examples(data: Component, limit: int | None) -> int | None:
    known = [n for n in ((data.facts or {}).get("test"), limit) if n is not None]
    return min(known) if known else None


def _times(n: float | None, factor: float | None) -> float | None:
    return None if n is None or factor is None else n * factor


def _total(values: Any) -> int | None:
    """The sum as a whole number; None if any term is unknown."""
    listed = list(values)
    return None if None in listed else round(sum(listed))
