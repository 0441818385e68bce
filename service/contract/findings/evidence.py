"""What the evaluations of a shard tell beside their outcomes: the merge makes warnings of it."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class ReducedBatch(TypedDict):
    """Examples in a batch, of a training in a pass: as `asked`, and as `used` because memory was short."""

    asked: int
    used: int
    batch_norm: NotRequired[bool]  # whether the model takes the statistics of a pass


class InactivePursuit(TypedDict):
    """The `largest_share` of S that is not 0, over layers and iterations, in so many `examples`."""

    largest_share: float
    examples: int


class Counts(TypedDict, total=False):
    """Examples by subject of a warning; a stage counts subjects that it can detect, mostly `zero_gradient`.

    `refused` had a success that the second judgement refused; attacks then broke `refused_then_broken`.
    """

    nonfinite: int
    zero_gradient: int
    nonfinite_gradient: int
    unconverged: int
    unverified: int
    out_of_ball: int
    out_of_box: int
    refused: int
    refused_then_broken: int


class StageEvidence(Counts):
    """A stage of an attack in a shard: it has `broken` some of `n` examples.

    `number` is the stage's place in its ensemble; a screened stage appears twice. `expected` is the expected
    number of right answers to all examples of the shard after the stage, where it was estimated.
    """

    name: str
    number: NotRequired[int]
    n: int
    broken: int
    forward: int
    backward: int
    seconds: float
    expected: NotRequired[float]


class ProbeEvidence(TypedDict, total=False):
    """Images with changed logits, and the largest change as a share of the largest logit of its image.

    `probabilities` counts the examples asked, where the model returns probabilities in place of logits.
    """

    probabilities: int
    random_outputs: int
    random_outputs_change: float
    batch_dependent: int
    batch_dependent_change: float


class FutureLeak(TypedDict):
    """The loss of `words`, among the `compared` words of a language model, depends on later words.

    `change` is the largest change of a loss in nats, None where infinite. `by_construction` names parts of
    the model defined to look at later words; the numbers are then 0 where no loss was seen to change.
    """

    words: int
    compared: int
    change: float | None
    by_construction: NotRequired[list[str]]


class GradientEvidence(TypedDict):
    """Counts among the first `examples`: with a gradient of `zero`, with a gradient `tiny` against changes.

    For `saturated` examples the softmax of the answer is 1 as rounded.
    """

    examples: int
    zero: int
    tiny: int
    saturated: NotRequired[int]


class JudgementEvidence(TypedDict):
    """The number of `iterates` with gradients in bfloat16, and how many were judged `in_float32` too."""

    iterates: int
    in_float32: int
    bound: float | None  # of the error of a difference of logits; None where it was not finite
    above_bound: int  # makes the attack begin again, with every iterate in float32


class CaptureEvidence(TypedDict):
    """Passes of a model that were replayed as graphs of the device, and why no more were captured."""

    replays: int
    refused: str | None


class CompileEvidence(TypedDict):
    """Passes by code of a `compiler` (None without code), replays too, and why no more were compiled."""

    passes: int
    compiler: str | None
    refused: str | None
