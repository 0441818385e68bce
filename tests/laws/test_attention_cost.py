"""What mechanisms state about their cost holds: only the quadratic ones hold a matrix of all pairs of tokens.

New files in `models/attention` are covered automatically; each states `"cost"` among its `FACTS`.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from assay.models.layers.attention.lookup import attentions
from assay.models.layers.heads import has_causal_form, make_attention
from assay.service.catalog.catalog import load
from tests.models.attention.test_memory import LargestTensor

COSTS = ("linear", "n log n", "n sqrt n", "quadratic")
WIDTH, HEADS, TOKENS = 16, 2, 1024
GRID = (31, 33)  # of TOKENS less the class token
NAMES = sorted(attentions())


def cost_of(name: str) -> Any:
    return (load().find("attention", name).facts or {}).get("cost")


SUBQUADRATIC = [name for name in NAMES if cost_of(name) in COSTS[:-1]]
FORMS = [
    (name, causal)
    for name in SUBQUADRATIC
    for causal in (False, True)
    if not causal or has_causal_form(attentions()[name])
]


def largest_made(name: str, causal: bool, *, masked: bool) -> int:
    """Elements of the largest tensor in one inference of one example."""
    torch.manual_seed(0)
    form = causal if "causal" in inspect.signature(attentions()[name]).parameters else None
    attention = make_attention(
        attentions()[name], WIDTH, HEADS, prefix_tokens=1, tokens=TOKENS, causal=form
    ).eval()
    mask = torch.arange(TOKENS)[None] < TOKENS - 100 if masked else None
    x = torch.randn(1, TOKENS, WIDTH)
    with torch.no_grad(), LargestTensor() as seen:
        attention(x, grid=GRID, mask=mask)
    return seen.elements


@pytest.mark.sampled
@pytest.mark.parametrize("name", NAMES)
def test_states_how_its_cost_grows_with_the_tokens(name: str) -> None:
    assert cost_of(name) in COSTS, (
        f'the module of {name} in models/attention must state FACTS = {{"cost": ...}}, how its time grows '
        f"with the number of tokens: one of {', '.join(COSTS)} (docs/baselines.md); then `make catalog`"
    )


@pytest.mark.sampled
@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize(("name", "causal"), FORMS)
def test_what_is_not_quadratic_holds_no_matrix_of_tokens(name: str, causal: bool, masked: bool) -> None:
    elements = largest_made(name, causal, masked=masked)
    assert elements < TOKENS**2, (
        f"{name} states the cost {cost_of(name)!r}, but makes a tensor of {elements} elements with one "
        f"example of {TOKENS} tokens and {HEADS} heads: as many as a matrix of all pairs of tokens"
    )


def test_a_matrix_of_tokens_would_be_noticed() -> None:
    assert largest_made("scaled_exact", False, masked=False) >= TOKENS**2
    assert set(SUBQUADRATIC) >= {"performer", "reformer", "bigbird", "informer"}
