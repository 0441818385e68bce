"""Weights of a backbone: whether the trained model is the backbone of the wanted model.

A model with another model as its parameter `backbone` (Segmenter, text_classifier) may begin its training
with the weights of a model that was trained before, or with the backbone of another such model. Language
models may have different names: their attention may have another form if the layers' weights are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from assay.service.catalog.catalog import Catalog, Checked
from assay.service.contract.problems import Loc, Problems
from assay.service.contract.stored_specs import ComponentReference
from assay.service.submission.weights import LOC, check_same_params

PARAMETER = "backbone"
PLACE: Loc = ("model", "params", PARAMETER)
# Parameters that weights do not depend on: positions are resized, and the rest only matters in training.
FREE = frozenset({"image_size", "dropout", "attention_dropout", "drop_path"})
# Parameters that a language model's weights depend on, without output layer and the layers' attention.
SIZES = ("width", "depth", "heads", "hidden")
LAYOUT = "layout"  # The fact of a language model, or of an attention mechanism: which projections a layer has


def backbone_of(trained: ComponentReference) -> ComponentReference:
    """The backbone of a trained model: for a classifier the model itself."""
    inner = trained["params"].get(PARAMETER)
    return cast(ComponentReference, inner) if isinstance(inner, Mapping) else trained


def models_around(catalog: Catalog) -> list[str]:
    """The models built around a backbone, by name."""
    return [model.name for model in catalog.list("model") if PARAMETER in model.parameters["properties"]]


def with_backbone(catalog: Catalog, model: Mapping[str, Any], trained: ComponentReference) -> dict[str, Any]:
    """The requested model, with unset parameters of the backbone taken from the trained one."""
    params, backbone = model.get("params"), backbone_of(trained)
    if not isinstance(params, Mapping) or model.get("name") not in models_around(catalog):
        return dict(model)
    known: ComponentReference = {"name": backbone["name"], "params": dict(backbone["params"])}
    given = params.get(PARAMETER, known)
    if isinstance(given, str):
        given = {"name": given}
    if not isinstance(given, Mapping):
        return dict(model)
    if given.get("name") == known["name"]:
        left = known["params"]
    elif isinstance(given.get("name"), str) and _of_words(catalog, given["name"], known["name"]):
        left = _in_both(catalog, given["name"], known)
    else:
        return dict(model)
    own = given.get("params", {})
    if isinstance(own, Mapping):
        given = {**given, "params": {**left, **own}}
    return {**model, "params": {**params, PARAMETER: given}}


def check_backbone(
    catalog: Catalog,
    model: Checked | None,
    trained: ComponentReference | None,
    problems: Problems,
    *,
    training: bool,
) -> None:
    """Report why a model cannot start from the weights of a backbone."""
    if not training:
        message = "only training begins with the weights of a part: the rest of the model would stay random"
        problems.add((*LOC, "part"), message, given=PARAMETER, allowed=[None])
    if model is None:
        return
    given = model.params.get(PARAMETER)
    if not isinstance(given, Mapping):
        if PARAMETER not in model.component.parameters["properties"]:
            able = models_around(catalog)
            message = f"the model {model.component.name!r} has no part {PARAMETER!r}"
            problems.add(
                (*LOC, "part"), message, given=PARAMETER, allowed=f"with the model {', '.join(able)}"
            )
        return
    if trained is None:
        return
    wanted, source = cast(ComponentReference, given), backbone_of(trained)
    if _of_words(catalog, wanted["name"], source["name"]):
        _check_words(catalog, wanted, source, problems)
        return
    if source["name"] != wanted["name"]:
        message = f"the weights are of the model {source['name']!r}"
        problems.add((*PLACE, "name"), message, given=wanted["name"], allowed=[source["name"]])
        return
    component = catalog.find("model", wanted["name"])
    check_same_params(component, wanted["params"], source["params"], problems, PLACE, free=FREE)


def may_begin_with(catalog: Catalog, wanted: str, source: str) -> bool:
    """Whether one backbone's weights may serve another, as far as the names tell."""
    return wanted == source or _of_words(catalog, wanted, source)


def _of_words(catalog: Catalog, *names: str) -> bool:
    """Whether these models are language models that state the projections of their layers."""
    known = catalog.names("model")
    return all(name in known and LAYOUT in (catalog.find("model", name).facts or {}) for name in names)


def _in_both(catalog: Catalog, name: str, trained: ComponentReference) -> dict[str, Any]:
    """Known values of a trained language model that another one has as parameters."""
    known = catalog.find("model", trained["name"]).known(trained["params"])
    return {key: known[key] for key in catalog.find("model", name).parameters["properties"] if key in known}


def _check_words(
    catalog: Catalog, wanted: ComponentReference, source: ComponentReference, problems: Problems
) -> None:
    """Report sizes of a language model that differ from the trained one's, and the first differing layer."""
    component = catalog.find("model", wanted["name"])
    ours = component.known(wanted["params"])
    theirs = catalog.find("model", source["name"]).known(source["params"])
    place = (*PLACE, "params")
    for size in SIZES:
        if size in ours and size in theirs and ours[size] != theirs[size]:
            message = f"the weights are of a model with {size} {theirs[size]}"
            problems.add((*place, size), message, given=ours[size], allowed=[theirs[size]])
    pairs = zip(layouts(catalog, wanted), layouts(catalog, source), strict=False)
    for layer, (own, trained) in enumerate(pairs):
        if own != trained:
            message = f"layer {layer} has the projections {own}, the weights have {trained}"
            where = "attention" if "attention" in component.parameters["properties"] else None
            loc = (*PLACE, "name") if where is None else (*place, where)
            problems.add(loc, message, given=own, allowed=[trained])
            return


def layouts(catalog: Catalog, model: ComponentReference) -> list[str]:
    """Projections of each layer of a language model: "qkv", "kv", or of a mechanism alone."""
    component = catalog.find("model", model["name"])
    known = component.known(model["params"])
    depth = known["depth"]
    assert isinstance(depth, int)
    found = [str(known[LAYOUT])] * depth
    attention = model["params"].get("attention")
    if isinstance(attention, Mapping):
        facts = catalog.find("attention", attention["name"]).facts or {}
        own = facts.get(LAYOUT) or f"of {attention['name']} {attention['params']}"
        for layer in _chosen(model["params"].get("layers", "all"), depth):
            found[layer] = str(own)
    return found


def _chosen(layers: str | Sequence[int], depth: int) -> Sequence[int]:
    words = {"all": range(depth), "first": range(1), "last": range(depth - 1, depth)}
    if isinstance(layers, str):
        return words.get(layers, range(0))
    return [layer for layer in layers if isinstance(layer, int) and 0 <= layer < depth]
