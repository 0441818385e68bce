"""Sizes of the Decision Transformer, and where its attention is."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import pytest
import torch

from assay.models.attention.primal import PrimalAttention
from assay.models.attention.rpc_causal import CausalRPCAttention
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.decision_transformer import PRESETS, decision_transformer
from assay.models.layers.attention.lookup import attentions
from assay.models.layers.heads import has_causal_form
from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.submission.validate import validate


def parameters(width: int, actions: int, observations: int, timesteps: int) -> int:
    layer = 4 * width**2 + 4 * width + 8 * width**2 + 5 * width + 4 * width
    embedded = 2 * width + (observations + 1) * width + (actions + 1) * width + timesteps * width
    return 3 * layer + embedded + 4 * width + (width + 1) * actions


def test_the_published_size_has_the_parameters_of_its_layers() -> None:
    with torch.device("meta"):
        model = decision_transformer(3, 11, discrete=False)
    found = sum(parameter.numel() for parameter in model.parameters())
    assert found == parameters(256, 3, 11, 1000) == 2_631_683
    assert len(model.blocks) == 3
    assert model.context_length == 20
    assert {block.attn.heads for block in model.blocks} == {4}
    assert {block.attn.dropout for block in model.blocks} == {0.1}


@pytest.mark.parametrize(
    ("name", "rank", "count"),
    [
        ("d4rl_transformer", None, 2_631_683),
        ("primal_plus_d4rl", 32, 2_586_563),
        ("primal_plus_d4rl", 96, 2_586_563 + 64 * 644),
    ],
)
def test_the_published_configurations_have_names(name: str, rank: int | None, count: int) -> None:
    preset = PRESETS[name]
    given = {} if rank is None else {"attention": functools.partial(PrimalAttention, rank=rank)}
    with torch.device("meta"):
        model = preset.build(3, 11, discrete=False, **given)
        default = preset.build(3, 11, discrete=False)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert f"{sum(parameter.numel() for parameter in default.parameters()):,}" in preset.summary
    last = SoftmaxAttention if rank is None else PrimalAttention
    for made in (model, default):
        assert [type(block.attn) for block in made.blocks] == [SoftmaxAttention, SoftmaxAttention, last]
        assert all(block.attn.causal for block in made.blocks)


@pytest.mark.parametrize(
    "params", [{}, {"attention": {"name": "primal", "params": {"rank": 96, "eta": 0.05}}}]
)
def test_a_job_of_the_published_configuration_is_valid(params: dict[str, Any]) -> None:
    body = {
        "kind": "train",
        "model": {"name": "primal_plus_d4rl", "params": params},
        "data": {"name": "d4rl", "params": {"environment": "hopper", "quality": "medium-replay"}},
        "recipe": {"name": "decision_transformer"},
    }
    spec = validate(load(), body).spec
    assert spec["model"]["params"]["attention"]["params"]["rank"] == (96 if params else 32)
    dependent = {"name": "primal", "params": {"projection": "data_dependent"}}
    with pytest.raises(InvalidSpec, match="data_independent"):
        validate(load(), {**body, "model": {"name": "primal_plus_d4rl", "params": {"attention": dependent}}})


def test_attention_in_chosen_layers() -> None:
    made = functools.partial(CausalRPCAttention, iterations=2)
    model = decision_transformer(2, 4, width=8, heads=2, attention=made, layers="last")
    kinds = [type(block.attn) for block in model.blocks]
    assert kinds == [SoftmaxAttention, SoftmaxAttention, CausalRPCAttention]
    assert all(block.attn.causal for block in model.blocks)


def test_an_attention_without_a_causal_form_is_refused() -> None:
    def plain(dim: int, heads: int, *, prefix_tokens: int = 1) -> SoftmaxAttention:
        return SoftmaxAttention(dim, heads, prefix_tokens=prefix_tokens)

    with pytest.raises(ValueError, match="must have a causal form"):
        decision_transformer(2, 4, attention=plain)
    with pytest.raises(ValueError, match="did you mean 'softmax'"):
        decision_transformer(2, 4, attention="softmx")


@pytest.mark.parametrize("name", [name for name, made in attentions().items() if has_causal_form(made)])
def test_every_causal_attention_makes_a_policy_that_does_not_look_ahead(name: str) -> None:
    factory = attentions()[name]
    sized = {"patches": 15} if "patches" in inspect.signature(factory).parameters else {}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = decision_transformer(
            2, 4, width=24, heads=2, depth=2, context=5, attention=functools.partial(factory, **sized)
        )
        packed = torch.randn(2, 5, 9)
    model, packed = model.double().eval(), packed.double()
    packed[..., -2] = torch.arange(5.0)
    packed[..., -1] = 1.0
    before = model(packed.requires_grad_())
    (gradient,) = torch.autograd.grad(before[:, 2].sum(), packed)
    assert before.shape == (2, 5, 2)
    assert torch.isfinite(before).all()
    assert gradient[:, 2, :4].abs().sum() > 0  # an attack on the newest observation has a direction
    assert (gradient[:, 3:, :7] == 0).all()
    assert (gradient[:, 2, 4:6] == 0).all()  # nor at its own action
