"""Estimated work of a job, from catalog facts, and the number of files of labelled image folders."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from assay.service.catalog.catalog import Catalog
from assay.service.catalog.component import Component
from assay.service.contract.stored_specs import (
    ComponentReference,
    EvaluationItem,
    TrainJobSpec,
    UserSpec,
)
from assay.service.submission.class_folders import count_examples

BACKWARD_COST = 2.0  # A backward pass costs about two forward passes.


def estimate(
    catalog: Catalog, spec: UserSpec, data_root: Path | None = None, *, published: bool = False
) -> dict[str, int | None]:
    """The "examples", "forward_passes" and "backward_passes" of a valid spec, over evaluations or epochs.

    None where the data's size or a component's passes are unknown; upper bounds, as broken examples leave.
    `published`: a set of unknown size counts as the published set.
    """
    examples, forward_passes, backward_passes = (
        _total(column) for column in zip(*_terms(catalog, spec, data_root, published), strict=True)
    )
    return {"examples": examples, "forward_passes": forward_passes, "backward_passes": backward_passes}


@dataclass(frozen=True)
class LeastWork:
    """The least that a job asks for; examples and passes of the model."""

    examples: float
    forward: float
    backward: float

    @property
    def passes(self) -> float:
        """Passes in forward passes."""
        return self.forward + BACKWARD_COST * self.backward


def least_work(catalog: Catalog, spec: UserSpec, data_root: Path | None = None) -> LeastWork:
    """`estimate` with each unknown number at its minimum: an example, a forward pass (in training both)."""
    parts = [work for _, work in least_parts(catalog, spec, data_root)]
    return LeastWork(
        math.fsum(part.examples for part in parts),
        math.fsum(part.forward for part in parts),
        math.fsum(part.backward for part in parts),
    )


def least_parts(
    catalog: Catalog, spec: UserSpec, data_root: Path | None = None
) -> list[tuple[ComponentReference, LeastWork]]:
    """The least work of each evaluation, or of the recipe."""
    found = []
    least = (1.0, 1.0 if spec["kind"] == "train" else 0.0)
    for component, reference in _parts(catalog, spec):
        n = _examples(catalog, spec, component, reference, data_root)
        count = float(_min_examples(spec) if n is None else n)
        forward, backward = component.passes_with(reference["params"]) or least
        found.append((reference, LeastWork(count, count * forward, count * backward)))
    return found


Term = tuple[float | None, float | None, float | None]


def _terms(catalog: Catalog, spec: UserSpec, data_root: Path | None, published: bool) -> list[Term]:
    terms: list[Term] = []
    for component, reference in _parts(catalog, spec):
        n = _examples(catalog, spec, component, reference, data_root, published)
        unknown = (1, 1) if spec["kind"] == "train" else (None, None)
        forward, backward = component.passes_with(reference["params"]) or unknown
        terms.append((n, _times(n, forward), _times(n, backward)))
    return terms


def _parts(catalog: Catalog, spec: UserSpec) -> list[tuple[Component, ComponentReference]]:
    if spec["kind"] == "train":
        return [(catalog.find("recipe", spec["recipe"]["name"]), spec["recipe"])]
    return [(catalog.find_evaluation(item["name"]), item) for item in spec["evaluations"]]


def _examples(
    catalog: Catalog,
    spec: UserSpec,
    component: Component,
    reference: ComponentReference,
    data_root: Path | None,
    published: bool = False,
) -> float | None:
    if spec["kind"] == "train":
        return _training_examples(catalog, spec, published)
    n = component.repeats_with(reference["params"])
    if n is not None:
        return n
    data = cast(EvaluationItem, reference)["data"] or spec["data"]
    found = catalog.find("data", data["name"])
    facts = found.facts or {}
    size = facts.get("test") or count_examples(found, data["params"], data_root)
    if size is None and published:
        size = facts.get("published")
    known = [n for n in (size, spec["limit"]) if n is not None]
    return min(known) if known else None


def _min_examples(spec: UserSpec) -> int:
    """The fewest examples of a part with unknown data; a training has at least a batch in each epoch."""
    if spec["kind"] != "train":
        return 1
    params, batch = spec["recipe"]["params"], spec["execution"]["batch_size"]
    return int(params.get("epochs") or params.get("steps") or 1) * (batch if isinstance(batch, int) else 1)


def _training_examples(catalog: Catalog, spec: TrainJobSpec, published: bool) -> int | None:
    facts, params = catalog.find("data", spec["data"]["name"]).facts or {}, spec["recipe"]["params"]
    if params.get("epochs") is None:
        return _total([_times(params.get("steps"), params.get("total_batch"))])
    size = facts.get("train") or (facts.get("published_train") if published else None)
    return _total([_times(size, params["epochs"])])


def _times(n: float | None, factor: float | None) -> float | None:
    return None if n is None or factor is None else n * factor


def _total(values: Any) -> int | None:
    listed = list(values)
    return None if None in listed else round(sum(listed))
