"""Match of published numbers to a measured row: same model, data, evaluation and protocol.

Architecture, data with preparation, evaluation with all parameters, and protocol match the publication. The
weights' origin is not compared (the reader wants to see it), and a subset of examples is accepted: the row
states its n.

Published attacks are the released code's: normalised images, no clipping, the final iterate, so they are
references under the protocol `paper` only. Clean accuracy is the same under both. AutoAttack is a worst case
within [0, 1], `pixel`; its numbers do not state their space, and their reference says so.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from assay.service.contract.fractions import fraction_value
from assay.service.contract.results import Reference
from assay.service.contract.stored_specs import ComponentReference, EvaluationItem, ModelReference, Params
from assay.service.contract.weights.pulled import is_pulled
from assay.workers import published
from assay.workers.data.formats.images.imagenet_classes import (
    CROP_FRACTION,
    class_list,
    listed_sets,
    published_of,
)

IMAGENET = "imagenet"
IMAGENET_C = "imagenet_c"  # Freshly corrupted images do not match it
ADE20K = "ade20k"
# sha256 of the challenge's class names, in order, each followed by a line feed.
ADE20K_CLASSES = "50dc0fe99a35f467f7b603c8a3c391ce42dc0224b161d4d37d7f27e1b73dc1be"
ADE20K_VALIDATION = 2000
# In training only, or without effect on the function.
TRAINING_ONLY = frozenset(
    {"dropout", "attention_dropout", "drop_path", "eta", "ksvd_form", "ksvd_reduction", "ksvd_trace"}
)
WITH_PARAMETERS = ("conv2d_attention",)  # With parameters among the published facts
# Without effect on an attack's result.
EXECUTION = frozenset({"backend", "samples_per_pass", "cycle_detection"})
SIZES = {
    ("symvit", "tiny"): {"width": 192, "depth": 12, "heads": 3, "mlp_ratio": 4.0},
    ("asymvit", "tiny"): {"width": 192, "depth": 12, "heads": 3, "mlp_ratio": 4.0},
    ("symvit", "base"): {"width": 768, "depth": 12, "heads": 12, "mlp_ratio": 4.0},
    ("primal_plus_deit", "small"): {"width": 384, "depth": 12, "heads": 6, "mlp_ratio": 4.0},
    ("deit", "tiny"): {"width": 192, "depth": 12, "heads": 3, "mlp_ratio": 4.0},
    ("deit_tiny", "4heads"): {"width": 192, "depth": 12, "heads": 4, "mlp_ratio": 4.0},
    ("deit", "small"): {"width": 384, "depth": 12, "heads": 6, "mlp_ratio": 4.0},
    ("fan_vit", "tiny"): {"width": 192, "depth": 12, "heads": 4, "mlp_ratio": 4.0},
}


def known_as(
    class_names: Sequence[str], examples: int, model_class_names: Sequence[str] | None = None
) -> str | None:
    """Well-known data set with these classes, in this order, and this number of test examples; or None."""
    # The model may have logits for more classes: `model_class_names`.
    if tuple(model_class_names or class_names) == class_list(IMAGENET):
        sets = (name for name in listed_sets() if published_of(name) == examples)
        return next((name for name in sets if tuple(class_names) == class_list(name)), None)
    digest = hashlib.sha256("".join(f"{name}\n" for name in class_names).encode()).hexdigest()
    return ADE20K if (digest, examples) == (ADE20K_CLASSES, ADE20K_VALIDATION) else None


def known_corrupted_as(class_names: Sequence[str], examples: int) -> str | None:
    """ImageNet-C, by the classes of stored corrupted images and their number in a cell; or None."""
    whole = (tuple(class_names), examples) == (class_list(IMAGENET), published_of(IMAGENET))
    return IMAGENET_C if whole else None


class MeasuredRow(NamedTuple):
    """A row of the results, with every default filled in."""

    model: ComponentReference
    data: ComponentReference
    evaluation: EvaluationItem
    protocol: str
    known_as: str | None  # the result of `known_as`, `known_text` or `known_sequences`
    defaults: Params  # of the evaluation, where a publication states none


class Preparation(NamedTuple):
    """Interpolation of validation images, and side of the crop / short side."""

    resize: str
    crop_fraction: float


class Architecture(NamedTuple):
    """Published model: its architecture in the form of `architecture`, and its images."""

    facts: dict[str, Any]
    preparation: Preparation = Preparation("bicubic", 0.875)


class PublishedEvaluation(NamedTuple):
    """Parameters of a published evaluation unlike the defaults, or fixed."""

    name: str
    params: dict[str, Any]
    source: str
    note: str = ""
    protocols: tuple[str, ...] = ("paper",)  # of comparable rows
    protocol: str | None = None  # the publication's, if not the row's
    data: str = IMAGENET  # well-known set
    metrics: tuple[str, ...] = ("top1", "top5")  # of a row


# Name, evaluation, and percent by model, in the order of the evaluation's metrics.
PublishedTable = tuple[str, PublishedEvaluation, dict[str, Sequence[float]]]


def stated(file: str) -> dict[str, Any]:
    """The facts of a JSON file in this folder; {"any": [...]}, a tuple here, allows several values."""
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    facts: dict[str, Any] = json.loads(text, object_hook=lambda x: tuple(x["any"]) if [*x] == ["any"] else x)
    return facts


def references(row: MeasuredRow) -> list[Reference]:
    """Published numbers for a row of the results; mostly none."""
    return [reference for published in publications() for reference in published(row)]


@functools.cache
def publications() -> tuple[Callable[[MeasuredRow], list[Reference]], ...]:
    """The functions in the `__all__` of the modules in this folder."""
    listed = pkgutil.iter_modules(published.__path__, f"{published.__name__}.")
    modules = [importlib.import_module(information.name) for information in listed]
    return tuple(getattr(module, name) for module in modules for name in getattr(module, "__all__", ()))


def image_references(
    tables: Sequence[PublishedTable], models: Mapping[str, Architecture], row: MeasuredRow
) -> list[Reference]:
    """The numbers of tables of image classifiers for a row."""
    facts, prepared, found = architecture(row.model), _preparation(row.data["params"]), []
    for table, attacked, rows in tables:
        if row.known_as != attacked.data or row.protocol not in attacked.protocols:
            continue
        if not _same_evaluation(attacked, row.evaluation, row.defaults):
            continue
        for name, values in rows.items():
            # Prepared before they were published.
            alike = row.known_as == IMAGENET_C or models[name].preparation == prepared
            if same_model(models[name].facts, facts) and alike:
                pairs = zip(attacked.metrics, values, strict=True)
                found += [_reference(name, table, attacked, row.protocol, *pair) for pair in pairs]
    return found


def architecture(model: ComponentReference) -> dict[str, Any]:
    """What a catalog's model computes, in own words; {} without published numbers."""
    name, params = model["name"], {k: v for k, v in model["params"].items() if k not in TRAINING_ONLY}
    family, _, size = name.rpartition("_")
    if own := SIZES.get((family.removeprefix("rpc_"), size)):
        name, params = family, own | params
    if name == "timm":
        return _of_timm(model)
    if name == "symvit":
        return params | {"attention": "symmetric"}
    if name == "rpc_symvit":
        return _layers(params | {"attention": "rpc"}, "rpc_layers")
    if name == "rpc_asymvit":
        form = params.pop("rpc_form")
        return _layers(params | {"attention": form, "others": "softmax"}, "rpc_layers")
    if name in ("vit", "deit", "deit_tiny"):
        return _one_attention(params)
    if name in ("primal_vit", "primal_plus_deit"):
        chosen = params.pop("primal_layers", "last")
        layers = "last" if chosen == [params["depth"] - 1] else chosen
        return params | {"attention": "primal", "layers": layers}
    if name == "fan_vit":
        return _one_attention(params | {"family": "fan"})
    if name == "rpc_fan_vit":
        return _layers(params | {"family": "fan", "attention": "rpc"}, "rpc_layers")
    return {}


def _of_timm(model: ComponentReference) -> dict[str, Any]:
    """timm's own weights: numbers belong to the weights."""
    if not is_pulled(cast(ModelReference, model).get("weights")):
        return {}
    return {key: value for key, value in model["params"].items() if value is not None or key == "tag"}


def _one_attention(params: Params) -> dict[str, Any]:
    attention = params["attention"]
    everywhere = attention["name"] == "softmax" or params.get("layers", "all") == "all"
    own = {k: v for k, v in attention["params"].items() if k not in TRAINING_ONLY}
    if not everywhere or (own and attention["name"] not in WITH_PARAMETERS):
        return {}
    return {k: v for k, v in params.items() if k != "layers"} | own | {"attention": attention["name"]}


def _layers(params: dict[str, Any], key: str) -> dict[str, Any]:
    chosen = params.pop(key, "first")
    return params | {"layers": "first" if chosen == [0] else chosen}


def same_model(published: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Whether these facts are the published model's, which may allow several values."""
    if published.keys() != facts.keys():
        return False
    return all(
        facts[key] in value if isinstance(value, tuple) else facts[key] == value
        for key, value in published.items()
    )


def _preparation(params: Params) -> Preparation:
    fraction = params.get("crop_fraction", 0.0)
    return Preparation(str(params.get("resize")), CROP_FRACTION if fraction is None else float(fraction))


def _same_evaluation(attacked: PublishedEvaluation, evaluation: EvaluationItem, defaults: Params) -> bool:
    params = {key: value for key, value in evaluation["params"].items() if key not in EXECUTION}
    if evaluation["name"] != attacked.name or not attacked.params.keys() <= params.keys():
        return False
    expected = {key: defaults.get(key) for key in params} | attacked.params
    return all(_equal(value, expected[key]) for key, value in params.items())


def _equal(given: Any, expected: Any) -> bool:
    if given == expected:
        return True
    if any(value is None or isinstance(value, bool | list | dict) for value in (given, expected)):
        return False
    try:
        return abs(fraction_value(given) - fraction_value(expected)) <= 1e-12
    except ValueError:
        return False


def _reference(
    model: str, table: str, attacked: PublishedEvaluation, protocol: str, metric: str, percent: float
) -> Reference:
    note = f"; {attacked.note}" if attacked.note else ""
    return Reference(
        metric=metric,
        value=round(percent / 100, 6),
        source=f"{attacked.source}, {table}, {model}{note}",
        protocol=attacked.protocol or protocol,
    )
