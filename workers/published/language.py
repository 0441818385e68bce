"""Published numbers of RPC-Attention on text: perplexity on WikiText-103, accuracy on SST-2, SST-5 and IMDB.

Source: Teo and Nguyen 2024, "Unveiling the Hidden Structure of Self-Attention via Kernel Principal Component
Analysis" (NeurIPS), tables 3, 11 and 12. Table 3 states neither the rate of swapped words nor whether these
are scored; its attacked numbers are shown for both, with a note. The classifiers of tables 11 and 12 are
mixtures of experts and a tutorial's language model, without a published configuration: no model here matches
them, and their numbers have a protocol that says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay.service.contract.results import Reference
from assay.service.contract.stored_specs import ComponentReference, EvaluationItem, Params
from assay.workers.published.imagenet import PAPER
from assay.workers.published.match import MeasuredRow

__all__ = ["language"]

WIKITEXT_WORDS = 267_736  # With padding; words of the part, with ends of lines
WIKITEXT_PARTS = {217_646: "valid", 245_569: "test"}
# Classes and examples per part.
SENTENCES = {(2, 872): "sst2/dev", (5, 1101): "sst5/dev", (5, 2210): "sst5/test", (2, 25_000): "imdb/test"}
LENGTH = 256
CHANGE = {"name": "fixed_word", "params": {"word": "AAA"}}

_SYMMLM = {"width": 128, "depth": 16, "heads": 8, "hidden": 2048, "cutoffs": [20_000, 40_000, 200_000]}
_RPC = {
    "rpc_layers": [0, 1, 2, 3],
    "iterations": 4,
    "regularization": 4.0,
    "threshold": "code",
    "mu_width": "full",
    "mu_tokens": "prefix",
    "dual_sign": -1,
}
# In training only; the length is compared with the evaluation's.
IRRELEVANT = frozenset({"dropout", "attention_dropout", "initialization", "length"})
MODELS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "Symmlm": ("symmlm", _SYMMLM),
    "RPC-Symmlm (4iter/layer1-4)": ("rpc_symmlm", _SYMMLM | _RPC),
}
# Clean and attacked.
PERPLEXITIES: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "valid": {"Symmlm": (38.37, 42.90), "RPC-Symmlm (4iter/layer1-4)": (37.38, 41.83)},
    "test": {"Symmlm": (36.36, 44.32), "RPC-Symmlm (4iter/layer1-4)": (35.26, 43.16)},
}
ATTACKED_NOTE = "neither the rate of swapped words nor whether they are predicted is stated"
# Per part and attention: table, model, percent.
ACCURACIES: Mapping[tuple[str, str], tuple[str, str, float]] = {
    ("sst2/dev", "symmetric"): ("table 11", "SymSMoE", 69.20),
    ("sst2/dev", "rpc_symmetric"): ("table 11", "RPC-SymSMoE", 76.27),
    ("sst2/dev", "softmax"): ("table 11", "SMoE", 69.38),
    ("sst2/dev", "rpc_asymmetric"): ("table 11", "RPC-SMoE", 70.63),
    ("imdb/test", "softmax"): ("table 11", "SMoE", 65.74),
    ("imdb/test", "rpc_asymmetric"): ("table 11", "RPC-SMoE", 73.96),
    ("sst5/dev", "softmax"): ("table 12", "Baseline-LM", 46.51),
    ("sst5/test", "softmax"): ("table 12", "Baseline-LM", 49.23),
    ("sst5/dev", "rpc_asymmetric"): ("table 12", "RPC-LM", 48.68),
    ("sst5/test", "rpc_asymmetric"): ("table 12", "RPC-LM", 50.36),
}
OTHER_MODELS = {
    "table 11": "another model: a sparse mixture of experts without a published configuration",
    "table 12": "another model: the language model of the NAACL 2019 tutorial on transfer learning",
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
    note = f"; {ATTACKED_NOTE}" if attacked else ""
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
        Reference(metric="top1", value=round(percent / 100, 6), source=source, protocol=OTHER_MODELS[table])
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
