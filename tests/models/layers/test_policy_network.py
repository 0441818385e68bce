"""The policy network against the same network written out token by token, and its laws."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.policy_network import Context, PolicyModel, PolicyNetwork

S, A, K, WIDTH, HEADS, STEPS = 4, 2, 5, 12, 3, 30


@pytest.fixture(autouse=True)
def generators_restored() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        yield


def network(discrete: bool = True, depth: int = 2) -> PolicyNetwork:
    made = PolicyNetwork(
        [SoftmaxAttention] * depth,
        observations=S,
        actions=A,
        discrete=discrete,
        context=K,
        timesteps=STEPS,
        width=WIDTH,
        heads=HEADS,
        mlp_ratio=2.0,
    )
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.4)  # LayerNorm and biases too, so that none is inert
    return made.double().eval()


def windows(lengths: list[int], side: str = "right", seed: int = 1) -> Tensor:
    """Contexts (B, K, S + A + 3) of so many steps; the same numbers with padding on either side."""
    draws = torch.Generator().manual_seed(seed)
    packed = torch.zeros(len(lengths), K, S + A + 3, dtype=torch.float64)
    for row, length in enumerate(lengths):
        parts = Context(
            torch.randn(length, S, generator=draws, dtype=torch.float64),
            torch.eye(A, dtype=torch.float64)[torch.randint(A, (length,), generator=draws)],
            torch.randn(length, 1, generator=draws, dtype=torch.float64),
            torch.arange(7, 7 + length, dtype=torch.float64)[:, None],
            torch.ones(length, 1, dtype=torch.float64),
        ).packed()
        place = slice(0, length) if side == "right" else slice(K - length, K)
        packed[row, place] = parts
    return packed


def linear(x: list[float], weights: dict[str, Tensor], name: str) -> list[float]:
    weight, bias = weights[f"{name}.weight"].tolist(), weights[f"{name}.bias"].tolist()
    return [sum(w * v for w, v in zip(row, x, strict=True)) + b for row, b in zip(weight, bias, strict=True)]


def norm(x: list[float], weights: dict[str, Tensor], name: str) -> list[float]:
    weight, bias = weights[f"{name}.weight"].tolist(), weights[f"{name}.bias"].tolist()
    mean = sum(x) / len(x)
    spread = math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + 1e-5)
    return [(v - mean) / spread * w + b for v, w, b in zip(x, weight, bias, strict=True)]


def add(*many: list[float]) -> list[float]:
    return [sum(values) for values in zip(*many, strict=True)]


def attention(tokens: list[list[float]], weights: dict[str, Tensor], name: str) -> list[list[float]]:
    """Causal softmax attention, a query at a time."""
    projected = [linear(token, weights, f"{name}.qkv") for token in tokens]
    size = WIDTH // HEADS
    answers = []
    for place in range(len(tokens)):
        merged: list[float] = []
        for head in range(HEADS):
            q, k, v = (
                [row[part * WIDTH + head * size : part * WIDTH + (head + 1) * size] for row in projected]
                for part in range(3)
            )
            scores = [
                sum(a * b for a, b in zip(q[place], k[other], strict=True)) / math.sqrt(size)
                for other in range(place + 1)
            ]
            powers = [math.exp(score - max(scores)) for score in scores]
            merged += [
                sum(power * v[other][c] for other, power in enumerate(powers)) / sum(powers)
                for c in range(size)
            ]
        answers.append(linear(merged, weights, f"{name}.proj"))
    return answers


def written_out(model: PolicyNetwork, context: Tensor) -> list[list[float]]:
    """The Decision Transformer of one window without padding, (K, A), from its state dict alone."""
    weights = dict(model.state_dict())
    parts = Context.of(context[None], S)
    tokens: list[list[float]] = []
    for step in range(len(context)):
        place = weights["embed_step.weight"][int(parts.steps[0, step, 0])].tolist()
        for name, values in (
            ("embed_return", parts.returns),
            ("embed_observation", parts.observations),
            ("embed_action", parts.actions),
        ):
            embedded = add(linear(values[0, step].tolist(), weights, name), place)
            tokens.append(norm(embedded, weights, "embed_norm"))
    for block in range(len(model.blocks)):
        name = f"blocks.{block}"
        normed = [norm(token, weights, f"{name}.norm1") for token in tokens]
        attended = attention(normed, weights, f"{name}.attn")
        tokens = [add(token, more) for token, more in zip(tokens, attended, strict=True)]
        for place, token in enumerate(tokens):
            hidden = linear(norm(token, weights, f"{name}.norm2"), weights, f"{name}.fc1")
            mlp = linear([max(value, 0.0) for value in hidden], weights, f"{name}.fc2")
            tokens[place] = add(token, mlp)
    seen = [norm(token, weights, "norm") for token in tokens[1::3]]
    outputs = [linear(token, weights, "head") for token in seen]
    return outputs if model.discrete else [[math.tanh(value) for value in row] for row in outputs]


@pytest.mark.parametrize("discrete", [True, False])
def test_equals_the_network_written_out(discrete: bool) -> None:
    model, context = network(discrete), windows([K])
    expected = torch.tensor(written_out(model, context[0]), dtype=torch.float64)
    torch.testing.assert_close(model(context)[0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_either_side_takes_no_part(side: str) -> None:
    """A padded window answers as the short one alone; released windows are padded on the left."""
    model, lengths = network(), [1, 2, 4, K]
    packed = windows(lengths, side)
    noisy = torch.where(packed[..., -1:] == 0, torch.rand_like(packed), packed)
    noisy[..., -2:] = packed[..., -2:]
    answers = model(noisy)
    for row, length in enumerate(lengths):
        place = slice(0, length) if side == "right" else slice(K - length, K)
        alone = torch.tensor(written_out(model, packed[row, place]), dtype=torch.float64)
        torch.testing.assert_close(answers[row, place], alone, rtol=0, atol=1e-12)


def test_an_action_depends_on_no_later_step_and_not_on_itself() -> None:
    model, packed = network(), windows([K])
    before = model(packed)
    parts = Context.of(packed, S)
    for step in range(K):
        for name, unaffected in (("observations", step), ("returns", step), ("actions", step + 1)):
            changed = parts._replace(**{name: getattr(parts, name).clone()})
            getattr(changed, name)[:, step] += 1.0
            after = model(changed.packed())
            assert torch.equal(after[:, :unaffected], before[:, :unaffected])
            if unaffected < K:
                assert (after[:, unaffected] != before[:, unaffected]).any()


def test_a_window_does_not_depend_on_the_batch() -> None:
    model, packed = network(), windows([2, 5, 3, 4])
    together = model(packed)
    for row in range(len(packed)):
        torch.testing.assert_close(model(packed[row : row + 1])[0], together[row], rtol=0, atol=1e-12)


def test_the_model_standardises_what_the_environment_shows() -> None:
    network_ = network()
    policy = PolicyModel(network_, [1.0, 2.0, 3.0, 4.0], [0.5, 1.0, 2.0, 4.0], 10.0).double()
    packed = windows([K, 3])
    parts = Context.of(packed, S)
    raw = parts._replace(
        observations=parts.observations * policy.std + policy.mean, returns=10.0 * parts.returns
    ).packed()
    answers, expected = policy(raw), network_(packed)
    torch.testing.assert_close(answers[0], expected[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(answers[1, :3], expected[1, :3], rtol=0, atol=1e-12)
    assert {"mean", "std", "return_scale"} <= set(policy.state_dict())


@pytest.mark.parametrize(
    ("shape", "message"),
    [((1, K + 1, S + A + 3), "at most 5 steps"), ((1, 2, S + A + 4), "2 numbers"), ((2, S), "contexts must")],
)
def test_other_shapes_are_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        network()(torch.zeros(shape, dtype=torch.float64))


def test_a_divisor_of_returns_must_be_positive() -> None:
    with pytest.raises(ValueError, match="return_scale must be above 0: got 0"):
        PolicyModel(network(), [0.0] * S, [1.0] * S, 0.0)
