"""Probed q, k and v reproduce the output, for every mechanism and model that offers them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from assay.models.fan_vit import fan_vit
from assay.models.layers.attention.lookup import attentions
from assay.models.layers.attention.probe import (
    KernelLayer,
    MatrixLayer,
    PursuitLayer,
    QueriesKeysValues,
    SoftmaxLayer,
    matrix_layers,
    observed,
    pursuit_layers,
    queries_keys_values,
    softmax_layers,
)
from assay.models.layers.heads import attend, merge_heads
from assay.models.layers.layers import Classifier
from assay.models.segmenter import segmenter
from assay.models.vit import vit
from assay.service.catalog.catalog import load
from assay.workers.catalog import build

WIDTH, HEADS, TOKENS = 12, 3, 7
OFFERED = sorted(c.name for c in load().list("attention") if "softmax" in c.offers)
MODELS = sorted(c.name for c in load().list("model") if "softmax" in c.offers)
SMALL = {"image_size": 32, "patch_size": 8, "width": 12, "heads": 3, "depth": 2}


def mechanism(name: str) -> nn.Module:
    torch.manual_seed(3)
    layer = attentions()[name](WIDTH, HEADS, **({"patches": TOKENS - 1} if name == "scaled_learned" else {}))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.5)
    return layer.double().eval()


def test_those_that_can_be_looked_at_say_so() -> None:
    able = [
        name
        for name, mechanism in attentions().items()
        if isinstance(mechanism, SoftmaxLayer) and not getattr(mechanism, "causal", False)
    ]
    assert sorted(able) == OFFERED
    assert {"rpc", "softmax", "symmetric"} <= set(OFFERED)


@pytest.mark.parametrize(
    ("capability", "protocol"), [("attention_matrix", MatrixLayer), ("kernel_matrix", KernelLayer)]
)
def test_those_whose_matrix_can_be_computed_say_so(capability: str, protocol: type) -> None:
    able = [name for name, mechanism in attentions().items() if issubclass(mechanism, protocol)]  # type: ignore[arg-type]
    assert sorted(able) == sorted(c.name for c in load().list("attention") if capability in c.offers)


def test_those_that_pursue_say_so() -> None:
    able = [name for name in attentions() if isinstance(mechanism(name), PursuitLayer)]
    assert sorted(able) == sorted(c.name for c in load().list("attention") if "pursuit" in c.offers)
    assert sorted(able) == ["rpc", "rpc_asymmetric", "rpc_causal"]


def test_layers_that_pursue_are_found_with_their_numbers() -> None:
    found = pursuit_layers(vit(5, 3, **SMALL | {"depth": 4}, attention="rpc", layers=[1, 3]))
    assert [(number, type(layer)) for number, layer in found] == [
        (1, attentions()["rpc"]),
        (3, attentions()["rpc"]),
    ]
    assert pursuit_layers(vit(5, 3, **SMALL)) == pursuit_layers(nn.Linear(2, 2)) == []


@pytest.mark.parametrize(
    "name", sorted(c.name for c in load().list("attention") if "attention_matrix" in c.offers)
)
def test_the_output_follows_from_the_attention_matrix(name: str) -> None:
    layer, x = mechanism(name), torch.randn(2, TOKENS, WIDTH, dtype=torch.float64)
    assert isinstance(layer, MatrixLayer)
    with torch.no_grad():
        matrix = layer.attention_matrix(x)
        assert matrix.shape == (2, HEADS, TOKENS, TOKENS)
        torch.testing.assert_close(matrix.sum(dim=-1), torch.ones(2, HEADS, TOKENS).double())
        values = layer.qkv(x)[..., -WIDTH:].unflatten(2, (HEADS, -1)).transpose(1, 2)
        torch.testing.assert_close(layer(x), layer.proj(merge_heads(matrix @ values)), rtol=0, atol=1e-12)


def test_a_kernel_matrix_counts_where_it_is_asked_for() -> None:
    model = vit(5, 3, **SMALL, attention="primal", layers="last")
    assert [type(layer) for layer in matrix_layers(model, kernels=True)] == [
        attentions()["softmax"],
        attentions()["primal"],
    ]
    with pytest.raises(ValueError, match="layer 1, 'primal', has no attention matrix to look at"):
        matrix_layers(model, kernels=False)
    with pytest.raises(ValueError, match="layer 1, 'primal', does not end in a softmax over all tokens"):
        softmax_layers(model)


@pytest.mark.parametrize("name", OFFERED)
def test_the_output_follows_from_what_is_seen(name: str) -> None:
    layer, x = mechanism(name), torch.randn(2, TOKENS, WIDTH, dtype=torch.float64)
    assert isinstance(layer, SoftmaxLayer)
    with torch.no_grad():
        seen = layer.queries_keys_values(x)
        assert [part.shape for part in seen] == 3 * [(2, HEADS, TOKENS, WIDTH // HEADS)]
        expected = layer.proj(merge_heads(attend(*seen, None, 0.0)))
        torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-12)


def test_rpc_is_seen_at_its_last_iteration() -> None:
    layer, x = mechanism("rpc"), torch.randn(2, TOKENS, WIDTH, dtype=torch.float64)
    assert isinstance(layer, SoftmaxLayer)
    queries, keys, _ = layer.queries_keys_values(x)
    projected = layer.qkv(x)[..., :WIDTH].reshape(2, TOKENS, HEADS, -1).transpose(1, 2)
    assert torch.equal(queries, keys)
    assert not torch.allclose(keys, projected, atol=1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_models_that_offer_it_have_layers_of_it(name: str) -> None:
    component = load().find("model", name)
    taken = component.parameters["properties"]
    own = {key: value for key, value in SMALL.items() if key in taken}
    chosen = own | ({"attention": "softmax"} if "attention" in taken else {})
    outputs = 1 if "series_regression" in component.tasks else 5
    causal = "language" in component.tasks or name == "text_classifier"
    with torch.device("meta"):
        model = Classifier(build("model", name, chosen)(outputs, 3), (0.5,), (0.5,))
        layers = softmax_layers(model, causal=causal)
    stated = (component.facts or {}) | own
    default = 16 if name == "text_classifier" else 12  # those of Segmenter's and of its own backbone
    assert len(layers) == stated.get("depth", default)


def test_a_look_changes_nothing_and_ends_with_its_block() -> None:
    torch.manual_seed(0)
    model = vit(5, 3, **SMALL, attention="rpc").eval()
    images = torch.rand(2, 3, 32, 32)
    seen: list[tuple[int, QueriesKeysValues]] = []

    def see(number: int, layer: nn.Module, x: torch.Tensor, mask: torch.Tensor | None) -> None:
        assert mask is None
        seen.append((number, queries_keys_values(layer, x)))

    layers = softmax_layers(model)
    with torch.no_grad():
        plain = model(images)
        with observed([(1, layers[1])], see):
            looked = model(images)
        again = model(images)
    assert [number for number, _ in seen] == [1]
    assert seen[0][1].values.shape == (2, 3, 17, 4)
    assert torch.equal(plain, looked)
    assert torch.equal(plain, again)


def test_class_attention_and_decoders_are_not_looked_at() -> None:
    assert len(softmax_layers(fan_vit(5, 3, **SMALL))) == 2
    whole = segmenter(5, 3, backbone=lambda classes, channels: vit(classes, channels, **SMALL))
    assert softmax_layers(whole) == [block.attn for block in whole.encoder.blocks]  # type: ignore[union-attr]


def test_models_that_have_nothing_to_look_at_are_refused() -> None:
    with pytest.raises(ValueError, match="layer 0, 'rpc_causal', does not end in a softmax over all tokens"):
        softmax_layers(vit(5, 3, **SMALL, attention="rpc_causal", layers="first"))
    with pytest.raises(ValueError, match="Sequential has no layers of self-attention"):
        softmax_layers(nn.Sequential(nn.Linear(2, 2)))


def test_padded_sequences_are_refused() -> None:
    layer, x = mechanism("softmax"), torch.randn(1, TOKENS, WIDTH, dtype=torch.float64)
    mask = torch.ones(1, TOKENS, dtype=torch.bool)
    with observed([(0, layer)], lambda *_: None), pytest.raises(ValueError, match="padding"):
        layer(x, mask=mask)
