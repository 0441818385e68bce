"""Whole jobs of models whose numbers say nothing: answers like guesses, one class, lost gradients."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor, nn

from assay.service.contract.results import Warning
from assay.service.metrics.answers import Answers
from assay.workers.jobs.model_warnings import of_answers, of_gradients
from tests.support import networks
from tests.workers.jobs.test_whole_jobs import Bench, Masked, Plain, bench

__all__ = ["bench"]

SQUARE: dict[str, Any] = {"name": "square", "params": {"epsilon": "24/255", "queries": 20}}
LIMIT: dict[str, Any] = {"limit": 200}


class Shifted(Plain):
    """Has the labels from 1 on."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).roll(1, 1)


class OfBytes(nn.Module):
    """A network for pixels from 0 to 255, which gets some from 0 to 1."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = networks.network("convolutional")

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images / 255)
        return logits


def found(row: Any, *codes: str) -> dict[str, Warning]:
    return {one.code: one for one in row.warnings if one.code in codes}


def test_a_model_with_labels_from_one_is_no_better_than_a_guess(bench: Bench) -> None:
    clean, attacked = bench.run(Shifted(), {"name": "clean"}, SQUARE, **LIMIT).evaluations
    codes = ("below_chance", "constant_prediction")
    (told,) = found(clean, *codes).values()
    assert (told.code, told.severity) == ("below_chance", "caution")
    assert told.evidence == {"accuracy": clean.metrics["top1"].value, "chance": 0.1, "n": 200}
    assert told.evidence["accuracy"] < 0.1
    assert "labels that begin at 1" in told.message
    (grave,) = found(attacked, *codes).values()
    assert (grave.code, grave.severity, grave.evidence) == ("below_chance", "invalid", told.evidence)


def test_a_model_that_always_answers_alike_is_told_without_a_clean_row(bench: Bench) -> None:
    (row,) = bench.run(OfBytes(), SQUARE, **LIMIT).evaluations
    told = found(row, "constant_prediction")["constant_prediction"]
    assert told.severity == "invalid"
    assert told.evidence["predicted"] >= 0.99
    assert told.evidence["labelled"] < 0.2
    assert "pixels of 0 to 255 in place of 0 to 1" in told.message
    # It looks robust.
    assert row.metrics["attack_success_rate"].value == 0


def test_a_plain_model_has_neither(bench: Bench) -> None:
    rows = bench.run(Plain(), {"name": "clean"}, SQUARE, {"name": "top1"}, **LIMIT).evaluations
    codes = ("below_chance", "constant_prediction", "gradient_free_only", "tiny_gradients")
    assert [found(row, *codes) for row in rows] == [{}] * 3


def test_an_attack_without_gradients_alone_is_an_upper_bound(bench: Bench) -> None:
    codes = ("gradient_free_only", "tiny_gradients")
    clean, square = bench.run(Masked(), {"name": "clean"}, SQUARE, **LIMIT).evaluations
    assert found(clean, *codes) == {}
    (told,) = found(square, *codes).values()
    assert (told.code, told.severity) == ("gradient_free_only", "caution")
    assert told.evidence == {"examples": 16, "zero": 16, "tiny": 16}
    assert "upper bound" in told.message
    assert "bpda" in told.message
    bypassed = {"name": "bpda", "params": {"job": "plain", "epsilon": "24/255", "steps": 5}}
    rows = bench.run(Masked(), SQUARE, bypassed, others={"plain": Plain()}, **LIMIT).evaluations
    assert [found(row, *codes) for row in rows] == [{}, {}]
    assert rows[1].metrics["top1"].value < square.metrics["top1"].value


def test_only_a_transferred_gradient_goes_around() -> None:
    evidence: Any = [{"first_gradients": {"examples": 4, "zero": 4, "tiny": 0}}]
    codes = [
        [one.code for one in of_gradients(evidence, "square", attacks, "images")]
        for attacks in (["square"], ["square", "bpda"], ["square", "pgd"])
    ]
    assert codes == [["gradient_free_only"], [], ["gradient_free_only"]]


@pytest.mark.parametrize(("tiny", "due"), [(8, False), (9, True)])
def test_gradients_are_tiny_where_most_are(tiny: int, due: bool) -> None:
    evidence: Any = [{"first_gradients": {"examples": 16, "zero": 2, "tiny": tiny}}, {}]
    for attack in ("pgd", "square", "autoattack"):
        codes = [one.code for one in of_gradients(evidence, attack, [attack], "images")]
        assert codes == (["tiny_gradients"] if due else [])
    assert list(of_gradients(evidence, "bpda", ["bpda"], "images")) == []
    assert list(of_gradients([{}, {}], "pgd", ["pgd"], "images")) == []
    assert list(of_gradients([], "pgd", ["pgd"], "images")) == []


def test_chance_is_of_the_classes_of_the_data_or_else_of_the_labels() -> None:
    answers = Answers(50, 200, (0.2, 0.31), dict.fromkeys(range(4), 50), {}, 200, attacked=False)
    (told,) = of_answers(answers, None, guesses=False, noun="texts")
    assert (told.code, told.severity) == ("chance_not_excluded", "caution")
    assert "95 % interval [20, 31], which includes a guess among the classes, 25 %" in told.message
    assert list(of_answers(answers, None, guesses=True, noun="texts")) == []
    assert list(of_answers(answers, 10, guesses=False, noun="texts")) == [], "of ten classes"
    low = Answers(44, 200, (0.17, 0.28), dict.fromkeys(range(4), 50), {}, 200, attacked=True)
    (told,) = of_answers(low, None, guesses=False, noun="texts")
    assert (told.evidence["chance"], told.severity) == (0.25, "invalid")
    assert "unattacked texts" in told.message
    assert list(of_answers(low, 10, guesses=False, noun="texts")) == []
    assert list(of_answers(None, 10, guesses=False, noun="texts")) == []


@pytest.mark.parametrize(
    ("attack", "params", "due"),
    [
        ("pgd", {"loss": "ce"}, True),
        ("pgd", {"loss": "margin"}, False),
        ("apgd_ce", {}, True),
        ("fgsm", {}, True),
        ("apgd_dlr", {}, False),
        ("autoattack", {}, False),
        ("square", {}, False),
    ],
)
def test_a_saturated_cross_entropy_is_told(attack: str, params: dict[str, Any], due: bool) -> None:
    for saturated, found in ((8, False), (9, due)):
        seen = {"examples": 16, "zero": 0, "tiny": 0, "saturated": saturated}
        evidence: Any = [{"first_gradients": seen}]
        codes = [one.code for one in of_gradients(evidence, attack, [attack], "images", params)]
        assert codes == (["saturated_loss"] if found else [])
    old: Any = [{"first_gradients": {"examples": 16, "zero": 0, "tiny": 0}}]
    assert list(of_gradients(old, attack, [attack], "images", params)) == []


@pytest.mark.parametrize(
    ("held", "due"),
    [
        ({2: 20}, True),
        ({2: 19}, True),
        ({2: 18}, False),
        ({2: 20, 0: 1}, False),
        ({0: 12, 1: 14, 2: 20}, False),
        ({}, False),
        (None, False),
    ],
)
def test_an_attacked_model_that_answers_alike_is_told(held: dict[int, int] | None, due: bool) -> None:
    answers = Answers(55, 60, (0.8, 0.96), dict.fromkeys(range(3), 20), {}, 60, True, held)
    told = list(of_answers(answers, 3, guesses=False, noun="images"))
    assert [one.code for one in told] == (["one_class_under_attack"] if due else [])
    if due:
        assert "of the 20 images of class 2 and 0 of the 40 others" in told[0].message
