"""assay_fast: its pairs are plain Auto-PGD, its budget grows by the stated rule, its check finds masking."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.apgd_t import apgd_t
from assay.attacks.adversarial.assay_fast import assay_fast
from assay.attacks.adversarial.autoattack import autoattack
from assay.attacks.adversarial.kernels import paired_ascent
from assay.attacks.adversarial.kernels.malt import linear_distances, nearest_first
from assay.attacks.adversarial.kernels.paired_ascent import PairedAscent
from assay.attacks.ensemble import Ensemble
from assay.attacks.kernel import Attack, State
from assay.attacks.randomness import Randomness
from assay.attacks.threat import Ball, Norm
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.support import networks

N = networks.CONVOLUTIONAL_FROM
EPSILON = 0.15


@functools.cache
def model(name: str = "convolutional-fgsm-trained") -> nn.Module:
    return networks.network(name)


def run(
    attack: Attack | Ensemble, network: nn.Module, rows: range = range(N), **more: Any
) -> ExampleOutcomes:
    images, labels = networks.digits()

    def images_of(chosen: Sequence[int]) -> Tensor:
        return images[[rows[row] for row in chosen]]

    ids = [f"digit-{row}" for row in rows]
    arguments: dict[str, Any] = {"randomness": Randomness(0, "any"), "batch_size": 16} | more
    return attack_pixel(attack, network, images_of, labels[list(rows)], ids, **arguments)


def pairs(
    targets: int, steps: int = 8, rounds: int = 0, norm: Norm = "Linf", name: str = "apgd_t", **more: int
) -> PairedAscent:
    """Named as the attack that it is compared with: draws are keyed by the name."""
    ball = Ball(norm, EPSILON if norm == "Linf" else 0.8)
    return PairedAscent(name, ball, targets, steps, rounds, **{"candidates": 9, "many": 20} | more)


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_one_target_is_auto_pgd_on_the_margin(norm: Norm) -> None:
    network = model().double()
    epsilon = EPSILON if norm == "Linf" else 0.8
    plain = run(
        apgd_t(epsilon=epsilon, norm=norm, steps=8, targets=1, loss="margin"), network, dtype="float64"
    )
    paired = run(pairs(1, norm=norm), network, dtype="float64")
    model().float()
    assert 0 < int(plain.correct.sum()) < int(plain.clean_correct.sum())
    for column in ("prediction", "correct", "loss", "forward", "backward"):
        assert torch.equal(getattr(plain, column), getattr(paired, column)), column


@pytest.mark.costly
def test_a_broken_example_takes_its_other_pairs_out() -> None:
    one, many = (run(pairs(targets), model()) for targets in (1, 6))
    assert not (many.correct & ~one.correct).any()
    only_later = one.correct & ~many.correct
    assert only_later.any(), "a target beyond the first is needed"
    held = many.correct
    # The clean pass; 9 iterates for each of 6 targets, 8 of them with a gradient.
    assert set(many.forward[held].tolist()) == {1 + 6 * 9}
    assert set(many.backward[held].tolist()) == {6 * 8}
    # Those that a later target breaks pay for all five in parallel, until the first of them gets there.
    spent = many.forward[only_later] - 1 - 9 - 1
    assert ((spent > 0) & (spent % 5 == 0) & (spent <= 45)).all()


def test_the_budget_grows_by_the_rule_and_only_there(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]] = []
    ended = PairedAscent._end_round

    def noting(attack: PairedAscent, state: State, over: Tensor) -> None:
        slots = over.nonzero().flatten()
        keys = ("lane_run_loss", "halfway", "at_image")
        now, half, clean = (state[key][slots].clone() for key in keys)
        number = state["round"][slots].clone()
        before = state["active"][slots] | (number < 2)[:, None]
        ended(attack, state, over)
        going = state["active"][slots] & ~state["done"][slots][:, None]
        late = number > 0
        seen.append(
            (now[late], half[late], clean[late], before[late] & (number[late] < 5)[:, None], going[late])
        )

    monkeypatch.setattr(PairedAscent, "_end_round", noting)
    some = run(pairs(4, steps=4, rounds=4), model())
    now, half, clean, before, going = (torch.cat(parts) for parts in zip(*seen, strict=True))
    hopeful = (now >= paired_ascent.CLOSE * clean) | (-now <= paired_ascent.FORECAST * (now - half))
    assert torch.equal(going, hopeful & before)
    assert going.any(dim=1).any()
    assert not going.any(dim=1).all()
    monkeypatch.undo()
    none = run(pairs(4, steps=4), model())
    grown = some.forward > none.forward
    assert 0 < int(grown.sum()) < N
    assert not (some.correct & ~none.correct).any()
    assert torch.equal(some.forward[~grown], none.forward[~grown])


def test_of_many_classes_the_nearest_of_a_linear_model_are_attacked() -> None:
    images, labels = networks.digits()
    attack = pairs(3, many=5, candidates=8)
    near, usual = run(attack, model()), run(pairs(3), model())
    held = near.correct & usual.correct
    # One forward pass, and one backward pass for each of 8 candidates less the first target.
    assert torch.equal(near.forward[held], usual.forward[held] + 1)
    assert torch.equal(near.backward[held], usual.backward[held] + 7)
    with torch.no_grad():
        order = model()(images[:N]).argsort(dim=1, descending=True)
    wrong = torch.stack([row[row != label] for row, label in zip(order, labels[:N], strict=True)])
    distances = linear_distances(model(), images[:N], labels[:N], wrong[:, 1:8], "Linf")
    assert not torch.equal(nearest_first(wrong[:, 1:8], distances, 2), wrong[:, 1:3])


@pytest.mark.costly
def test_neither_batches_nor_shards_matter() -> None:
    network = model().double()
    attack = assay_fast(epsilon=EPSILON, steps=3, queries=20, check_share=0.5, candidates=6)
    whole = run(attack, network, dtype="float64")
    small = run(attack, network, dtype="float64", batch_size=5)
    parts = [run(attack, network, rows, dtype="float64") for rows in (range(23), range(23, N))]
    model().float()
    for column in ("correct", "prediction", "forward", "backward"):
        both = torch.cat([getattr(part, column) for part in parts])
        assert torch.equal(getattr(whole, column), getattr(small, column)), column
        assert torch.equal(getattr(whole, column), both), column
    assert [stage.name for stage in whole.stages] == ["apgd_pairs", "square"]
    assert sum(stage.forward for stage in whole.stages) == int(whole.forward.sum())


@pytest.mark.costly
def test_the_last_point_of_a_round_counts_in_every_batch() -> None:
    """Alone, all pairs of an example end a round together; beside others some go on, and all are noted."""
    network = model().double()
    alone, beside = (
        run(
            pairs(6, steps=4, rounds=3, norm="L2"),
            network,
            range(16),
            dtype="float64",
            batch_size=size,
            keep_adversarial=True,
        )
        for size in (1, 5)
    )
    model().float()
    assert alone.correct.any()
    assert torch.equal(alone.forward, beside.forward)
    torch.testing.assert_close(alone.adversarial, beside.adversarial, rtol=0, atol=1e-6)


@pytest.mark.costly
def test_the_check_is_on_a_share_of_what_is_left() -> None:
    share = assay_fast(epsilon=0.05, queries=30, check_share=0.3)
    found = run(share, model())
    queries = found.forward[found.correct] - run(share.stages[0], model()).forward[found.correct]
    # The others cost the loading pass.
    assert set(queries.tolist()) == {1, 1 + 31}
    assert 0.1 < float((queries > 1).float().mean()) < 0.5
    assert run(assay_fast(epsilon=0.05, queries=30, check_share=0.0), model()).stages[1].forward == len(
        queries
    )


class Masked(nn.Module):
    """Rounds its input: no gradient, and the same decisions."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.inner((images * 32).round() / 32)
        return logits


@pytest.mark.costly
def test_masked_gradients_are_found_without_gradients() -> None:
    found = run(assay_fast(epsilon=EPSILON, check_share=0.5), Masked(model("convolutional")))
    pairs_stage, square_stage = found.stages
    assert pairs_stage.zero_gradient == pairs_stage.n
    assert square_stage.broken > 3


def test_confirm_leaves_what_autoattack_leaves() -> None:
    attack = assay_fast(epsilon=EPSILON, confirm=True)
    names = ["apgd_pairs", "square", "apgd_ce", "apgd_t", "fab_t", "square"]
    assert [stage.name for stage in attack.stages] == names
    assert attack.name == "assay_fast"
    standard = autoattack(epsilon=EPSILON).stages
    assert attack.stages[2:] == standard


@pytest.mark.slow
def test_it_breaks_what_autoattack_breaks_at_a_fiftieth_of_the_passes() -> None:
    fast, full = (run(attack(epsilon=0.1), model()) for attack in (assay_fast, autoattack))
    assert torch.equal(fast.correct, full.correct)
    assert int(fast.correct.sum()) > N / 4
    cost = [int(found.forward.sum() + found.backward.sum()) for found in (fast, full)]
    assert 50 * cost[0] < cost[1]


def test_values_out_of_range_are_named() -> None:
    with pytest.raises(ValueError, match="candidates is 2, it must be at least targets, 6"):
        assay_fast(candidates=2)
    with pytest.raises(ValueError, match="check_share is 2"):
        assay_fast(check_share=2.0)
    with pytest.raises(ValueError, match="targets"):
        assay_fast(targets=0)
