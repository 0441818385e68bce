"""Published perplexity on WikiText-103, and accuracy on SST-2, SST-5 and IMDB: `language.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay.service.contract.results import Reference
from assay.service.contract.stored_specs import ComponentReference, EvaluationItem, Params
from assay.workers.published.imagenet import PAPER
from assay.workers.published.match import MeasuredRow, stated

__all__ = ["language"]

WIKITEXT_WORDS = 267_736  # With padding; words of the part, with ends of lines
WIKITEXT_PARTS = {217_646: "valid", 245_569: "test"}
# Classes and examples per part.
SENTENCES = {(2, 872): "sst2/dev", (5, 1101): "sst5/dev", (5, 2210): "sst5/test", (2, 25_000): "imdb/test"}
LENGTH = 256
CHANGE = {"name": "fixed_word", "params": {"word": "AAA"}}

# In training only; the length is compared with the evaluation's.
IRRELEVANT = frozenset({"dropout", "attention_dropout", "initialization", "length"})
_STATED = stated("language.json")
MODELS: Mapping[str, tuple[str, dict[str, Any]]] = {
    name: (model["name"], model["params"]) for name, model in _STATED["models"].items()
}
PERPLEXITIES: Mapping[str, Mapping[str, Sequence[float]]] = _STATED["perplexities"]
# Table, model, percent.
ACCURACIES: Mapping[tuple[str, str], tuple[str, str, float]] = {
    (row["part"], row["attention"]): (row["table"], row["model"], row["percent"])
    for row in _STATED["accuracies"]
}


def known_text(name: str, classes: int, count: int) -> str | None:
    """Well-known part, such as "wikitext103/valid" or "sst2/dev", with a text set's counts.

    Of a language: the vocabulary's size, and all words, with ends of lines.
    """
    if name == "wikitext":
        part = WIKITEXT_PARTS.get(count) if classes == WIKITEXT_WORDS else None
        return None if part is None else f"wikitext103/{part}"
    part = SENTENCES.get((classes, count))
    return part if part is not None and part.startswith(name) else None


def language(row: MeasuredRow) -> list[Reference]:
    """Perplexity of language models, and accuracy of classifiers of texts."""
    name, _, part = (row.known_as or "").partition("/")
    if name == "wikitext103":
        return list(_perplexities(row.model, row.evaluation, part))
    return _accuracy(row.model, row.evaluation, f"{name}/{part}")


def _perplexities(model: ComponentReference, evaluation: EvaluationItem, part: str) -> Sequence[Reference]:
    attacked = evaluation["name"] == "word_swap"
    params = evaluation["params"]
    if evaluation["name"] not in ("perplexity", "word_swap") or params["window"] != "sliding":
        return []
    if (params["length"] or model["params"].get("length")) != LENGTH:
        return []
    if attacked and (params["rate"] == 0 or params["words"] != CHANGE):
        return []
    note = f"; {_STATED['attacked_note']}" if attacked else ""
    metrics = ("perplexity", "perplexity_unswapped") if attacked else ("perplexity",)
    return [
        Reference(
            metric=metric,
            value=values[attacked],
            source=f"{PAPER}, table 3, {published}{note}",
            protocol=f"sliding window of {LENGTH} words",
        )
        for published, values in PERPLEXITIES[part].items()
        if _is(model, *MODELS[published])
        for metric in metrics
    ]


def _is(model: ComponentReference, name: str, params: Params) -> bool:
    """Whether a model computes as the published model; absent parameters had its value."""
    given = {key: value for key, value in model["params"].items() if key not in IRRELEVANT}
    return model["name"] == name and given.keys() <= params.keys() and given.items() <= params.items()


def _accuracy(model: ComponentReference, evaluation: EvaluationItem, part: str) -> list[Reference]:
    attention = _attention(model) if model["name"] == "text_classifier" else None
    found = ACCURACIES.get((part, attention)) if attention is not None else None
    if found is None or evaluation["name"] not in ("clean", "top1"):
        return []
    table, published, percent = found
    source = f"{PAPER}, {table}, {published}"
    return [
        Reference(
            metric="top1",
            value=round(percent / 100, 6),
            source=source,
            protocol=_STATED["other_models"][table],
        )
    ]


def _attention(model: ComponentReference) -> str | None:
    backbone = model["params"]["backbone"]
    name, params = backbone["name"], backbone["params"]
    if name in ("symmlm", "symmlm_tiny"):
        return "symmetric"
    if name == "rpc_symmlm":
        same = params["iterations"] == 2 and params["rpc_layers"] in ("all", [*range(params["depth"])])
        return "rpc_symmetric" if same else None
    if name != "lm" or params["layers"] != "all":
        return None
    attention = params["attention"]
    if attention["name"] == "rpc_asymmetric":
        return "rpc_asymmetric" if attention["params"].get("iterations") == 2 else None
    return "softmax" if attention["name"] == "softmax" else None
