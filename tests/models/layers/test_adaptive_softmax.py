"""Adaptive softmax against torch's, against a plain softmax, and in parts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from assay.models.layers import adaptive_softmax as module
from assay.models.layers.adaptive_softmax import AdaptiveSoftmax

WIDTH, VOCABULARY = 8, 30
CUTOFFS = [[], [10], [10, 14, 29], [29, 10, 14, 14, 30, 99]]


def made(cutoffs: list[int], seed: int = 0) -> tuple[AdaptiveSoftmax, Tensor]:
    """An output layer with no weight zero, and the words' weights."""
    torch.manual_seed(seed)
    output = AdaptiveSoftmax(WIDTH, VOCABULARY, cutoffs).double()
    with torch.no_grad():
        for parameter in output.parameters():
            parameter.normal_()
    return output, torch.randn(VOCABULARY, WIDTH, dtype=torch.float64)


def examples(count: int = 40) -> tuple[Tensor, Tensor]:
    """Hidden states (n, C) and a target for each; every word is one."""
    return torch.randn(count, WIDTH, dtype=torch.float64), torch.arange(count) % VOCABULARY


@pytest.mark.parametrize("cutoffs", CUTOFFS)
def test_probabilities_sum_to_one_and_are_those_of_the_loss(cutoffs: list[int]) -> None:
    output, words = made(cutoffs)
    hidden, targets = examples()
    log_probabilities = output(hidden, words)
    assert log_probabilities.shape == (40, VOCABULARY)
    torch.testing.assert_close(log_probabilities.exp().sum(-1), torch.ones(40, dtype=torch.float64))
    expected = -log_probabilities.gather(1, targets[:, None])[:, 0]
    found = output.negative_log_likelihood(hidden, words, targets)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_equals_torch_with_the_same_weights() -> None:
    output, words = made([10, 14])
    theirs = nn.AdaptiveLogSoftmaxWithLoss(
        WIDTH, VOCABULARY, cutoffs=[10, 14], div_value=1.0, head_bias=True
    ).double()
    assert output.clusters is not None
    with torch.no_grad():
        output.bias[10:] = 0.0  # torch's clusters have none
        theirs.head.weight.copy_(torch.cat([words[:10], output.clusters.weight]))
        theirs.head.bias.copy_(torch.cat([output.bias[:10], output.clusters.bias]))
        for tail, (first, end) in zip(theirs.tail, [(10, 14), (14, 30)], strict=True):
            tail[0].weight.copy_(torch.eye(WIDTH))
            tail[1].weight.copy_(words[first:end])
    hidden, targets = examples()
    torch.testing.assert_close(output(hidden, words), theirs.log_prob(hidden), rtol=0, atol=1e-12)
    found = output.negative_log_likelihood(hidden, words, targets)
    torch.testing.assert_close(found, -theirs(hidden, targets).output, rtol=0, atol=1e-12)


def test_without_clusters_it_is_a_softmax() -> None:
    output, words = made([30, 20_000])
    assert output.clusters is None
    hidden, targets = examples()
    logits = hidden @ words.T + output.bias
    expected = nn.functional.cross_entropy(logits, targets, reduction="none")
    found = output.negative_log_likelihood(hidden, words, targets)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("cutoffs", [[], [10, 14]])
def test_in_parts_the_losses_and_gradients_are_the_same(
    cutoffs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers() -> list[Tensor]:
        output, words = made(cutoffs)
        words.requires_grad_()
        hidden, targets = examples()
        hidden.requires_grad_()
        losses = output.negative_log_likelihood(hidden, words, targets)
        with torch.no_grad():
            unseen = output.negative_log_likelihood(hidden, words, targets)
        inputs = [hidden, words, *output.parameters()]
        return [losses, unseen, *torch.autograd.grad(losses.square().sum(), inputs)]

    whole = answers()
    made_of: list[int] = []
    once = module._some_losses
    monkeypatch.setattr(module, "LOGITS", 7 * VOCABULARY)
    monkeypatch.setattr(module, "_some_losses", lambda *a: made_of.append(len(a[0])) or once(*a))
    for one, other in zip(answers(), whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert max(made_of) < 40


def test_lengths_below_one_are_refused() -> None:
    for vocabulary, cutoffs in ((0, []), (5, [0])):
        with pytest.raises(ValueError, match="must be at least 1"):
            AdaptiveSoftmax(4, vocabulary, cutoffs)
