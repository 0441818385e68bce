"""What an evaluation wants to look at inside a model, and whether the model and its parts let it.

An evaluation states what it `needs`, models and attention mechanisms what they `offer` (catalog). "softmax"
is attention that ends in softmax(q k^T / sqrt(D)) v over all tokens, with q, k and v to be seen in every
layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from assay.service.catalog.catalog import Catalog, Checked
from assay.service.catalog.component import Component
from assay.service.contract.problems import Loc, Report

WORDS = {"softmax": "a softmax over all tokens in every layer of self-attention, with q, k and v to be seen"}


def check_offers(catalog: Catalog, evaluation: Component, model: Checked, report: Report, loc: Loc) -> None:
    """Report each part of a model that does not offer what an evaluation needs.

    Args:
        catalog: Where parts are looked up.
        evaluation: What is to be run.
        model: The model with its parameters.
        report: Receives the parts at fault.
        loc: Where the evaluation stands in the body.
    """
    parts = list(_parts(catalog, model.component, model.params))
    for need in evaluation.needs:
        for part in parts:
            if need in part.offers:
                continue
            able = [entry.name for entry in catalog.list(part.kind) if need in entry.offers]
            message = (
                f"{evaluation.name!r} needs {WORDS.get(need, need)}, which the {part.kind} {part.name!r}"
                f" does not offer"
            )
            report.add((*loc, "name"), message, given=evaluation.name, allowed=able)


def known_of_model(catalog: Catalog, component: Component, params: Mapping[str, Any]) -> dict[str, object]:
    """What rules see under `model`: parameters and facts; of a backbone those that the model has not."""
    known: dict[str, object] = {}
    for _, kind, reference in component.references(params):
        if kind == "model":
            nested = catalog.find(kind, reference["name"])
            known |= known_of_model(catalog, nested, reference["params"])
    return {**known, **component.known(params)}


def _parts(catalog: Catalog, component: Component, params: Mapping[str, Any]) -> Iterator[Component]:
    yield component
    for _, kind, reference in component.references(params):
        yield from _parts(catalog, catalog.find(kind, reference["name"]), reference["params"])
