"""Auto-PGD on several target classes of each example, with a budget that grows where it may pay.

A slot is an example, with one lane for each of its targets, attacked in the same passes; all leave as soon as
one breaks the example. Lanes run Auto-PGD (`auto_pgd.py`) on the margin m = z_t - z_y, which is 0 at the
boundary, in rounds:

    round 0          `steps` steps on the wrong class with the highest logit, from a random start
    round 1          `steps` steps on each of the other targets, from the same start
    later rounds     `2 steps` steps from the best point of the lane, with step size epsilon at first, for the
                     lanes that may still reach the boundary

With m_0 the margin at the image, m_h the highest of a lane halfway through its last round and m_1 the highest
at its end, the lane goes on where

    -m_1 <= CLOSE * -m_0    or    -m_1 <= FORECAST * (m_1 - m_h)

that is, where it has come close, or would get there at the rate of the last half round. Both hold alike for
scaled logits.

With more than `many` classes, the other targets are those that a linear model reaches first among
`candidates` classes (`malt.py`), chosen after round 0, which breaks most breakable examples.

B slots, K lanes (targets) of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.auto_pgd import AutoPGD, windows
from assay.attacks.adversarial.kernels.losses import Targeted, targeted_margin
from assay.attacks.adversarial.kernels.malt import linear_distances, nearest_first
from assay.attacks.kernel import Examples, Forward, Setting, State, begin
from assay.attacks.sending import sent
from assay.attacks.threat import Ball

CLOSE, FORECAST = 0.25, 2.0
# Keys of an Auto-PGD state that all lanes of a slot share.
SHARED = ("row", "images", "goal", "truth", "round")
PREFIX = "lane_"
# The first of the later rounds.
LATER = 2


def steps_of_round(steps: int, number: Tensor) -> Tensor:
    """Gradient steps of the rounds of these numbers."""
    return steps * (1 + (number >= LATER).long())


@dataclass(frozen=True)
class _Rounds(AutoPGD):
    """Auto-PGD in rounds of different lengths; a slot of it is a pair of an example and a target."""

    # Later rounds begin at the best point, which may be a round's last one.
    goes_on: ClassVar[bool] = True

    def _length(self, state: State) -> Tensor:
        return steps_of_round(self.steps, state["round"])

    def _windows(self, state: State) -> Tensor:
        short, long = windows(self.steps), windows(2 * self.steps)
        early, iteration = state["round"] < LATER, state["iteration"]
        return torch.where(early, short[iteration.clamp(max=self.steps)], long[iteration])

    def _first_size(self, state: State) -> Tensor:
        sizes = state["step_size"]
        shares = sent(torch.where(state["round"] < LATER, 2.0, 1.0).to(sizes.dtype), sizes)
        return shares * self.ball.epsilon


@dataclass(frozen=True)
class PairedAscent:
    """Auto-PGD on the targets of each example side by side.

    Keys of the state beside the keys of `begin`:

        round         (CPU) present round
        active        (CPU) lanes that take part in it, (B, K)
        unordered     (CPU) targets are still to be chosen by their distance in a linear model
        candidates    wrong classes with the highest logits, without the very highest, (B, T)
        clean_logits  logits of the unattacked image, (B, classes)
        at_image      the loss of each lane at the unattacked image, (B, K)
        halfway       the highest loss of each lane in the middle of the round, (B, K)
        lane_...      the keys of an Auto-PGD state, (B, K, ...)
    """

    name: str
    ball: Ball
    targets: int
    steps: int
    rounds: int
    candidates: int
    many: int
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = True

    @cached_property
    def _lane(self) -> _Rounds:
        return _Rounds(self.name, self.ball, Targeted(1, "margin"), self.steps)

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of new slots; all lanes begin at the same random point."""
        n, classes = len(examples.rows), examples.logits.shape[1]
        lanes = min(self.targets, classes - 1)
        choice = self.candidates if classes > self.many else 0
        wrong = Targeted(lanes, "margin", choice).targets(examples.labels, examples.logits)
        of_lane = self._lane.start(setting, examples)
        first = of_lane["adversarial"]
        state = begin(examples, examples.labels, first) | {
            PREFIX + key: values.unsqueeze(1).expand(-1, lanes, *values.shape[1:]).contiguous()
            for key, values in of_lane.items()
            if key not in SHARED
        }
        state |= {
            "round": torch.zeros(n, dtype=torch.int64),
            "active": torch.arange(lanes).expand(n, -1) == 0,
            "unordered": torch.full((n,), choice > 0 and lanes > 1),
            "candidates": wrong[:, 1:],
            "clean_logits": examples.logits,
            "halfway": torch.zeros_like(state[PREFIX + "run_loss"]),
        }
        return state | self._aimed(state, wrong[:, :lanes])

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Takes one step in every active lane, and decides at the end of a round which go on."""
        if state["refused"].any():
            self._tell_lanes(state)
        if (waiting := state["unordered"] & (state["round"] > 0)).any():
            self._order(model, state, waiting)
        pairs = state["active"].flatten().nonzero().flatten()
        inner = self._pairs(state, pairs, state["active"].shape[1])
        self._lane.step(setting, model, inner)
        self._put_back(state, inner, pairs)
        state["iteration"] += 1
        self._combine(state)
        length = steps_of_round(self.steps, state["round"])
        middle = state["iteration"] == length // 2
        if middle.any():
            now = sent(middle[:, None] & state["active"], state["images"])
            state["halfway"] = torch.where(now, state[PREFIX + "run_loss"], state["halfway"])
        over = state["iteration"] > length
        if over.any():
            self._end_round(state, over)

    @staticmethod
    def _tell_lanes(state: State) -> None:
        refused, like = state["refused"][:, None], state[PREFIX + "refused"]
        state[PREFIX + "refused"] = refused.expand_as(like).contiguous()
        for key in ("demand", "broken"):
            whole, lanes = state[key][:, None], state[PREFIX + key]
            again = sent(refused > 0, lanes)
            state[PREFIX + key] = torch.where(again, whole.expand_as(lanes), lanes)

    def _aimed(self, state: State, targets: Tensor) -> State:
        clean, labels = state["clean_logits"], state["goal"]
        gaps = [targeted_margin(clean, labels, target) for target in targets.unbind(1)]
        return {
            PREFIX + "aim": targets,
            PREFIX + "targets": targets[:, :, None],
            "at_image": torch.stack(gaps, dim=1).double(),
        }

    def _order(self, model: Forward, state: State, waiting: Tensor) -> None:
        index = sent(waiting.nonzero().flatten(), state["images"])
        others = state["active"].shape[1] - 1
        images, labels, candidates = (state[key][index] for key in ("images", "goal", "candidates"))
        distances = linear_distances(model, images, labels, candidates, self.ball.norm)
        aim = state[PREFIX + "aim"]
        chosen = torch.cat([aim[index, :1], nearest_first(candidates, distances, others)], dim=1)
        state.update(self._aimed(state, aim.index_copy(0, index, chosen)))
        live = (~state["broken"][index]).long()
        state["forward"] = state["forward"].index_add(0, index, live)
        state["backward"] = state["backward"].index_add(0, index, live * candidates.shape[1])
        state["unordered"] = state["unordered"] & ~waiting

    def _pairs(self, state: State, pairs: Tensor, lanes: int) -> State:
        """The Auto-PGD state of these pairs, numbers b K + k on the CPU."""
        moved = sent(pairs, state["images"])

        def at(values: Tensor, place: Tensor, moved_place: Tensor) -> Tensor:
            return values[place if values.device.type == "cpu" else moved_place]

        slots, moved_slots = pairs // lanes, sent(pairs // lanes, state["images"])
        inner = {key: at(state[key], slots, moved_slots) for key in SHARED}
        for key in self._own(state):
            inner[key] = at(state[PREFIX + key].flatten(0, 1), pairs, moved)
        return inner

    def _put_back(self, state: State, inner: State, pairs: Tensor) -> None:
        moved = sent(pairs, state["images"])
        for key in self._own(state):
            whole = state[PREFIX + key]
            place = pairs if whole.device.type == "cpu" else moved
            state[PREFIX + key] = whole.flatten(0, 1).index_copy(0, place, inner[key]).view_as(whole)

    @staticmethod
    def _own(state: State) -> list[str]:
        return [key.removeprefix(PREFIX) for key in state if key.startswith(PREFIX)]

    @staticmethod
    def _combine(state: State) -> None:
        """Makes the best lane's iterate the slot's: a broken lane's, else with the highest loss."""
        fresh, broken = ~state["broken"], state[PREFIX + "broken"]
        objective = state[PREFIX + "objective"]
        place = torch.where(broken, torch.inf, objective.nan_to_num(-torch.inf)).argmax(1)
        rows = torch.arange(len(place), device=place.device)
        for key in ("best", "objective", "logits"):
            chosen, known = state[PREFIX + key][rows, place], state[key]
            state[key] = torch.where(fresh.view(-1, *[1] * (known.dim() - 1)), chosen, known)
        state["broken"] = state["broken"] | broken.any(1)
        # The other lanes of a broken slot stand still and count no passes.
        state[PREFIX + "broken"] = broken | state["broken"][:, None]
        for key in ("forward", "backward"):
            state[key] = state[key] + state[PREFIX + key].sum(1)
            state[PREFIX + key] = torch.zeros_like(state[PREFIX + key])
        for key in ("seen_gradient", "zero_gradient", "nonfinite_gradient"):
            state[key] = state[key] | state[PREFIX + key][:, 0]

    def _end_round(self, state: State, over: Tensor) -> None:
        slots, lanes = over.nonzero().flatten(), state["active"].shape[1]
        # A single lane has no round 1.
        number = state["round"][slots].clamp(min=int(lanes == 1))
        index = sent(slots, state["images"])
        now, half, clean = (state[key][index] for key in (PREFIX + "run_loss", "halfway", "at_image"))
        hopeful = ((now >= CLOSE * clean) | (-now <= FORECAST * (now - half))).cpu()
        active, others = state["active"][slots], torch.arange(lanes) > 0
        # After round 1 all lanes have had their first steps.
        tried = active | (number < LATER)[:, None]
        again = hopeful & tried & (number < self.rounds + LATER - 1)[:, None]
        again = torch.where((number == 0)[:, None], others, again)
        state["round"][slots] = number + 1
        state["iteration"][slots] = 0
        state["done"][slots] = ~again.any(1)
        state["active"][slots] = torch.where(again.any(1, keepdim=True), again, active)
        best = state[PREFIX + "run_best"][index]
        for key in ("adversarial", "previous"):
            state[PREFIX + key] = state[PREFIX + key].index_copy(0, index, best)
        for key in ("iteration", "done", "restart", "target", "fresh"):
            state[PREFIX + key][slots] = 0
