"""Passes of the attacked model: its logits, and gradients of an objective, at the iterates of slots.

P passes, B batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from assay.attacks.expectation import SINGLE, Expectation, share_right
from assay.attacks.kernel import Forward, Objective, State
from assay.attacks.sending import sent
from assay.attacks.threat import as_column


class StraightThrough(torch.autograd.Function):
    """The values of a tensor with the gradient of another: `apply(slopes, values)`, of equal shape."""

    @staticmethod
    def forward(ctx: Any, slopes: Tensor, values: Tensor) -> Tensor:
        """The values."""
        return values.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Passes the gradient on to the slopes."""
        return gradients[0], None


def evaluate(
    model: Forward, state: State, objective: Objective, wants: Tensor, expectation: Expectation = SINGLE
) -> tuple[Tensor, Tensor, Tensor]:
    """Runs the model on the current iterates, with gradients only for the slots that need one.

    Counts the passes; a non-finite gradient is set to zero, the first of each slot is recorded. The objective
    is summed over the slots; only iterates of the slots `wants` (B,), on the CPU, receive a gradient. It is
    averaged over the expectation's passes: logits and objective are the means where expected accuracy counts;
    else the last pass's, and slots without a gradient take only that one. A model with `in_whole_batches`
    gets all slots in one pass; its `observe`, if it has one, is told what is returned: logits (B, classes),
    objective (B,) in float64, gradient like the iterates (zero where not requested).
    """
    found = _evaluated(model, state, objective, wants, expectation)
    if (observe := getattr(model, "observe", None)) is not None:
        observe(state, *found, wants)
    return found


def _evaluated(
    model: Forward, state: State, objective: Objective, wants: Tensor, expectation: Expectation
) -> tuple[Tensor, Tensor, Tensor]:
    wanted = int(wants.sum())
    if wanted == 0:
        logits, values = ask(model, state, objective, expectation)
        return logits, values, torch.zeros_like(state["adversarial"])
    points, live, expected = state["adversarial"], _live(state), "accuracy" in state
    together = expectation.passes == 1 and getattr(model, "in_whole_batches", False)
    if expected or wanted == len(wants) or together:
        state["forward"] += live * expectation.passes
        drawn, gradient = _differentiate(model, points, objective, expectation)
        logits, values = _of_passes(state, drawn, objective, expectation)
        gradient = gradient * as_column(sent(wants, points), points) if wanted < len(wants) else gradient
    else:
        state["forward"] += live
        order = sent(torch.cat([wants.nonzero().flatten(), (~wants).nonzero().flatten()]), points)
        resting, back = model(points[order[wanted:]]), order.argsort()

        def whole(logits: Tensor) -> Tensor:
            return objective(torch.cat([logits, resting])[back])[order[:wanted]]

        drawn, moved = _differentiate(model, points[order[:wanted]], whole, expectation)
        logits = torch.cat([drawn[-1], resting])[back]
        values = objective(logits).double()
        gradient = torch.zeros_like(points).index_copy(0, order[:wanted], moved)
        state["forward"] += live * sent(wants, points) * (expectation.passes - 1)
    state["backward"] += live * sent(wants, points) * expectation.passes
    return logits, values, note_gradient(state, gradient, wants)


def ask(
    model: Forward, state: State, objective: Objective, expectation: Expectation = SINGLE
) -> tuple[Tensor, Tensor]:
    """Runs the model on the current iterates, without gradients, and counts the passes.

    There is one pass, unless expected accuracy counts. Logits (B, classes) and objective (B,), float64, as of
    `evaluate`.
    """
    if "accuracy" not in state:
        state["forward"] += _live(state)
        logits = model(state["adversarial"])
        return logits, objective(logits).double()
    state["forward"] += _live(state) * expectation.passes
    drawn = torch.stack([model(state["adversarial"]) for _ in range(expectation.passes)])
    return _of_passes(state, drawn, objective, expectation)


def _of_passes(
    state: State, drawn: Tensor, objective: Objective, expectation: Expectation
) -> tuple[Tensor, Tensor]:
    """Logits and objective from all passes' logits, (P, B, classes); notes the share of right answers."""
    if "accuracy" not in state:
        return drawn[-1], objective(drawn[-1]).double()
    state["accuracy"] = share_right(drawn, state["truth"])
    logits = drawn.mean(0)
    if expectation.average == "logits":
        return logits, objective(logits).double()
    return logits, torch.stack([objective(one).double() for one in drawn]).mean(0)


def _live(state: State) -> Tensor:
    live = ~state["broken"]
    for key in ("settled", "stalled"):
        if key in state:
            live = live & ~state[key]
    return live


def differentiate(model: Forward, points: Tensor, objective: Objective) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (B, classes), objective (B,), and the gradient of its sum with respect to points (B, C, H, W).

    A model with `in_parts`, which knows how many images fit into memory, runs in parts. The objective always
    sees all rows; rows of other parts are constants.
    """
    drawn, gradient = _differentiate(model, points, objective, SINGLE)
    return drawn[0], objective(drawn[0]), gradient


def _differentiate(
    model: Forward, points: Tensor, objective: Objective, expectation: Expectation
) -> tuple[Tensor, Tensor]:
    """Logits of all passes, (P, B, classes), and the mean gradient, or the mean logits' gradient."""
    in_parts = getattr(model, "in_parts", None)
    rows = torch.arange(len(points), device=points.device)

    def slope(logits: Tensor, moving: Tensor, chosen: Tensor) -> Tensor:
        if len(chosen) == len(rows):
            values = objective(logits)
        else:
            others = logits.new_zeros(len(rows), logits.shape[1])
            values = objective(others.index_copy(0, chosen, logits))[chosen]
        return torch.autograd.grad(values.sum(), moving)[0]

    def part(chosen: Tensor) -> tuple[Tensor, Tensor]:
        drawn: list[Tensor] = []
        total: Tensor | None = None
        with torch.enable_grad():
            moving = points[chosen].detach() if len(chosen) < len(rows) else points.detach()
            moving.requires_grad_(True)
            for _ in range(expectation.passes):
                logits = model(moving)
                if expectation.average == "losses" or expectation.passes == 1:
                    gradient = slope(logits, moving, chosen)
                    total = gradient if total is None else total + gradient
                    logits = logits.detach()
                drawn.append(logits)
            if total is None:
                total = slope(torch.stack(drawn).mean(0), moving, chosen)
            elif expectation.passes > 1:
                total = total / expectation.passes
        return torch.stack(drawn).detach(), total

    parts: list[tuple[Tensor, Tensor]] = [part(rows)] if in_parts is None else in_parts(rows, part)
    if len(parts) == 1:
        return parts[0]
    return torch.cat([one for one, _ in parts], 1), torch.cat([one for _, one in parts])


def in_parts_of(model: Forward, made: Callable[[Tensor], Tensor]) -> Forward:
    """A function made of a model, with the way to run in parts that the model has; see `differentiate`."""
    if (in_parts := getattr(model, "in_parts", None)) is not None:
        made.in_parts = in_parts  # type: ignore[attr-defined]
    return made


def note_gradient(state: State, gradient: Tensor, wanted: Tensor) -> Tensor:
    """Flags zero or non-finite first gradients; returns the gradient with non-finite entries set to zero.

    `wanted` are the slots that requested it, on the CPU, (B,).
    """
    first = wanted & ~state["seen_gradient"]
    if first.any():
        fresh = sent(first, gradient)
        state["zero_gradient"] |= fresh & (gradient == 0).flatten(1).all(1)
        state["nonfinite_gradient"] |= fresh & ~gradient.isfinite().flatten(1).all(1)
        state["seen_gradient"] = state["seen_gradient"] | wanted
    return gradient.nan_to_num(0.0, 0.0, 0.0)
