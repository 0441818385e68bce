"""Published accuracies of classifiers of sequences: the Long Range Arena and the UEA archive.

Sources, all in percent: Chen et al. 2021 (Skyformer, NeurIPS), table 1, the mean of three runs. Chen et al.
2023 (Primal-Attention, NeurIPS), tables 1, 3 and 8, and table 4 of the supplement, with columns
mislabelled: its row of Primal.+ has the numbers of table 3 as ListOps, Image, Pathfinder, Retrieval, Text.
Nguyen et al. 2023 (Primal-dual framework, ICLR), tables 1, 2, 7 and 11, the mean of five runs; from table 1
only the three sets that were trained in Flowformer's framework, with the sizes of Primal-Attention's
transformer.

A row stands beside a measured row where data and their size, the transformer's sizes, its attention with the
stated parameters, and its layers are the published ones. Dropout and the weights of auxiliary losses are not
compared, nor are the safe variants of a mechanism told from the released variants (draws of landmarks,
normalisers, padding, the scaling of Performer). Ranks that Primal-Attention chose by task are in the text's
grid (in the scripts' for UEA).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from assay.service.contract.results import Reference
from assay.service.contract.stored_specs import ComponentReference
from assay.workers.published.attention_bn import BETAS_BN, BETAS_BN_SH
from assay.workers.published.attention_bn import LRA as LRA_TASKS
from assay.workers.published.match import MeasuredRow

__all__ = ["sequences"]

SKYFORMER = "Chen et al. 2021 (Skyformer, NeurIPS)"
PRIMAL = "Chen et al. 2023 (Primal-Attention, NeurIPS)"
DUAL = "Nguyen et al. 2023 (Primal-dual framework, ICLR)"

# Part of the benchmark, classes and test examples.
TASKS = {
    "lra_listops": ("listops", 10, 2000),
    "lra_text": ("text", 2, 25_000),
    "lra_retrieval": ("retrieval", 2, 17_437),
    "lra_image": ("image", 10, 10_000),
    "pathfinder": ("pathfinder", 2, 20_000),
}
# Classes and test examples.
ARCHIVE = {
    (4, 263): "EthanolConcentration",
    (2, 3524): "FaceDetection",
    (26, 850): "Handwriting",
    (2, 205): "Heartbeat",
    (9, 370): "JapaneseVowels",
    (7, 173): "PEMS-SF",
    (2, 293): "SelfRegulationSCP1",
    (2, 180): "SelfRegulationSCP2",
    (10, 2199): "SpokenArabicDigits",
    (8, 320): "UWaveGestureLibrary",
}
# That a model must read.
LENGTHS = {"listops": 2000, "text": 4000, "retrieval": 4000, "image": 1024, "pathfinder": 1024}
LRA_SIZES = {"width": 64, "depth": 2, "heads": 2, "hidden": 128, "embedding": None}
MODELS = {"lra": ("lra_transformer", "sequence_transformer", LRA_SIZES), "uea": ("uea_transformer", "", {})}
SELECTED = {
    SKYFORMER: "mean of three runs, the best weights on the development set (for Text, the test set)",
    PRIMAL: "runs not stated; the best weights on the development set (for Text and UEA, the test set)",
    DUAL: "mean of five runs; no code was released",
}


class PublishedRow(NamedTuple):
    """A model's attention, and its accuracies by task."""

    source: str
    table: str
    model: str
    attention: str
    layers: str
    params: Mapping[str, Any]  # a tuple allows several values, a mapping has one for each task
    accuracies: Mapping[str, float]


def _lra(
    source: str, table: str, model: str, attention: str, *values: float, layers: str = "all", **params: Any
) -> PublishedRow:
    return PublishedRow(
        source, table, model, attention, layers, params, dict(zip(LRA_TASKS, values, strict=True))
    )


def _uea(
    table: str, model: str, attention: str, *values: float, layers: str = "all", **params: Any
) -> PublishedRow:
    accuracies = dict(zip(ARCHIVE.values(), values, strict=True))
    return PublishedRow(PRIMAL, table, model, attention, layers, params, accuracies)


def _dual(model: str, attention: str, *values: float, **params: Any) -> PublishedRow:
    names = ("PEMS-SF", "SelfRegulationSCP2", "UWaveGestureLibrary")
    return PublishedRow(
        DUAL, "table 1", model, attention, "all", params, dict(zip(names, values, strict=True))
    )


_SAMPLED: dict[str, Any] = {"rank": (20, 30), "projection": (None, "data_dependent"), "r_scores": True}
_UEA: dict[str, Any] = {"rank": (20, 30, 40), "projection": (None, "data_dependent"), "r_scores": True}
_WITHOUT_R = _SAMPLED | {"r_scores": False}
_BETA: dict[str, Any] = {"form": "beta", "learn_beta": False}
_BN, _BN_SH = BETAS_BN["attention"], BETAS_BN_SH["attention"]
# Also the default, for both numbers of heads.
_HEADS: dict[str, Any] = {"factors": (None, [1, 1, 2, 2, 4, 4, 8, 8])}
_TWO = (None, [1, 2])

_SKY, _FIRST = (SKYFORMER, "table 1"), (PRIMAL, "table 3")
_NYSTROM: dict[str, Any] = {"landmarks": (32, 64, 128, 256), "kernel": 35}
LRA: tuple[PublishedRow, ...] = (
    _lra(*_SKY, "Self-Attention", "softmax", 38.37, 61.95, 80.69, 40.57, 65.26),
    _lra(*_SKY, "Kernelized Attention", "kernelized", 38.78, 60.22, 81.77, 41.29, 70.73),
    _lra(
        *_SKY, "Nystromformer", "nystromformer", 38.51, 64.83, 80.52, 41.30, 69.48, landmarks=128, kernel=0
    ),
    _lra(*_SKY, "Linformer", "linformer", 37.45, 58.93, 78.19, 37.96, 60.93, features=128),
    _lra(*_SKY, "Informer", "informer", 32.53, 62.64, 77.57, 38.10, 57.83, factor=None),
    _lra(*_SKY, "Performer", "performer", 38.02, 64.19, 80.04, 41.43, 66.30, features=128),
    _lra(*_SKY, "Reformer", "reformer", 37.68, 62.93, 78.99, 48.87, 66.49, hashes=2),
    _lra(
        *_SKY, "BigBird", "bigbird", 39.25, 63.86, 80.28, 43.16, 68.72, block_size=64, random_blocks=3
    ),
    _lra(*_SKY, "Skyformer", "skyformer", 38.69, 64.70, 82.06, 40.77, 70.73, landmarks=128, gamma=0.1),
    _lra(*_FIRST, "Trans.", "softmax", 37.1, 65.0, 79.4, 38.2, 74.2),
    _lra(*_FIRST, "Re.", "reformer", 19.1, 64.9, 78.6, 43.3, 69.4, hashes=2),
    _lra(*_FIRST, "Per.", "performer", 18.8, 63.8, 78.6, 37.1, 69.9, features=256),
    _lra(*_FIRST, "Lin.", "linformer", 37.3, 55.9, 79.4, 37.8, 67.6, features=256),
    _lra(*_FIRST, "Nyström.", "nystromformer", 37.2, 65.5, 79.6, 41.6, 70.9, **_NYSTROM),
    _lra(*_FIRST, "Primal.", "primal", 37.3, 61.2, 77.8, 43.0, 68.3, **_SAMPLED),
    _lra(*_FIRST, "Primal.+Trans.", "primal", 37.3, 65.4, 81.0, 43.9, 74.3, layers="last", **_SAMPLED),
    _lra(PRIMAL, "table 8", "Primal. w/o", "primal", 36.8, 52.4, 58.2, 30.5, 50.2, **_WITHOUT_R),
    _lra(
        PRIMAL, "table 8", "Primal.+Trans. w/o", "primal", 37.1, 65.1, 79.2, 42.8, 72.8,
        layers="last", **_WITHOUT_R,
    ),
    _lra(
        PRIMAL, "supplement, table 4", "Primal.+Trans. data-independent", "primal",
        37.0, 65.6, 80.8, 40.2, 74.3, layers="last", **(_SAMPLED | {"projection": "data_independent"}),
    ),
    _lra(DUAL, "table 2", "Baseline Softmax", "softmax", 36.76, 64.90, 79.68, 39.23, 72.72),
    _lra(
        DUAL, "table 2", "Attention-BN", "attention_bn", 37.32, 65.07, 81.05, 39.75, 73.24,
        beta=_BN, **_BETA,
    ),
    _lra(DUAL, "table 2", "Attention-SH", "attention_sh", 37.08, 65.19, 80.74, 38.87, 74.00, factors=_TWO),
    _lra(
        DUAL, "table 2", "Attention-BN+SH", "attention_bn_sh", 37.33, 65.03, 81.20, 39.18, 73.98,
        beta=_BN_SH, factors=_TWO, **_BETA,
    ),
    _lra(DUAL, "table 7", "Attention-Conv1D", "conv1d_attention", 37.20, 64.92, 80.75, 39.18, 73.01, size=5),
    PublishedRow(
        DUAL, "table 11", "Attention-BN (learn beta)", "attention_bn", "all",
        {"form": "beta", "learn_beta": True}, {"retrieval": 80.77},
    ),
    PublishedRow(
        DUAL, "table 11", "Attention-BN+SH (learn beta)", "attention_bn_sh", "all",
        {"form": "beta", "learn_beta": True, "factors": _TWO}, {"retrieval": 81.31},
    ),
)  # fmt: skip
UEA: tuple[PublishedRow, ...] = (
    _uea("table 1", "Trans.", "softmax", 32.7, 67.3, 32.0, 76.1, 98.7, 82.1, 92.2, 53.9, 98.4, 85.6),
    _uea("table 1", "Primal.", "primal", 33.1, 67.1, 29.6, 76.1, 98.4, 89.6, 92.5, 57.2, 100, 86.3, **_UEA),
    _uea(
        "table 1", "Primal.+Trans.", "primal", 35.4, 63.8, 28.7, 77.1, 98.9, 90.2, 92.5, 56.1, 100, 88.4,
        layers="last", **_UEA,
    ),
    _dual("Baseline Softmax", "softmax", 82.66, 54.72, 84.45),
    _dual("Attention-BN", "attention_bn", 84.77, 56.11, 86.46, beta=_BN, **_BETA),
    _dual("Attention-SH", "attention_sh", 83.04, 55.93, 86.77, **_HEADS),
    _dual("Attention-BN+SH", "attention_bn_sh", 83.81, 57.04, 87.60, beta=_BN_SH, **_BETA, **_HEADS),
)  # fmt: skip
ROWS: Mapping[str, Sequence[PublishedRow]] = {"lra": LRA, "uea": UEA}


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
