"""What a model answers before an attack: are the answers better than a guess, and are there two of them?

Attack, accuracy and calibration tables all have these answers in their rows. A row under attack is judged by
the answers before it: the label where the example was right, and else the prediction, since an attack of the
worst case leaves wrong examples alone.

Legend: n examples, K classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.service.metrics.statistics.intervals import wilson

UNKNOWN = -1
# Of a guess among the K classes an accuracy is told apart where its interval ends above 1/K plus this share
# of the way from there to 1; below it, an interval that reaches 1/K is a guess.
MARGIN = 0.05
CONSTANT, VARIED = 0.99, 0.95  # At least this share of predictions in a class, at most this share of labels
MIN_OTHERS, MIN_ANSWERS = 5, 20  # Fewer examples of other labels, or fewer examples at all, may be chance.


@dataclass(frozen=True)
class Answers:
    """Answers to unattacked examples."""

    right: float  # How many of `total` answers are right
    total: int  # Answers: examples, or pixels
    bounds: tuple[float, float]  # The 95 % interval of right / total
    labels: Mapping[int, int]  # How often each class is the label, by class
    predictions: Mapping[int, int]  # Of each class; what is not known or not finite is in none
    examples: int  # n
    attacked: bool  # Whether the metrics of the row are of attacked examples
    held: Mapping[int, int] | None = None  # Examples that are right under the attack, by label; None: unknown

    def no_better_than(self, chance: float) -> bool:
        """Whether the accuracy is below a guess of this probability, or cannot be told from it."""
        # The 95 % interval reaches or lies below `chance`, and ends within `MARGIN` of it.
        low, high = self.bounds
        return low <= chance and high <= chance + MARGIN * (1 - chance)

    def includes(self, chance: float) -> bool:
        """Whether the 95 % interval reaches this guess or lies below; of fewer than 20 examples never."""
        return self.examples >= MIN_ANSWERS and self.bounds[0] <= chance

    @property
    def only_held(self) -> int | None:
        """The class of nearly all examples that hold under the attack, if nearly all of it hold; or None."""
        if self.attacked and self.held:
            name, count = max(self.held.items(), key=lambda item: item[1])
            others = sum(self.held.values()) - count
            alone = count >= MIN_OTHERS and others <= (1 - CONSTANT) * self.total
            whole = count >= VARIED * self.labels[name]
            return name if alone and whole and self.total - self.labels[name] >= MIN_OTHERS else None
        return None

    @property
    def constant(self) -> int | None:
        """The class that nearly every answer is, though the labels differ; None if there is no such class."""
        if self.examples < MIN_ANSWERS or not self.predictions:
            return None
        name, count = max(self.predictions.items(), key=lambda item: item[1])
        most = max(self.labels.values())
        others = self.total - most
        varied = most <= VARIED * self.total and others >= MIN_OTHERS
        return name if count >= CONSTANT * self.total and varied else None


def classified(
    rows: Mapping[str, Sequence[Any]], right: Sequence[Any], *, attacked: bool, known: bool
) -> Answers:
    """Answers from the rows of classified examples, one a row: `label` and perhaps `prediction`, (n,) each.

    `right` says whether an example was right before any attack; `attacked`, whether the metrics are of
    attacked examples; `known`, whether the prediction of an example that was wrong is its unattacked answer.
    """
    flags, labels = list(map(bool, right)), rows["label"]
    wrong = rows["prediction"] if known else [UNKNOWN] * len(flags)
    answers = [label if flag else other for label, flag, other in zip(labels, flags, wrong, strict=True)]
    predictions = Counter(answer for answer in answers if answer != UNKNOWN)
    n, held = len(flags), None
    if attacked and {"clean_correct", "correct"} <= rows.keys():
        held = Counter(label for label, holds in zip(labels, rows["correct"], strict=True) if holds)
    return Answers(sum(flags), n, wilson(sum(flags), n), Counter(labels), predictions, n, attacked, held)
