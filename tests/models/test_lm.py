"""The language models: sizes, layout, causality, the loss, and that RPC changes the layers it is in."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.models.attention.scaled_learned import LearnedScaledAttention
from assay.models.layers.causal_transformer import CausalTransformer, sinusoids
from assay.models.layers.language import LanguageModel
from assay.models.lm import lm
from assay.models.rpc_symmlm import PRESETS as RPC_PRESETS
from assay.models.rpc_symmlm import rpc_symmlm
from assay.models.symmlm import PRESETS, symmlm

WORDS = 60
SMALL: dict[str, Any] = {
    "width": 24, "depth": 2, "heads": 3, "hidden": 32, "length": 12, "cutoffs": [20, 40],
}  # fmt: skip
ATTENTIONS = [
    "softmax", "softmax_standardized", "symmetric", "rpc_causal", "rpc_asymmetric", "scaled_alpha",
    {"name": "scaled_learned", "patches": 12},
]  # fmt: skip


def made(builder: Any = lm, **parameters: Any) -> CausalTransformer:
    torch.manual_seed(0)
    module = builder(WORDS, WORDS, **SMALL | parameters).double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))  # so small at the start that little is seen
    return module  # type: ignore[no-any-return]


def tokens(batch: int = 2, length: int = 12, seed: int = 1) -> Tensor:
    return torch.randint(0, WORDS, (batch, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("builder", "count"), [(lm, 44_018_394), (symmlm, 43_756_250), (rpc_symmlm, 43_756_250)]
)
def test_the_published_size(builder: Any, count: int) -> None:
    """Word vectors and biases, 3 clusters, 16 layers of projections, MLP and two LayerNorms."""
    with torch.device("meta"):
        model = builder(267_735, 267_735)
    projections = 128 * 128 * (4 if builder is lm else 3)
    layer = projections + 2 * 128 * 2048 + 2048 + 128 + 4 * 128
    assert count == 267_735 * 129 + 3 * 129 + 16 * layer
    assert sum(parameter.numel() for parameter in model.parameters()) == count


@pytest.mark.parametrize(("name", "rpc"), [("symmlm_tiny", 0), ("rpc_symmlm_tiny", 1)])
def test_the_size_for_a_laptop(name: str, rpc: int) -> None:
    model: Any = (PRESETS | RPC_PRESETS)[name].build(10_000, 10_000)
    assert model.sequence_length == 64
    assert sum(parameter.numel() for parameter in model.parameters()) == 832_593
    assert [block.attn.name for block in model.blocks] == ["rpc_causal"] * rpc + ["symmetric"] * (4 - rpc)


@pytest.mark.parametrize("attention", ATTENTIONS, ids=str)
def test_no_word_changes_what_is_predicted_before_it(attention: Any) -> None:
    model = made(attention=of(attention))
    before, changed = model(tokens()), tokens()
    changed[:, 7] = (changed[:, 7] + 1) % WORDS
    after = model(changed)
    assert torch.equal(after[:, :7], before[:, :7])
    assert (after - before)[:, 7:].abs().amax(dim=(0, 2)).min() > 1e-6


def of(attention: Any) -> Any:
    """A worker's argument for a reference: the mechanism with its parameters."""
    if isinstance(attention, str):
        return attention
    return functools.partial(LearnedScaledAttention, patches=attention["patches"])


def test_with_mu_over_the_sequence_later_words_leak() -> None:
    changed = tokens()
    changed[:, -1] = (changed[:, -1] + 1) % WORDS
    for mu_tokens, leaks in (("sequence", True), ("prefix", False)):
        # A threshold that is neither above nor below all keys.
        model = made(rpc_symmlm, rpc_layers="all", mu_tokens=mu_tokens, regularization=0.2, encoder=True)
        difference = (model(changed) - model(tokens()))[:, :-1].abs().max()
        assert bool(difference > 1e-6) is leaks


def test_shorter_sequences_are_beginnings_and_longer_ones_are_refused() -> None:
    model = made(rpc_symmlm, rpc_layers="first")
    torch.testing.assert_close(model(tokens())[:, :5], model(tokens()[:, :5]), rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match=r"at most 12\): got \(2, 13\)"):
        model(tokens(length=13))


def test_sequences_of_a_batch_are_independent() -> None:
    model, many = made(symmlm), tokens(batch=3)
    for example in range(3):
        torch.testing.assert_close(model(many)[example], model(many[example, None])[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("builder", [lm, rpc_symmlm])
@pytest.mark.parametrize("last", [None, 1, 5])
def test_the_loss_is_that_of_the_probabilities(builder: Any, last: int | None) -> None:
    model = made(builder, **({"rpc_layers": "all"} if builder is rpc_symmlm else {}))
    assert isinstance(model, LanguageModel)
    targets = tokens(seed=3)
    kept = slice(-(last or 12), None)
    expected = -model(tokens()).gather(2, targets[..., None])[..., 0][:, kept]
    found = model.negative_log_likelihood(tokens(), targets, last=last)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    again = model.negative_log_likelihood(tokens(), targets[:, kept], last=last)
    assert torch.equal(found, again)
    single = model.float().negative_log_likelihood(tokens(), targets)
    assert single.dtype == torch.float32
    with pytest.raises(ValueError, match="last must be from 1 to 12: got 13"):
        model.negative_log_likelihood(tokens(), targets, last=13)


def test_it_is_the_architecture_that_is_described() -> None:
    """One layer written out: vectors times sqrt(C), positions, post-LayerNorm, ReLU, tied output."""
    model = made(depth=1, cutoffs=[])
    weights = {name: value.detach() for name, value in model.state_dict().items()}
    block = model.blocks[0]
    x = weights["embedding.weight"][tokens()] * math.sqrt(24) + sinusoids(12, 24).double()
    x = block.norm1(x + block.attn(x))  # type: ignore[operator]
    hidden = torch.relu(x @ weights["blocks.0.fc1.weight"].T + weights["blocks.0.fc1.bias"])
    x = block.norm2(x + hidden @ weights["blocks.0.fc2.weight"].T + weights["blocks.0.fc2.bias"])  # type: ignore[operator]
    logits = x @ weights["embedding.weight"].T + weights["head.bias"]
    torch.testing.assert_close(model(tokens()), logits.log_softmax(-1), rtol=0, atol=1e-12)
    assert not [name for name in weights if name.startswith("blocks.0.attn") and name.endswith("bias")]
    assert sinusoids(3, 5)[2].tolist() == pytest.approx(
        [math.sin(2), math.sin(2 * 1e-4**0.4), math.sin(2 * 1e-4**0.8), math.cos(2), math.cos(2 * 1e-4**0.4)]
    )


def test_rpc_is_where_it_should_be_and_has_the_weights_of_symmetric_attention() -> None:
    plain, robust = made(symmlm), made(rpc_symmlm, rpc_layers="last", regularization=0.2)
    assert [block.attn.name for block in robust.blocks] == ["symmetric", "rpc_causal"]  # type: ignore[union-attr]
    robust.load_state_dict(plain.state_dict())
    assert (robust(tokens()) - plain(tokens())).abs().max() > 1e-4


def test_state_dict_round_trip_holds_each_tensor_once() -> None:
    model, other = made(), made(dropout=0.5)
    with torch.no_grad():
        other.embedding.weight.normal_()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(tokens()), model(tokens()))
    assert len({value.data_ptr() for value in model.state_dict().values()}) == len(model.state_dict())


def test_the_gradient_reaches_every_weight() -> None:
    model = made(rpc_symmlm, rpc_layers="first", dropout=0.1).train()
    model.negative_log_likelihood(tokens(8), tokens(8, seed=2)).mean().backward()
    missing = [name for name, it in model.named_parameters() if it.grad is None or not it.grad.any()]
    assert not missing


def test_an_encoder_has_no_output_layer() -> None:
    model = made()
    expected = model.features(tokens())
    model.as_encoder()
    assert torch.equal(model.features(tokens()), expected)
    assert not [name for name in model.state_dict() if name.startswith("head")]
    with pytest.raises(ValueError, match="is an encoder"):
        model(tokens())


@pytest.mark.costly
@pytest.mark.trains
def test_it_learns_to_repeat_a_word() -> None:
    torch.manual_seed(0)
    model: nn.Module = rpc_symmlm(WORDS, WORDS, **SMALL | {"rpc_layers": "first", "dropout": 0.0})
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(60):
        words = torch.randint(0, WORDS, (64, 1), generator=torch.Generator().manual_seed(step)).expand(-1, 12)
        loss = model.negative_log_likelihood(words, words).mean()  # type: ignore[operator]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.5 * math.log(WORDS)


def test_attention_without_a_causal_form_is_refused() -> None:
    for name in ("rpc", "scaled_exact"):
        with pytest.raises(ValueError, match="must have a causal form"):
            made(attention=name)


def test_the_scaled_start_is_larger_and_the_released_one_is_as_published() -> None:
    for initialization, word, layer in (("released", 0.02, 0.02), ("scaled", 64**-0.5, (2 / 320) ** 0.5)):
        model = lm(500, 500, width=64, depth=2, heads=4, hidden=256, initialization=initialization)  # type: ignore[arg-type]
        assert isinstance(model, CausalTransformer)
        assert model.embedding.weight.std().item() == pytest.approx(word, rel=0.05)
        block = model.blocks[0]
        assert block.fc1.weight.std().item() == pytest.approx(layer, rel=0.05)  # type: ignore[union-attr,operator]
