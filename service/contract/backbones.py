"""Weights of a backbone: whether what was trained is the backbone of the model that is wanted.

A model whose parameter `backbone` is another model (Segmenter) may begin its training with the weights of a
classifier that was trained before, or with the backbone of another such model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from service.contract.report import Loc, Report
from service.contract.weights import LOC, check_same_params

if TYPE_CHECKING:
    from service.contract.catalog import Catalog, Checked

PARAMETER = "backbone"
PLACE: Loc = ("model", "params", PARAMETER)
# What weights do not depend on: positions are resized, and the rest only matters while training.
FREE = frozenset({"image_size", "dropout", "attention_dropout", "drop_path"})


def backbone_of(trained: Mapping[str, Any]) -> Mapping[str, Any]:
    """The backbone of a trained model: of a classifier the model itself.

    Args:
        trained: {"name", "params"} with every default filled in.
    """
    inner = trained["params"].get(PARAMETER)
    return inner if isinstance(inner, Mapping) else trained


def models_around(catalog: Catalog) -> list[str]:
    """The models that are built around a backbone, by name."""
    return [model.name for model in catalog.list("model") if PARAMETER in model.parameters["properties"]]


def with_backbone(catalog: Catalog, model: Mapping[str, Any], trained: Mapping[str, Any]) -> dict[str, Any]:
    """A model as it was asked for, with the backbone's parameters that it leaves to the trained one.

    Args:
        catalog: Says which models have a backbone.
        model: The well-formed parts of a `ModelSpec`.
        trained: {"name", "params"} of what the weights are of.
    """
    params, backbone = model.get("params"), backbone_of(trained)
    if not isinstance(params, Mapping) or model.get("name") not in models_around(catalog):
        return dict(model)
    known = {"name": backbone["name"], "params": dict(backbone["params"])}
    given = params.get(PARAMETER, known)
    if isinstance(given, str):
        given = {"name": given}
    if not isinstance(given, Mapping) or given.get("name") != known["name"]:
        return dict(model)
    own = given.get("params", {})
    if isinstance(own, Mapping):
        given = {**given, "params": {**known["params"], **own}}
    return {**model, "params": {**params, PARAMETER: given}}


def check_backbone(
    catalog: Catalog,
    model: Checked | None,
    trained: Mapping[str, Any] | None,
    report: Report,
    *,
    training: bool,
) -> None:
    """Report why a model cannot begin with the weights of a backbone.

    Args:
        catalog: Where the backbone is looked up.
        model: The model that is asked for; None where it was refused before.
        trained: {"name", "params"} of what the weights are of; None where nothing is known.
        report: Receives one remark per parameter that differs.
        training: Whether the job trains; what is left of the model would be random in an evaluation.
    """
    if not training:
        message = "only training begins with the weights of a part: the rest of the model would stay random"
        report.add((*LOC, "part"), message, given=PARAMETER, allowed=[None])
    if model is None:
        return
    wanted = model.params.get(PARAMETER)
    if not isinstance(wanted, Mapping):
        if PARAMETER not in model.component.parameters["properties"]:
            able = models_around(catalog)
            message = f"the model {model.component.name!r} has no part {PARAMETER!r}"
            report.add((*LOC, "part"), message, given=PARAMETER, allowed=f"with the model {', '.join(able)}")
        return
    if trained is None:
        return
    source = backbone_of(trained)
    if source["name"] != wanted["name"]:
        message = f"the weights are of the model {source['name']!r}"
        report.add((*PLACE, "name"), message, given=wanted["name"], allowed=[source["name"]])
        return
    component = catalog.find("model", wanted["name"])
    check_same_params(component, wanted["params"], source["params"], report, PLACE, free=FREE)
