"""Random search without gradients: one proposal for every slot in each step, kept where the margin falls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch

from assay.attacks.adversarial.kernels.losses import margin
from assay.attacks.kernel import Examples, Forward, Setting, State, begin, record
from assay.attacks.passes import ask
from assay.attacks.threat import as_column

# Of the published schedules, which other budgets have in proportion.
SCHEDULE = 10_000


def check_budget(queries: int, share: float, **sizes: int) -> None:
    """Refuses a budget or a size below 1, and a share outside (0, 1]."""
    for name, value in {**sizes, "queries": queries}.items():
        if value < 1:
            raise ValueError(f"{name} is {value}, it must be at least 1")
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}, it must be above 0 and at most 1")


@dataclass(frozen=True)
class RandomSearch(ABC):
    """The search; subclasses propose.

    Keys of its own: `highest`, the objective of the best proposal, float64 (B,), NaN before the first; and
    each of `KEPT` with its proposal under `proposed_`.
    """

    queries: int  # Proposals, the start included
    share: float  # Of what may change, the share that the first proposals change
    KEPT: ClassVar[tuple[str, ...]]
    name: ClassVar[str]
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = False
    ball: ClassVar[None] = None

    @abstractmethod
    def _nothing(self, examples: Examples) -> State:
        """The keys of `KEPT` before the first proposal, each (B, ...)."""

    @abstractmethod
    def _propose(self, setting: Setting, state: State) -> None:
        """Sets `adversarial` and the `proposed_` keys."""

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of new slots, at the image."""
        del setting  # nothing is drawn yet
        state = begin(examples, examples.labels, examples.images)
        kept = self._nothing(examples)
        highest = torch.full_like(state["objective"], torch.nan)
        proposed = {f"proposed_{key}": value for key, value in kept.items()}
        return state | kept | proposed | {"highest": highest}

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Proposes, evaluates, and keeps what is better."""
        self._propose(setting, state)
        goal = state["goal"]
        logits, values = ask(model, state, lambda logits: margin(logits, goal))
        record(setting, state, logits, values)
        better = ~(values <= state["highest"])  # NaN is below everything
        for key in self.KEPT:
            proposed = state[f"proposed_{key}"]
            state[key] = torch.where(as_column(better, proposed), proposed, state[key])
        state["highest"] = torch.where(better, values, state["highest"])
        state["iteration"] = state["iteration"] + 1
        state["done"] = state["iteration"] >= self.queries

    def scaled(self, query: int) -> int:
        """The query's place in the published schedule."""
        return int(query / self.queries * SCHEDULE)
