"""Noise on tokens.

Each token that is there (not padding) is replaced with probability `rate`, by one drawn evenly from all other
tokens but padding. For Long Range Arena's images that is impulse noise of grey levels; for data without words
it is what changed words are for texts. In ListOps a replaced token may change the value, or leave no list,
while the label stays: there the accuracy tells how much of its input the model uses, not how robust it is.

    t'_i = with probability `rate` a token drawn from all but t_i and padding, else t_i

Draws are keyed by seed and example, one for each example. Two rates share them: the tokens replaced at the
lower one are replaced at the higher one too, by the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Interval
from torch import Tensor

from assay.attacks.randomness import Randomness
from assay.models.layers.language import PAD
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import classify
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["token_noise"]

TASKS = ("sequence",)
TABLE = "classification"
PASSES = ("1", "0")
FACTS = {"random_changes": True}


def token_noise(*, rate: Annotated[float, "strength", Interval(ge=0, le=1)] = 0.1) -> Evaluation:
    """Accuracy on sequences with randomly replaced tokens, one draw for each example.

    Args:
        rate: Probability that a token is replaced; padding stays.
    """
    return _TokenNoise(rate)


@dataclass(frozen=True)
class _TokenNoise:
    rate: float

    def measure(self, shard: Shard) -> ExampleOutcomes:
        """One row per example."""
        randomness = Randomness(shard.seed, "token_noise")

        def noisy(rows: Sequence[int]) -> Tensor:
            tokens = shard.images(rows)
            ids, longest = [shard.ids[row] for row in rows], tokens[0].numel()
            draws = randomness.uniform(ids, (longest, 2), dtype=torch.float64)
            changed = [
                replaced(own, self.rate, shard.data.channels, drawn)
                for own, drawn in zip(tokens, draws, strict=True)
            ]
            return torch.stack(changed)

        return classify(shard.classifier, noisy, shard.labels, shard.ids, sequences=True, **shard.running)


def replaced(tokens: Tensor, rate: float, vocabulary: int, draws: Tensor) -> Tensor:
    """A sequence, int64 (..., N) in [0, V), with tokens replaced at a rate; PAD behind the end stays.

    The vocabulary counts padding and is at least 3. The draws are uniform in (0, 1), two for each token,
    float64 (at least N, 2); tokens that are there take the first ones in order: the amount of padding depends
    on the batch.
    """
    present = tokens != PAD
    old = tokens[present]
    draws = draws[: len(old)]
    # A step of 1 to V - 2 around the circle of the ids 1 to V - 1 never ends at the old token.
    steps = 1 + (draws[:, 1] * (vocabulary - 2)).long()
    new = 1 + (old - 1 + steps) % (vocabulary - 1)
    result = tokens.clone()
    result[present] = torch.where(draws[:, 0] < rate, new, old)
    return result
