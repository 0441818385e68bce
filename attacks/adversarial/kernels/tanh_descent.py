"""The kernel of Carlini and Wagner's L2 attack: Adam on |perturbation|^2 plus c times a hinge on the logits.

Carlini and Wagner 2017, "Towards Evaluating the Robustness of Neural Networks", sections V and VI. The image
is x = low + (high - low) (tanh(m + a) + 1) / 2, with a = arctanh(0.999999 (2 x0 - 1)) of the unattacked x0 in
the box, and m descends |x - x0|^2 + c max(Z_y - max_(i != y) Z_i + confidence, 0); the difference is turned
around for a target. One search for each c.

The arithmetic is cleverhans 4.0's for a batch of a single example:

- m and Adam's moments and step count go on from one search to the next.
- The bounds of c are views of c and follow it, so that c never bisects: it is multiplied by 10 until the
  first success, or halved until the first failure, and stays where it is from then on.
- Success wants the margin of `confidence`; at equality the lower class index wins. Without that margin an
iterate is not adversarial, in any class. A targeted attack succeeds with its target only.
- It doesn't stop when the loss no longer falls (the paper's authors' code does; `abort_early`, see
`early_abort.py`).

`search="original"` is the authors' search: m and Adam begin again for each c, and c bisects (times 10 as long
as there was no success).

A gradient averaged over passes of a random model is the mean hinge's. Where expected accuracy counts, an
iterate is adversarial if its mean logits are, and no pass was right; else the last pass decides.

Deviations from cleverhans:

- Each example has its own c. There, a c of shape (B, 1) meets losses of shape (B,), so that every example is
  attacked with the mean c of its batch, and Adam sees B times the gradient (its 1e-8 then weighs less).
  `shared_constant` does the same, over all slots at hand.
- Classes that are switched off with minus infinity stay out of the difference (there: NaN), and so does the
  label, for logits of any size (there: it counts as -10000). Logits that are not finite are a success of an
  untargeted attack, as everywhere here; a gradient that is not finite counts as zero.
- An example without an adversarial keeps its first iterate, which is the image up to the rounding of arctanh
  (at most half a millionth of the box per value), where the library returns the image in the box itself.
- The last step costs no backward pass.

K = classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from assay.attacks.adversarial.kernels import early_abort
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.expectation import SINGLE, Expectation
from assay.attacks.judgement import finite
from assay.attacks.kernel import Examples, Forward, Objective, Setting, State, begin, keep
from assay.attacks.passes import evaluate
from assay.attacks.sending import sent
from assay.attacks.threat import PIXELS, Box, as_column

Search = Literal["released", "original"]

INSIDE = 0.999999
GROWTH = 10
BETA1, BETA2, ADAM_EPSILON = 0.9, 0.999, 1e-8
CARRIED = ("modifier", "moment", "square", "updates", "squashed", "adversarial")


@dataclass(frozen=True)
class TanhDescent:
    """Looks for the smallest L2 perturbation that is classified wrongly by a margin.

    Keys of its own: `offset` a, `modifier` m and `squashed` tanh(m + a), like the images; `moment`, `square`
    and `updates` of Adam; `constant` c with its bounds `lower` and `upper`; `success` in the present search.
    `restart` numbers the search, `iteration` the iterate within it. `objective` is minus the squared L2 size
    of `best`, or minus infinity without an adversarial. With `abort_early` the keys of `early_abort.py`.
    """

    name: str
    goal: Goal
    confidence: float
    searches: int
    iterations: int
    learning_rate: float
    initial_constant: float
    search: Search = "released"
    epsilon: float | None = None
    shared_constant: bool = False
    abort_early: bool = False
    expectation: Expectation = SINGLE
    ball: ClassVar[None] = None
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.search not in get_args(Search):
            raise ValueError(f"search is {self.search!r}, allowed are {', '.join(get_args(Search))}")
        if self.searches < 1 or self.iterations < 1:
            raise ValueError(
                f"searches ({self.searches}) and iterations ({self.iterations}) must be at least 1"
            )
        if self.abort_early and self.shared_constant:
            raise ValueError("abort_early lets examples leave, which a shared_constant doesn't allow")
        if not self.confidence >= 0:
            raise ValueError(f"confidence is {self.confidence}, it must be at least 0")
        if not (self.epsilon is None or self.epsilon >= 0):
            raise ValueError(f"epsilon is {self.epsilon}, it must be at least 0")

    def start(self, setting: Setting, examples: Examples) -> State:
        """The state of new slots, at the image in the box."""
        if self.shared_constant and not setting.final_iterate:
            raise ValueError("a shared constant needs the fixed batches of protocol 'paper'")
        low, high = _box(setting)
        images = examples.images.clamp(low, high)
        offset = torch.arctanh((((images - low) / (high - low)).clamp(0, 1) * 2 - 1) * INSIDE)
        squashed = torch.tanh(offset)
        goal = self.goal.choose(setting, examples)
        state = begin(
            examples._replace(images=images),
            goal,
            _stretched(squashed, low, high),
            targeted=self.goal.targeted,
        )
        zeros, numbers = torch.zeros_like(images), images.new_zeros(len(images))
        state |= early_abort.watch(images) if self.abort_early else {}
        return state | {
            "offset": offset,
            "squashed": squashed,
            "modifier": zeros,
            "moment": zeros,
            "square": zeros,
            "updates": numbers.double(),
            "constant": numbers + self.initial_constant,
            "lower": numbers,
            "upper": numbers + torch.inf,
            "success": torch.zeros_like(state["broken"]),
        }

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        """Evaluates the present iterates, keeps the smallest adversarials, descends."""
        if self.abort_early:
            self._end_stalled(setting, state)
        last = state["iteration"] + 1 >= self.iterations
        last_search = state["restart"] + 1 >= self.searches
        over = last & last_search
        objective = self._objective(state["goal"])
        logits, violation, gradient = evaluate(model, state, objective, ~over, self.expectation)
        square = (state["adversarial"] - state["images"]).square().flatten(1).sum(1)
        self._note(setting, state, logits, square)
        if self.abort_early:
            loss = square.double() + state["constant"].double() * violation.clamp(min=0)
            early_abort.look(state, loss, self.iterations, last_search)
        if not over.all():
            self._descend(setting, state, violation, gradient)
        state["iteration"] += 1
        if last.any():
            self._next_search(setting, state, last)

    def _end_stalled(self, setting: Setting, state: State) -> None:
        ended = early_abort.ask(state, self.iterations)
        if ended is not None and ended.any():
            self._next_search(setting, state, ended)

    def _objective(self, goal: Tensor) -> Objective:
        violation = self._violation(goal)
        if self.expectation.passes == 1:
            return violation

        def hinged(logits: Tensor) -> Tensor:
            value = violation(logits)
            return torch.maximum(value, torch.zeros_like(value))

        return hinged

    def _violation(self, goal: Tensor) -> Objective:
        """The argument of the hinge: the distance of logits (B, K) from success, (B,)."""
        sign = -1.0 if self.goal.targeted else 1.0

        def value(logits: Tensor) -> Tensor:
            own = logits.gather(1, goal[:, None]).squeeze(1)
            # The gradient goes to one class of several that are equal, as in the library.
            other = logits.scatter(1, goal[:, None], -torch.inf).max(1).values
            return sign * (own - other) + self.confidence

        return value

    def _note(self, setting: Setting, state: State, logits: Tensor, square: Tensor) -> None:
        success = self._succeeds(logits, state["goal"])
        if "accuracy" in state:
            success = success & (state["accuracy"] == 0)
        live = ~state["broken"]
        if self.abort_early:
            success, live = success & ~state["stalled"], live & ~state["stalled"]
        state["success"] = state["success"] | success
        counts = success if self.epsilon is None else success & (square.sqrt() <= self.epsilon)
        values = (-square.double()).masked_fill(~counts, -torch.inf)
        # The objective is NaN at first: the first iterate is kept in any case.
        keep(state, logits, values, live & ~(values <= state["objective"]))
        if self.epsilon is not None and not setting.final_iterate and "accuracy" not in state:
            state["broken"] = state["broken"] | counts

    def _succeeds(self, logits: Tensor, goal: Tensor) -> Tensor:
        index = torch.arange(logits.shape[1], device=logits.device)
        own = logits.gather(1, goal[:, None])
        own = own - self.confidence if self.goal.targeted else own + self.confidence
        others = logits.scatter(1, goal[:, None], -torch.inf)
        before = ((others > own) | ((others == own) & (index < goal[:, None]))).any(1)
        lost = before | ~finite(logits)
        return ~lost if self.goal.targeted else lost

    def _descend(self, setting: Setting, state: State, violation: Tensor, gradient: Tensor) -> None:
        low, high = _box(setting)
        carried = {key: state[key] for key in CARRIED}
        # The slope of the hinge; torch's maximum halves it at the bend. NaN has none.
        single = self.expectation.passes == 1
        hinge = (violation.sign() + 1).nan_to_num() / 2 if single else torch.ones_like(violation)
        constant, weight = state["constant"], 1
        if self.shared_constant:
            constant, weight = constant.sum(), len(constant)
        pull = as_column((constant * hinge).to(gradient.dtype), gradient)
        slope = pull * gradient + 2 * weight * (state["adversarial"] - state["images"])
        slope = slope * (high - low) / 2 * (1 - state["squashed"].square())
        state["moment"] = state["moment"].lerp(slope, 1 - BETA1)
        state["square"] = state["square"] * BETA2 + (1 - BETA2) * slope.square()
        state["updates"] = state["updates"] + 1
        step = self.learning_rate / (1 - BETA1 ** state["updates"])
        bias = (1 - BETA2 ** state["updates"]).sqrt()
        step, bias = (as_column(numbers.to(slope.dtype), slope) for numbers in (step, bias))
        modifier = state["modifier"] - step * state["moment"] / (state["square"].sqrt() / bias + ADAM_EPSILON)
        state["modifier"] = modifier
        self._place(setting, state)
        if self.abort_early and self.search == "released":
            for key, before in carried.items():
                state[key] = torch.where(as_column(state["stalled"], before), before, state[key])

    def _place(self, setting: Setting, state: State) -> None:
        state["squashed"] = torch.tanh(state["modifier"] + state["offset"])
        state["adversarial"] = _stretched(state["squashed"], *_box(setting))

    def _next_search(self, setting: Setting, state: State, last: Tensor) -> None:
        ended = sent(last, state["images"])
        won, lost = ended & state["success"], ended & ~state["success"]
        constant = state["constant"]
        lower = torch.where(lost, torch.maximum(state["lower"], constant), state["lower"])
        upper = torch.where(won, torch.minimum(state["upper"], constant), state["upper"])
        following = torch.where(upper.isinf(), constant * GROWTH, (lower + upper) / 2)
        following = torch.where(ended, following, constant)
        if self.search == "released":
            lower = torch.where(lower > 0, following, lower)
            upper = torch.where(upper.isinf(), upper, following)
        else:
            for key in ("modifier", "moment", "square", "updates"):
                state[key] = state[key].masked_fill(as_column(ended, state[key]), 0)
            self._place(setting, state)
        state |= {"constant": following, "lower": lower, "upper": upper, "success": state["success"] & ~ended}
        state["restart"] += last
        state["iteration"] = state["iteration"].masked_fill(last, 0)
        state["done"] |= state["restart"] >= self.searches
        if self.abort_early:
            early_abort.begin_again(state, ended)


def _box(setting: Setting) -> Box:
    return PIXELS if setting.box is None else setting.box


def _stretched(squashed: Tensor, low: float, high: float) -> Tensor:
    return (squashed + 1) / 2 * (high - low) + low
