"""Published robustness of classifiers of ImageNet-1K, and of Segmenter on ADE20K: `imagenet.json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.service.contract.results import Reference
from assay.service.contract.stored_specs import Params
from assay.workers.published.match import (
    ADE20K,
    Architecture,
    MeasuredRow,
    Preparation,
    PublishedEvaluation,
    PublishedTable,
    architecture,
    image_references,
    same_model,
    stated,
)
from assay.workers.published.sequences import DUAL, PRIMAL

__all__ = ["ade20k", "imagenet"]

_STATED = stated("imagenet.json")
_SEGMENTER = _STATED["segmenter"]
SOURCES: dict[str, str] = _STATED["sources"] | {"primal": PRIMAL, "dual": DUAL}
PAPER = SOURCES["rpc"]
# The second also evaluates them clean.
WHOLE_IMAGES = ("sliding_window", "sliding_window_corruptions")
# Segmenter's released inference.
WINDOWS: Params = _SEGMENTER["windows"]
# Mean accuracy and intersection over union, by backbone; then under the fifteen corruptions.
SEGMENTED: dict[str, Sequence[float]] = _SEGMENTER["clean"]
SEGMENTED_CORRUPTED: dict[str, Sequence[float]] = _SEGMENTER["corrupted"]


def _model(of: Sequence[str], preparation: Sequence[Any] = ("bicubic", 0.875), **own: Any) -> Architecture:
    parts = [*(_STATED["parts"][part] for part in of), own]
    return Architecture({k: v for part in parts for k, v in part.items()}, Preparation(*preparation))


def evaluations(entries: dict[str, Params]) -> dict[str, PublishedEvaluation]:
    """Published evaluations of a file of facts."""
    return {name: _evaluation(**facts) for name, facts in entries.items()}


def _evaluation(source: str, **own: Any) -> PublishedEvaluation:
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in own.items()}
    return PublishedEvaluation(source=SOURCES[source], **fields)


MODELS = {name: _model(**facts) for name, facts in _STATED["models"].items()}
_EVALUATIONS = evaluations(_STATED["evaluations"])
TABLES: list[PublishedTable] = [
    (entry["table"], _EVALUATIONS[entry["evaluation"]], entry["rows"]) for entry in _STATED["tables"]
]
# Alias of the same accuracy.
TABLES += [
    (table, attacked._replace(name="top1"), rows)
    for table, attacked, rows in TABLES
    if attacked.name == "clean"
]


def imagenet(row: MeasuredRow) -> list[Reference]:
    """Accuracy of classifiers of ImageNet and its natural shifts."""
    return image_references(TABLES, MODELS, row)


def ade20k(row: MeasuredRow) -> list[Reference]:
    """Mean accuracy and intersection over union of Segmenter."""
    model, evaluation, params = row.model, row.evaluation["name"], row.evaluation["params"]
    if row.known_as != ADE20K or model["name"] != "segmenter" or evaluation not in WHOLE_IMAGES:
        return []
    if any(params.get(name) != value for name, value in WINDOWS.items()):
        return []
    note = _SEGMENTER["note"]
    tables = [("", SEGMENTED, note)]
    if evaluation != "sliding_window" and _same_cells(params, row.defaults):
        tables.append(("corrupted_", SEGMENTED_CORRUPTED, f"{note}; {_SEGMENTER['corrupted_note']}"))
    facts, found = architecture(model["params"]["backbone"]), []
    for prefix, table, note in tables:
        for name, values in table.items():
            size = {"image_size": MODELS[name].facts["image_size"]}
            if facts and same_model(MODELS[name].facts, facts | size):
                source = f"{PAPER}, table 6, {name}; {note}"
                found += [
                    Reference(
                        metric=metric, value=round(percent / 100, 6), source=source, protocol=row.protocol
                    )
                    for metric, percent in zip(
                        (f"{prefix}mean_accuracy", f"{prefix}miou"), values, strict=True
                    )
                ]
    return found


def _same_cells(params: Params, defaults: Params) -> bool:
    same = all(set(params[name]) == set(defaults[name]) for name in ("corruptions", "severities"))
    return same and params.get("constants") == defaults.get("constants")
