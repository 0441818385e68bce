"""Validation during a training: what is left for it, how the model does on it, which weights are kept.

The validation share of the training set is never trained on; the test set plays no part.

Legend: B examples of a batch, K classes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

Logits = Callable[[Tensor], Tensor]
"""The model in eval mode: what it reads, (B, ...), to logits (B, K)."""
Judge = Callable[[Logits], Tensor]
"""Sums over this process's part of the examples: cross-entropy, correct ones, examples; float64 (3,)."""


def validation_split(
    name: str, ids: Sequence[str], labels: Sequence[int], share: float, seed: int
) -> tuple[list[int], list[int]]:
    """Indices for training and validation, stratified, keyed by seed and example id (unique).

    Of a class with k >= 2 examples, round(share * k), at least one and not all, with the smallest keys are
    for validation; a single example is for training. The share is in (0, 0.5]; ids and labels are (n,).
    Raises ValueError: no class has two examples.
    """
    by_class: dict[int, list[int]] = {}
    for index, label in enumerate(labels):
        by_class.setdefault(label, []).append(index)

    def key(index: int) -> bytes:
        return hashlib.sha256(f"validation/{seed}/{name}/{ids[index]}".encode()).digest()

    chosen: set[int] = set()
    for members in by_class.values():
        count = min(max(round(share * len(members)), 1), len(members) - 1)
        chosen.update(sorted(members, key=key)[:count])
    if not chosen:
        raise ValueError(
            f"validation is {share}, but no class of the training set of {name!r} has two examples: "
            "set validation to 0"
        )
    return [index for index in range(len(ids)) if index not in chosen], sorted(chosen)


def judge_of(
    load: Callable[[Sequence[int]], tuple[Tensor, Tensor]],
    count: int,
    *,
    batch_size: int,
    device: torch.device,
    rank: int = 0,
    processes: int = 1,
    progress: Callable[[int], None] = lambda _: None,
) -> Judge:
    """A judge of a set's examples; every process of a training judges its part.

    `load` takes row numbers, below `count`, to the model's input, (B, ...), and labels, int64 (B,), on the
    CPU; `rank` is in [0, processes); `progress` takes the number of examples that all have judged.
    """
    rows = range(rank, count, processes)

    def judge(logits_of: Logits) -> Tensor:
        sums = torch.zeros(3, dtype=torch.float64)
        for first in range(0, len(rows), batch_size):
            inputs, labels = load(rows[first : first + batch_size])
            logits = logits_of(inputs.to(device)).double().cpu()
            loss = functional.cross_entropy(logits, labels, reduction="sum")
            sums += torch.stack([loss, (logits.argmax(dim=1) == labels).sum(), torch.tensor(len(labels))])
            progress(min(count, (first + len(labels)) * processes))
        return sums.to(device)

    return judge


class Judgement(NamedTuple):
    """Mean loss (cross-entropy without smoothing) and accuracy on the judged examples."""

    loss: float
    accuracy: float

    @classmethod
    def of(cls, sums: Tensor) -> Judgement:
        """From the sums of all processes, each as a `Judge` gives them."""
        loss, correct, count = sums.tolist()
        return cls(loss / count, correct / count)

    def better_than(self, other: Judgement) -> bool:
        """Higher accuracy; of equal ones, lower loss."""
        return (self.accuracy, -self.loss) > (other.accuracy, -other.loss)


@dataclass(frozen=True)
class Best:
    """The best weights so far."""

    step: int  # done before the judgement
    loss: float
    accuracy: float  # of the judgement
    weights: Mapping[str, Tensor]  # state dict, on the CPU
    average: Mapping[str, Tensor] | None  # averaged weights, if the recipe averages

    @classmethod
    def of(cls, step: int, judgement: Judgement, classifier: nn.Module, average: nn.Module | None) -> Best:
        """Copies the weights."""
        return cls(step, *judgement, copied(classifier), None if average is None else copied(average))

    def put_back(self, classifier: nn.Module, average: nn.Module | None) -> None:
        """Loads the kept weights into the modules that they came from."""
        classifier.load_state_dict(self.weights)
        if average is not None:
            assert self.average is not None
            average.load_state_dict(self.average)

    def state(self) -> dict[str, Any]:
        """Tensors and plain values, for a checkpoint; `Best(**state)` makes it again."""
        return asdict(self)


def copied(module: nn.Module) -> dict[str, Tensor]:
    """Copies of a module's weights and buffers, on the CPU."""
    return {name: tensor.detach().cpu().clone() for name, tensor in module.state_dict().items()}
