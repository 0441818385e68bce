"""Published accuracies of classifiers of sequences (Long Range Arena, UEA archive): `sequences.json`.

A row stands beside a measured row where data and their size, the transformer's sizes, its attention with the
stated parameters, and its layers are the published ones. Dropout and the weights of auxiliary losses are not
compared, nor are the safe variants of a mechanism told from the released variants (draws of landmarks,
normalisers, padding, the scaling of Performer).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from assay.service.contract.results import Reference
from assay.service.contract.stored_specs import ComponentReference
from assay.workers.published.attention_bn import BETAS
from assay.workers.published.match import MeasuredRow, stated

__all__ = ["sequences"]

_STATED = stated("sequences.json")
_NAMES: dict[str, str] = {key: source["name"] for key, source in _STATED["sources"].items()}
SKYFORMER, PRIMAL, DUAL = (_NAMES[key] for key in ("skyformer", "primal", "dual"))
SELECTED: dict[str, str] = {source["name"]: source["protocol"] for source in _STATED["sources"].values()}
TASKS: dict[str, Sequence[Any]] = _STATED["tasks"]
ARCHIVE: dict[Any, str] = {tuple(counts): name for name, counts in _STATED["archive"].items()}
LENGTHS: dict[str, int] = _STATED["lengths"]
LRA_SIZES = {"width": 64, "depth": 2, "heads": 2, "hidden": 128, "embedding": None}
MODELS = {"lra": ("lra_transformer", "sequence_transformer", LRA_SIZES), "uea": ("uea_transformer", "", {})}


class PublishedRow(NamedTuple):
    """A model's attention, and its accuracies by task."""

    source: str
    table: str
    model: str
    attention: str
    layers: str
    params: Mapping[str, Any]  # a tuple allows several values, a mapping has one for each task
    accuracies: Mapping[str, float]


def _row(source: str, params: Mapping[str, Any], **facts: Any) -> PublishedRow:
    own = {k: BETAS[v["betas"]]["attention"] if isinstance(v, dict) else v for k, v in params.items()}
    return PublishedRow(source=_NAMES[source], params=own, **facts)


ROWS = {
    benchmark: tuple(_row(**entry) for entry in entries) for benchmark, entries in _STATED["rows"].items()
}


def known_sequences(name: str, classes: int, count: int) -> str | None:
    """Well-known test part, such as "lra/listops", with these counts; or None."""
    if name == "uea":
        found = ARCHIVE.get((classes, count))
        return None if found is None else f"uea/{found}"
    task, wanted, examples = TASKS.get(name, ("", 0, 0))
    return f"lra/{task}" if task and (classes, count) == (wanted, examples) else None


def sequences(row: MeasuredRow) -> list[Reference]:
    """Accuracy of classifiers of sequences."""
    benchmark, _, task = (row.known_as or "").partition("/")
    if benchmark not in ROWS or row.evaluation["name"] not in ("clean", "top1"):
        return []
    if not _same_sizes(row.model, benchmark, task):
        return []
    return [
        Reference(
            metric="top1",
            value=round(published.accuracies[task] / 100, 6),
            source=f"{published.source}, {published.table}, {published.model}",
            protocol=SELECTED[published.source],
        )
        for published in ROWS[benchmark]
        if task in published.accuracies and _same_attention(published, row.model, task)
    ]


def _same_sizes(model: ComponentReference, benchmark: str, task: str) -> bool:
    preset, general, sizes = MODELS[benchmark]
    params = model["params"]
    if model["name"] != preset and model["name"] != general:
        return False
    if model["name"] == general and any(params.get(key) != value for key, value in sizes.items()):
        return False
    return benchmark == "uea" or params.get("length", 0) >= LENGTHS[task]


def _same_attention(row: PublishedRow, model: ComponentReference, task: str) -> bool:
    attention, depth = model["params"]["attention"], 2
    name, params = (attention, {}) if isinstance(attention, str) else (attention["name"], attention["params"])
    layers = model["params"].get("layers", "all")
    chosen = {"all": [*range(depth)], "first": [0], "last": [depth - 1]}
    same = chosen.get(layers, layers) if isinstance(layers, str) else sorted(layers)
    if name != row.attention or (name != "softmax" and same != chosen[row.layers]):
        return False
    return all(_allowed(params.get(key), value, task) for key, value in row.params.items())


def _allowed(given: Any, published: Any, task: str) -> bool:
    if isinstance(published, Mapping):
        published = published[task]
    return given in published if isinstance(published, tuple) else bool(given == published)
