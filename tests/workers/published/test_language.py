"""Published numbers on text stand next to rows of the same thing; classifiers are told to be other models."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.problems import Problems
from assay.workers.published.language import ACCURACIES, MODELS, PERPLEXITIES, known_text, language
from assay.workers.published.match import MeasuredRow

SLIDING = {"window": "sliding", "length": None, "stride": 128}
SWAPPED = SLIDING | {"rate": 0.05, "words": {"name": "fixed_word", "params": {"word": "AAA"}}}
RPC = "RPC-Symmlm (4iter/layer1-4)"


def filled(name: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    problems = Problems()
    checked = load().check_reference(("model",), {"name": name, "params": params or {}}, problems, ())
    problems.raise_if_any()
    assert checked is not None
    return {"name": name, "params": dict(checked.params)}


def numbers(
    model: dict[str, Any], evaluation: tuple[str, dict[str, Any]], known: str
) -> list[tuple[str, float]]:
    item: Any = {"name": evaluation[0], "params": evaluation[1]}
    return [(row.metric, row.value) for row in language(MeasuredRow(model, item, item, "pixel", known, {}))]


def test_the_defaults_of_the_catalog_are_the_published_models() -> None:
    for published, (name, _) in MODELS.items():
        for part, table in PERPLEXITIES.items():
            known = f"wikitext103/{part}"
            clean, attacked = table[published]
            assert numbers(filled(name), ("perplexity", SLIDING), known) == [("perplexity", clean)]
            assert numbers(filled(name), ("word_swap", SWAPPED), known) == [
                ("perplexity", attacked),
                ("perplexity_unswapped", attacked),
            ]


@pytest.mark.parametrize(
    ("model", "evaluation"),
    [
        (("symmlm", {"width": 64}), ("perplexity", SLIDING)),
        (("symmlm", {"length": 128}), ("perplexity", SLIDING)),
        (("rpc_symmlm", {"iterations": 2}), ("perplexity", SLIDING)),
        (("rpc_symmlm", {"mu_tokens": "sequence"}), ("perplexity", SLIDING)),
        (("lm", {}), ("perplexity", SLIDING)),
        (("symmlm", {}), ("perplexity", SLIDING | {"window": "strided"})),
        (("symmlm", {}), ("perplexity", SLIDING | {"length": 128})),
        (("symmlm", {}), ("word_swap", SWAPPED | {"rate": 0.0})),
        (("symmlm", {}), ("word_swap", SWAPPED | {"words": {"name": "homoglyphs", "params": {}}})),
    ],
)
def test_another_thing_has_no_published_number(
    model: tuple[str, dict[str, Any]], evaluation: tuple[str, dict[str, Any]]
) -> None:
    assert numbers(filled(*model), evaluation, "wikitext103/test") == []


def test_parameters_of_training_and_those_that_a_job_lacks_do_not_matter() -> None:
    model = filled("rpc_symmlm", {"dropout": 0.3, "attention_dropout": 0.1, "initialization": "scaled"})
    assert len(numbers(model, ("perplexity", SLIDING), "wikitext103/test")) == 1
    del model["params"]["mu_tokens"]  # as in a job of an earlier version
    assert len(numbers(model, ("perplexity", SLIDING), "wikitext103/test")) == 1
    model["params"]["a_parameter_to_come"] = 1
    assert numbers(model, ("perplexity", SLIDING), "wikitext103/test") == []


def test_classifiers_are_told_to_be_other_models() -> None:
    backbones = {
        "symmetric": filled("symmlm_tiny"),
        "rpc_symmetric": filled("rpc_symmlm", {"rpc_layers": "all", "iterations": 2}),
        "softmax": filled("lm"),
        "rpc_asymmetric": filled(
            "lm", {"attention": {"name": "rpc_asymmetric", "params": {"iterations": 2}}}
        ),
    }
    for (part, attention), (table, _, percent) in ACCURACIES.items():
        model = filled("text_classifier", {"backbone": backbones[attention]})
        item: Any = {"name": "top1", "params": {}}
        (row,) = language(MeasuredRow(model, item, item, "pixel", part, {}))
        assert row.value == pytest.approx(percent / 100)
        assert table in row.source
        assert row.protocol.startswith("another model")
        assert numbers(model, ("deepwordbug", {}), part) == []
    once = filled("text_classifier", {"backbone": filled("rpc_symmlm", {"rpc_layers": "first"})})
    assert numbers(once, ("top1", {}), "sst2/dev") == []


def test_parts_are_known_by_their_counts() -> None:
    assert known_text("wikitext", 267_736, 245_569) == "wikitext103/test"
    assert known_text("wikitext", 267_736, 245_568) is None
    assert known_text("wikitext", 33_279, 245_569) is None
    assert known_text("sst", 5, 2210) == "sst5/test"
    assert known_text("imdb", 2, 872) is None
