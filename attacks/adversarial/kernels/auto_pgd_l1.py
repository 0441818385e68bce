"""Auto-PGD in L1: sparse steps whose sparsity adapts, in balls that shrink to the wanted one.

Croce and Hein 2021, "Mind the Box: l1-APGD for Sparse Adversarial Attacks on Image Classifiers", algorithm 1
and section 4.3. P projects onto the L1 ball and the box at once (`l1_projection.py`); the step goes along the
k largest entries of the gradient g:

    x_{j+1} = P(x_j + s sign(g_k) / |sign(g_k)|_1)

A run takes 30 % of its steps at three times the radius, 30 % at twice and the rest at the radius itself, each
part from the projection of the best point of the part before; only iterates of the last part count. After
every 4 % of a part's steps k becomes the number of changed entries of the best point over 1.5. Where that
number has fallen by 5 % since the last time, the step size is reset to the radius and the ascent goes on from
the best point; else it is divided by 1.5, down to a tenth of the radius.

Details as in AutoAttack's code (package pyautoattack), see `auto_pgd.py`. No momentum.

B slots, D entries of an image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.auto_pgd import AutoPGD
from assay.attacks.adversarial.kernels.l1_projection import l1_projected
from assay.attacks.kernel import Examples, Forward, Setting, State, record
from assay.attacks.passes import evaluate
from assay.attacks.sending import sent
from assay.attacks.threat import as_column

RADII = (3.0, 2.0, 1.0)
SHARES = (0.3, 0.3)
SPARSER = 1.5
CHECK_SHARE = 0.04
FEWER = 0.95
MIN_STEP = 0.1
# With fewer steps the last part may have none.
MIN_STEPS = 5


def parts(steps: int) -> tuple[int, ...]:
    """The steps of each part of a run."""
    first = [math.ceil(share * steps) for share in SHARES]
    return (*first, steps - sum(first))


@dataclass(frozen=True)
class AutoPGDL1(AutoPGD):
    """Auto-PGD in L1.

    Keys of the state beside the keys of `AutoPGD`, whose `iteration` counts within a part:

        part          (CPU) number of the part of the run
        share         k as a share of all entries, (B,)
        changed       entries changed by the best point at the last checkpoint, (B,)
    """

    def __post_init__(self) -> None:
        if self.steps < MIN_STEPS:
            raise ValueError(f"steps is {self.steps}, in L1 it must be at least {MIN_STEPS}")

    @cached_property
    def _parts(self) -> Tensor:
        return torch.tensor(parts(self.steps))

    @cached_property
    def _radii(self) -> Tensor:
        return torch.tensor(RADII, dtype=torch.float64) * self.ball.epsilon

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of new slots, at the first random start."""
        level = torch.zeros(len(examples.rows), dtype=torch.float64, device=examples.images.device)
        return super().start(setting, examples) | {
            "part": torch.zeros_like(examples.rows),
            "share": level,
            "changed": level,
        }

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Evaluates the present iterates; moves on, begins the next part or run, or ends."""
        if state["fresh"].any():
            state["part"][state["fresh"]] = 0
            self._begin_runs(setting, state)
        if self._candidates and state["unordered"].any():
            self._order(model, state)
        over = state["iteration"] >= self._parts[state["part"]]
        objective = self.loss.objective(state["goal"], state["aim"])
        logits, values, gradient = evaluate(model, state, objective, ~over, self.expectation)
        last = state["part"] == len(RADII) - 1
        if last.any():
            record(setting, state, logits, values, last)
        self._note(state, values, gradient, state["iteration"] == 0)
        if not over.all():
            gradient = self._adapt(state, gradient)
            self._ascend(setting, state, gradient, ~over)
        if over.any():
            self._next_parts(setting, state, over & ~last)
            self._end_runs(state, over & last)

    def _note(self, state: State, values: Tensor, gradient: Tensor, begun: Tensor) -> None:
        better, first = values > state["run_loss"], bool(begun.any())
        if first:
            begun = sent(begun, values)
            better = better | begun
        column = as_column(better, gradient)
        state["run_best"] = torch.where(column, state["adversarial"], state["run_best"])
        state["run_gradient"] = torch.where(column, gradient, state["run_gradient"])
        state["run_loss"] = torch.where(better, values, state["run_loss"])
        if first:
            changed = self._changed(state)
            radius = sent(self._radii[state["part"]].to(state["step_size"].dtype), state["step_size"])
            state["changed"] = torch.where(begun, changed, state["changed"])
            state["share"] = torch.where(begun, self._share(changed, state), state["share"])
            state["step_size"] = torch.where(begun, radius, state["step_size"])

    @staticmethod
    def _changed(state: State) -> Tensor:
        """How many entries of the best points differ from the images, float64 (B,)."""
        return (state["run_best"] != state["images"]).flatten(1).sum(1).double()

    @staticmethod
    def _share(changed: Tensor, state: State) -> Tensor:
        return changed / state["images"][0].numel() / SPARSER

    def _adapt(self, state: State, gradient: Tensor) -> Tensor:
        """At checkpoints adapts sparsity and step size; goes back to the best point where it is sparser."""
        window = (CHECK_SHARE * self._parts[state["part"]]).long().clamp(min=1)
        due = (state["iteration"] > 0) & (state["iteration"] % window == 0)
        if not due.any():
            return gradient
        here = sent(due, gradient)
        changed = self._changed(state)
        # In float32, as the library compares.
        sparser = here & ((changed.float() / state["changed"].float()) < FEWER)
        radius = sent(self._radii[state["part"]].to(state["step_size"].dtype), state["step_size"])
        shorter = torch.maximum(state["step_size"] / SPARSER, radius * MIN_STEP)
        state["step_size"] = torch.where(here, torch.where(sparser, radius, shorter), state["step_size"])
        state["share"] = torch.where(here, self._share(changed, state), state["share"])
        state["changed"] = torch.where(here, changed, state["changed"])
        column = as_column(sparser, gradient)
        state["adversarial"] = torch.where(column, state["run_best"], state["adversarial"])
        return torch.where(column, state["run_gradient"], gradient)

    def _ascend(self, setting: Setting, state: State, gradient: Tensor, moving: Tensor) -> None:
        images, points = state["images"], state["adversarial"]
        flat = gradient.flatten(1)
        entries = flat.shape[1]
        # Place of the smallest entry that moves, in rising order; in float32, as the library rounds.
        place = ((1.0 - state["share"].float()) * entries).clamp(min=0, max=entries - 1).long()
        size = flat.abs()
        largest = size.topk(int(entries - place.amin()), dim=1).values
        least = largest.gather(1, (entries - 1 - place)[:, None])
        sparse = (gradient * (size >= least).view_as(gradient)).sign()
        length = as_column(sparse.flatten(1).abs().sum(1) + 1e-10, images)
        moved = points + as_column(state["step_size"], images) * sparse / length
        radius = sent(self._radii[state["part"]].to(images.dtype), images)
        inside = l1_projected(images, moved, radius, setting.box)
        state["adversarial"] = torch.where(as_column(sent(moving, images), images), inside, points)
        state["iteration"] += moving

    def _next_parts(self, setting: Setting, state: State, ended: Tensor) -> None:
        if not ended.any():
            return
        again = ended.nonzero().flatten()
        state["part"][again] += 1
        state["iteration"][again] = 0
        index = sent(again, state["images"])
        images, best = state["images"][index], state["run_best"][index]
        radius = sent(self._radii[state["part"][again]].to(images.dtype), images)
        first = l1_projected(images, best, radius, setting.box)
        state["adversarial"] = state["adversarial"].index_copy(0, index, first)

    def _first_iterate(
        self, setting: Setting, rows: Tensor, restart: Tensor, target: Tensor, images: Tensor
    ) -> Tensor:
        def draw() -> Tensor:
            return setting.draw("normal", rows, images, restart=restart.tolist(), target=target.tolist())

        first = l1_projected(images, images + draw(), RADII[0] * self.ball.epsilon, setting.box)
        if self.backend == "compatible":
            for _ in RADII:  # the library draws a start in each part, and does not use it
                draw()
        return first
