"""The eigenvector check against its formulas, on planted eigenvectors, and its controls."""

from __future__ import annotations

import itertools
import math
import statistics

import pytest
import torch
from torch import Tensor

from assay.attacks.randomness import Randomness
from assay.models.layers.layers import Classifier
from assay.models.symvit import symvit
from assay.workers.evaluation.eigenvector_check import (
    check,
    controls,
    eigenvector_check,
    gram_matrix,
    pairwise,
)
from assay.workers.evaluation.engine.analysis import Measured
from tests.support.shards import Given, shard

N, D = 6, 3


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def slow_gram(k: Tensor) -> tuple[Tensor, Tensor]:
    """K~ and g of the keys of one head (N, D), as the paper writes them."""
    n, d = k.shape
    kernel = torch.tensor(
        [[math.exp(float(a @ b) / math.sqrt(d)) for b in k] for a in k], dtype=torch.float64
    )
    g = kernel.sum(dim=1)
    gram, ones = kernel / torch.outer(g, g), torch.full((n, n), 1 / n, dtype=torch.float64)
    return gram - ones @ gram - gram @ ones + ones @ gram @ ones, g


def slow_gammas(k: Tensor, v: Tensor) -> list[list[float]]:
    """gamma_d of each column of V, with a pseudo-inverse."""
    gram, g = slow_gram(k)
    n = len(k)
    centring = torch.eye(n, dtype=torch.float64) - 1 / n
    axes = torch.linalg.pinv(centring) @ torch.diag(g) @ v
    return (gram @ axes / (n * axes)).T.tolist()


def test_equals_the_formulas() -> None:
    keys, values = drawn(2, 2, N, D), drawn(2, 2, N, D, seed=1)
    gram = gram_matrix(keys)
    found = check(gram, values)
    for row in range(2):
        gammas = [slow_gammas(keys[row, head], values[row, head]) for head in range(2)]
        pairs = [
            [abs(a - b) for a, b in itertools.permutations(gamma, 2)] for head in gammas for gamma in head
        ]
        constants = [[abs(statistics.fmean(gamma)) for gamma in head] for head in gammas]
        expected = {
            "difference_mean": statistics.fmean(map(statistics.fmean, pairs)),
            "difference_std": statistics.fmean(map(statistics.pstdev, pairs)),
            "largest": statistics.fmean(map(max, constants)),
            "smallest": statistics.fmean(map(min, constants)),
            "average": statistics.fmean(map(statistics.fmean, constants)),
            "middle": statistics.fmean(map(statistics.median, constants)),
        }
        for name, value in expected.items():
            assert float(found[name][row]) == pytest.approx(value, rel=1e-9), name
        traces = [float(torch.linalg.eigvalsh(slow_gram(k)[0]).sum()) / N for k in keys[row]]
        assert float(gram.trace[row]) == pytest.approx(statistics.fmean(traces), rel=1e-9)


def test_planted_eigenvectors_are_found() -> None:
    keys = drawn(1, 1, N, D)
    gram, g = slow_gram(keys[0, 0])
    vectors = torch.linalg.eigh(gram).eigenvectors[:, -D:]  # of the largest eigenvalues
    values = (vectors / g[:, None])[None, None]  # V = G A, and the columns of A sum to 0
    found = check(gram_matrix(keys), values)
    eigenvalues = torch.linalg.eigvalsh(gram)[-D:] / N
    assert float(found["cosine"]) == pytest.approx(1, abs=1e-12)
    assert float(found["offset"]) == pytest.approx(0, abs=1e-12)
    assert float(found["difference_mean"]) < 1e-10 * float(eigenvalues[-1])
    for name, value in (
        ("largest", eigenvalues[-1]),
        ("smallest", eigenvalues[0]),
        ("middle", eigenvalues[1]),
    ):
        assert float(found[name]) == pytest.approx(float(value), rel=1e-9)
    assert found["cosines"][0].tolist() == [0] * 19 + [D]
    permuted = controls(values, Randomness(0, "x"), ["a"], 0)["permuted"]
    assert float(check(gram_matrix(keys), permuted)["cosine"]) < 0.99


def test_all_eigenvalues_together_are_at_most_one() -> None:
    """The published 648.46 is thus not an eigenvalue of this matrix."""
    for scale in (0.0, 0.3, 3.0, 30.0):
        assert 0 <= float(gram_matrix(scale * drawn(1, 1, N, D)).trace) <= 1


def test_large_keys_do_not_overflow() -> None:
    keys, values = 300 * drawn(1, 1, N, D), drawn(1, 1, N, D, seed=1)
    found = check(gram_matrix(keys), values)
    assert 0 <= float(found["cosine"]) <= 1 + 1e-12
    assert float(found["difference_mean"]) >= 0


def test_differences_of_all_pairs() -> None:
    x = drawn(4, N, D)
    x[0, 2, 1] = x[3, 0, 0] = math.nan
    x[1, 1:, 2] = math.nan  # one is left: no pair
    found = pairwise(x)
    for row, column in itertools.product(range(4), range(D)):
        known = [float(value) for value in x[row, :, column] if not value.isnan()]
        differences = [abs(a - b) for a, b in itertools.combinations(known, 2)]
        mean, std = float(found.mean[row, column]), float(found.std[row, column])
        if not differences:
            assert math.isnan(mean)
            continue
        assert mean == pytest.approx(statistics.fmean(differences), rel=1e-12)
        assert std == pytest.approx(statistics.pstdev(differences), rel=1e-9)


def test_divisions_by_zero_are_left_out_and_counted() -> None:
    keys, values = drawn(1, 1, N, D), drawn(1, 1, N, D, seed=1)
    keys[...] = keys[:, :, :1] * torch.tensor([1.0, 1, 1, -1, -1, -1], dtype=torch.float64)[:, None]
    # For these keys g is constant, so a is V less its mean.
    values[0, 0, :, 0] = torch.tensor([1.0, 2, 0, 0, -1, -2])
    values[0, 0, :, 1] = 0.0
    found = check(gram_matrix(keys), values)
    assert int(found["undefined"]) == 1
    assert int(found["skipped"]) == 2 + N
    assert int(found["elements"]) == N * D
    assert int(found["cosines"].sum()) == int(found["spreads"].sum()) == D - 1
    assert all(
        math.isfinite(float(found[name])) for name in ("difference_mean", "cosine", "middle", "largest")
    )


def test_controls_belong_to_the_example_and_the_layer() -> None:
    values, randomness = drawn(2, 2, N, D), Randomness(7, "eigenvector_check")
    both = controls(values, randomness, ["a", "b"], 1)
    alone = controls(values[1:], randomness, ["b"], 1)
    for name, made in both.items():
        assert torch.equal(made[1:], alone[name])
        assert not torch.equal(made, controls(values, randomness, ["a", "b"], 2)[name])
        assert not torch.equal(
            made, controls(values, Randomness(8, "eigenvector_check"), ["a", "b"], 1)[name]
        )
    for row, head in itertools.product(range(2), range(2)):
        before = sorted(values[row, head].tolist())
        assert sorted(both["permuted"][row, head].tolist()) == before
    assert not torch.equal(both["permuted"], values)


def test_a_run_over_a_model() -> None:
    torch.manual_seed(0)
    model = Classifier(symvit(4, 1, image_size=16, patch_size=4, depth=2, width=16, heads=2), (0.5,), (0.5,))
    images = torch.rand(6, 1, 16, 16)
    data = Given([f"e{row}" for row in range(6)], images=lambda rows: images[list(rows)])

    def run(start: int, stop: int, size: int) -> dict[str, Tensor]:
        part = shard(model, data, range(start, stop), seed=3, batch_size=size)
        found = eigenvector_check().measure(part)
        assert isinstance(found, Measured)
        return dict(found.values)

    one, other = run(0, 6, 2), run(0, 6, 6)
    assert one["cosine"].shape == (6, 2)
    assert one["random_cosine"].shape == (6,)
    assert one["cosines"].shape == one["permuted_cosines"].shape == (6, 20)
    assert one["spreads"].shape == (6, 48)
    assert one["elements"].tolist() == 6 * [2 * 2 * 17 * 8]
    for name in ("cosine", "offset", "trace", "random_cosine", "permuted_offset"):
        torch.testing.assert_close(one[name], other[name], rtol=1e-3, atol=1e-6)
    shards = [run(0, 4, 2), run(4, 6, 2)]  # the same batches in other shards: the same bits
    assert all(
        torch.equal(torch.cat([part[name] for part in shards]), values) for name, values in one.items()
    )
