"""Answers to unattacked examples, from the rows of every table that has them."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.metrics.answers import MARGIN, Answers, classified
from assay.service.metrics.registry import TABLES
from assay.service.metrics.statistics.intervals import wilson
from assay.service.metrics.table import Context

LABELS = [0, 1, 2, 2]
BEFORE = {"label": LABELS, "clean_correct": [True, False, True, False], "prediction": [1, 0, 2, 0]}


def share(right: int, n: int) -> Answers:
    return Answers(right, n, wilson(right, n), {0: n}, {}, n, attacked=False)


@pytest.mark.parametrize(
    ("right", "n", "classes", "guess"),
    [
        (15, 355, 10, True),  # logits that are one class away
        (35, 355, 10, True),  # a guess
        (9, 355, 2, True),
        (0, 100, 1000, True),
        (60, 355, 10, False),
        (1, 8, 10, False),  # so few say nothing
        (0, 8, 10, False),
        (20, 40, 2, False),
        (5000, 10_000, 2, True),
        (100, 100, 10, False),
    ],
)
def test_a_guess_is_told_where_there_are_enough_examples(
    right: int, n: int, classes: int, guess: bool
) -> None:
    assert share(right, n).no_better_than(1 / classes) is guess


@pytest.mark.parametrize(
    ("right", "n", "classes", "included"),
    [(26, 60, 3, True), (30, 60, 3, False), (60, 355, 10, False), (8, 10, 2, False), (12, 20, 2, True)],
)
def test_an_interval_that_includes_chance_is_told_of_twenty_examples_or_more(
    right: int, n: int, classes: int, included: bool
) -> None:
    assert share(right, n).includes(1 / classes) is included


def test_what_holds_is_counted_by_class_where_an_attack_has_outcomes() -> None:
    rows = {**BEFORE, "correct": [True, False, False, False]}
    assert classified(rows, BEFORE["clean_correct"], attacked=True, known=True).held == {0: 1}
    assert classified(rows, BEFORE["clean_correct"], attacked=False, known=True).held is None


def test_the_margin_is_of_the_way_from_chance_to_one() -> None:
    chance = 0.5
    inside = Answers(5, 10, (0.4, chance + MARGIN / 2), {}, {}, 10, attacked=False)
    outside = Answers(5, 10, (0.4, chance + MARGIN / 2 + 1e-9), {}, {}, 10, attacked=False)
    better = Answers(5, 10, (chance + 1e-9, chance + 2e-9), {}, {}, 10, attacked=False)
    assert [one.no_better_than(chance) for one in (inside, outside, better)] == [True, False, False]


@pytest.mark.parametrize(
    ("predictions", "labels", "examples", "constant"),
    [
        ({3: 100}, {0: 50, 3: 50}, 100, 3),
        ({3: 99, 1: 1}, {0: 50, 3: 50}, 100, 3),
        ({3: 98, 1: 2}, {0: 50, 3: 50}, 100, None),
        ({3: 100}, {0: 5, 3: 95}, 100, 3),
        ({3: 100}, {0: 4, 3: 96}, 100, None),
        ({3: 20}, {0: 10, 3: 10}, 20, 3),
        ({3: 20}, {0: 4, 3: 16}, 20, None),
        ({3: 19}, {0: 10, 3: 9}, 19, None),
        ({}, {0: 50, 3: 50}, 100, None),
        ({3: 40}, {0: 60, 3: 40}, 100, None),  # the other answers are not known
    ],
)
def test_one_class_is_told_where_the_labels_differ(
    predictions: dict[int, int], labels: dict[int, int], examples: int, constant: int | None
) -> None:
    total = sum(labels.values())
    assert Answers(0, total, (0, 1), labels, predictions, examples, attacked=False).constant == constant


def test_the_answer_before_the_attack_is_the_label_where_it_was_right() -> None:
    found = classified(BEFORE, BEFORE["clean_correct"], attacked=True, known=True)
    assert (found.right, found.total, found.examples) == (2, 4, 4)
    assert (found.labels, found.predictions) == ({0: 1, 1: 1, 2: 2}, {0: 3, 2: 1})
    assert found.bounds == wilson(2, 4)
    unknown = classified(BEFORE, BEFORE["clean_correct"], attacked=True, known=False)
    assert unknown.predictions == {0: 1, 2: 1}


def answers(table: str, rows: dict[str, Any], **context: Any) -> Answers | None:
    return TABLES[table].unattacked(rows, Context(**context))


def test_wrong_answers_are_known_where_the_attack_left_them_alone() -> None:
    rows = BEFORE | {"correct": [False, False, True, False]}
    for table, context, known in (
        ("attack", {}, True),
        ("attack", {"params": {"epsilon": 1}}, True),
        ("attack", {"protocol": "paper"}, False),
        ("text_attack", {}, True),
        ("verified", {}, False),
    ):
        found = answers(table, rows, **context)
        assert found is not None
        assert (found.attacked, found.right) == (True, 2)
        assert found.predictions == ({0: 3, 2: 1} if known else {0: 1, 2: 1}), (table, context)
    drawn = answers("attack", rows | {"expected": [0.0] * 4, "clean_expected": [1.0] * 4})
    assert drawn is not None
    assert drawn.predictions == {0: 1, 2: 1}


def test_examples_that_the_evaluation_changes_are_not_judged() -> None:
    rows = BEFORE | {"correct": BEFORE["clean_correct"]}
    assert answers("classification", rows, params={"rate": 0.1}) is None
    plain = answers("classification", rows)
    assert plain is not None
    assert plain.attacked is False
    corrupted = answers("corrupted_classification", rows, params={"severities": [1]})
    assert corrupted is not None
    assert (corrupted.attacked, corrupted.right) == (True, 2)
    assert answers("stored_corruptions", {"id": ["a"], "label": [0], "corrupted": ["1"]}) is None


@pytest.mark.parametrize(
    ("table", "prefix"),
    [("segmentation", ""), ("corrupted_segmentation", ""), ("attacked_segmentation", "clean_")],
)
def test_pixels_of_unattacked_images_are_counted(table: str, prefix: str) -> None:
    n = 24
    target = [[60, 40]] * n
    mixed = [[50 + row % 3, 10] for row in range(n)]
    worst = {"ce_intersection": [[0, 0]] * n, "ce_predicted": [[40, 60]] * n, "intersection": [[0, 0]] * n}
    if prefix:
        worst |= {"predicted": [[40, 60]] * n}
    rows = {"target": target, f"{prefix}intersection": mixed, f"{prefix}predicted": [[90, 10]] * n}
    found = answers(table, rows | worst if prefix else rows)
    assert found is not None
    assert (found.right, found.total, found.examples) == (n * 61, n * 100, n)
    assert (found.labels, found.predictions) == ({0: n * 60, 1: n * 40}, {0: n * 90, 1: n * 10})
    assert 0.6 < found.bounds[0] < 0.61 < found.bounds[1] < 0.62
    assert found.attacked is (table != "segmentation")
    assert found.constant is None
    rows |= {f"{prefix}predicted": [[100, 0]] * n}
    alike = answers(table, rows | worst if prefix else rows)
    assert alike is not None
    assert alike.constant == 0


def test_images_without_a_class_have_no_answers() -> None:
    nothing = {"target": [[0, 0]] * 30, "intersection": [[0, 0]] * 30, "predicted": [[0, 0]] * 30}
    assert answers("segmentation", nothing) is None
