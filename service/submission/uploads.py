"""The model of uploaded weights: as the caller states it, and as the header of the file does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.service.catalog.catalog import Catalog, Checked
from assay.service.contract.problems import Loc, Report
from assay.service.submission.weights import check_same_model

GIVEN: Loc = ("query", "model")
INSIDE: Loc = ("body", "__metadata__", "model")


def model_of_weights(
    catalog: Catalog, given: Mapping[str, Any] | None, inside: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The model of uploaded weights, with every parameter filled in.

    Args:
        catalog: has the models.
        given: {"name", "params"} as the caller says; None when nothing was said.
        inside: the same from the file's header; None when it says nothing.

    Raises:
        InvalidSpec: neither says it, it is no model, or the two disagree; the details name both values. Or
            nobody says how many heads a width has.
    """
    report = Report()
    if given is None and inside is None:
        message = "the file does not say of which model its weights are"
        report.add(GIVEN, message, allowed='a model\'s name, or {"name": ..., "params": ...} as JSON')
    checked: Checked | None = None
    if inside is not None:
        checked = _checked(catalog, inside, report, INSIDE)
    report.raise_if_any()
    if given is not None:
        trained = checked
        if trained is not None and trained.component.name == given.get("name"):
            given = {**given, "params": {**trained.params, **given.get("params", {})}}
        checked = _checked(catalog, given, report, GIVEN)
        if inside is None and checked is not None:
            _check_heads(given, report, (*GIVEN, "params"), checked.params)
        if trained is not None and checked is not None:
            inside = {"name": trained.component.name, "params": trained.params}
            check_same_model(checked, inside, report)
    report.raise_if_any()
    assert checked is not None
    return {"name": checked.component.name, "params": checked.params}


def _checked(catalog: Catalog, reference: Mapping[str, Any], report: Report, loc: Loc) -> Checked | None:
    checked = catalog.check_reference(("model",), {"params": {}, **reference}, report, loc)
    if checked is not None and checked.certain:
        known = {"model": checked.component.known(checked.params)}
        catalog.check_rules(checked.component, checked.params, known, report, (*loc, "params"))
    return checked


def _check_heads(given: Mapping[str, Any], report: Report, loc: Loc, params: Mapping[str, Any]) -> None:
    """Where a width is given, its heads must be too: no file tells them, and a default fits in silence."""
    own = given.get("params", {})
    if "width" in own and "heads" in params and "heads" not in own:
        message = "is required beside width: a file of weights does not tell its heads"
        report.add((*loc, "heads"), message, allowed="those of the training; of timm's, mostly width / 64")
    for name, value in own.items():
        inner = params.get(name)
        if isinstance(value, Mapping) and isinstance(inner, Mapping):
            _check_heads(value, report, (*loc, name, "params"), inner.get("params", {}))
