from __future__ import annotations

import math

import pytest
import torch

from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.kernel import Examples, Setting
from assay.attacks.randomness import Randomness

N = 60
LABELS = torch.arange(N) % 5
SETTING = Setting([f"image-{row}" for row in range(N)], Randomness(0, "pgd"))


def examples(rows: list[int] | None = None) -> Examples:
    chosen = torch.tensor(list(range(N)) if rows is None else rows)
    logits = torch.randn(N, 5, generator=torch.Generator().manual_seed(0))[chosen]
    return Examples(chosen, torch.zeros(len(chosen), 1, 2, 2), LABELS[chosen], LABELS[chosen], logits)


def test_an_untargeted_goal_is_the_label() -> None:
    assert torch.equal(Goal().choose(SETTING, examples()), LABELS)


@pytest.mark.parametrize("rule", ["least_likely", "random", "next"])
def test_a_target_is_never_the_label(rule: str) -> None:
    target = Goal(True, rule).choose(SETTING, examples())  # type: ignore[arg-type]
    assert (target != LABELS).all()
    assert ((target >= 0) & (target < 5)).all()


def test_the_least_likely_class_has_the_lowest_logit() -> None:
    batch = examples()
    target = Goal(True).choose(SETTING, batch)
    others = batch.logits.scatter(1, LABELS[:, None], math.inf)
    assert torch.equal(batch.logits.gather(1, target[:, None])[:, 0], others.amin(1))


def test_switched_off_classes_are_no_targets() -> None:
    batch = examples()
    logits = batch.logits.clone()
    logits[:, 3] = -math.inf
    assert (Goal(True).choose(SETTING, batch._replace(logits=logits)) != 3).all()


def test_random_targets_belong_to_the_example_and_cover_the_classes() -> None:
    goal = Goal(True, "random")
    whole = goal.choose(SETTING, examples())
    assert torch.equal(goal.choose(SETTING, examples([7, 3])), whole[[7, 3]])
    assert set(((whole - LABELS) % 5).tolist()) == {1, 2, 3, 4}


def test_a_given_class_is_the_target_except_for_its_own_examples() -> None:
    target = Goal(True, target_class=4).choose(SETTING, examples())
    assert torch.equal(target, torch.where(LABELS == 4, 0, 4))


def test_the_objective_of_a_target_is_its_negative_loss() -> None:
    logits, classes = examples().logits, LABELS
    raised = Goal().objective(classes)(logits)
    torch.testing.assert_close(raised, -logits.log_softmax(1).gather(1, classes[:, None])[:, 0])
    assert torch.equal(Goal(True).objective(classes)(logits), -raised)


def test_goals_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="allowed are least_likely, random, next"):
        Goal(True, "best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 0"):
        Goal(True, target_class=-1)
    with pytest.raises(ValueError, match="classes 0 to 4"):
        Goal(True, target_class=5).choose(SETTING, examples())
    one_class = examples()._replace(logits=torch.zeros(N, 1))
    with pytest.raises(ValueError, match="two classes"):
        Goal(True).choose(SETTING, one_class)
