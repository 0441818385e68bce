"""Plain loops over one image at a time, from the papers' formulas: what the kernels are compared with."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Model = Callable[[Tensor], Tensor]
Weights = tuple[float, ...] | None


def pixels_lost(
    logits: Tensor, labels: Tensor, name: str, step: int, steps: int, weights: Weights
) -> tuple[Tensor, Tensor]:
    """The differentiated loss and the one tracked by Auto-PGD; step starts at 1. (1, K, H, W) and (H, W)."""
    there = labels < 255
    u, y = logits[0].permute(1, 2, 0)[there], labels[there].long()  # (N, K), (N,)
    p = u.softmax(1)
    own = p[torch.arange(len(y)), y]
    right = u.argmax(1) == y
    if name == "js":
        hot = torch.nn.functional.one_hot(y, u.shape[1]).to(u)
        m = (p + hot) / 2
        js = ((p * (p / m).log()).sum(1) + (1 / m[torch.arange(len(y)), y]).log()) / 2
        return js.sum(), js.mean()
    ce = -own.log()
    if name == "segpgd":
        share = (step - 1) / (2 * steps)
        return (1 - share) * ce[right].sum() + share * ce[~right].sum(), ce.mean()
    if name == "mce_bal":
        assert weights is not None
        ce = ce * torch.tensor(weights).to(u)[y]
    return (ce.sum() if name == "ce" else ce[right].sum()), ce.mean()


class Attacked:
    """One image under attack: remembers the iterate with the fewest right pixels."""

    def __init__(self, model: Model, image: Tensor, labels: Tensor, name: str, weights: Weights) -> None:
        self.model, self.image, self.labels, self.name, self.weights = model, image, labels, name, weights
        self.best, self.fewest = image, self.right(image)

    def right(self, x: Tensor) -> int:
        return int((self.model(x[None]).argmax(1)[0] == self.labels)[self.labels < 255].sum())

    def keep(self, x: Tensor) -> None:
        if (now := self.right(x)) < self.fewest:
            self.best, self.fewest = x, now

    def slope(self, x: Tensor, step: int, steps: int) -> tuple[Tensor, float]:
        with torch.enable_grad():
            moving = x.detach().requires_grad_()
            raised, followed = pixels_lost(
                self.model(moving[None]), self.labels, self.name, step, steps, self.weights
            )
            return torch.autograd.grad(raised, moving)[0], float(followed.detach())


def pgd(a: Attacked, x: Tensor, epsilon: float, size: float, steps: int) -> None:
    low, high = (a.image - epsilon).clamp(0, 1), (a.image + epsilon).clamp(0, 1)
    for step in range(1, steps + 1):
        a.keep(x)
        x = (x + size * a.slope(x, step, steps)[0].sign()).clamp(low, high)
    a.keep(x)


def auto_pgd(
    a: Attacked, x: Tensor, epsilon: float, steps: int, *, counts: bool, rho: float = 0.75
) -> Tensor:
    """Algorithm 1 of Croce and Hein 2020, with AutoAttack's checkpoints; returns the best point."""
    low, high = (a.image - epsilon).clamp(0, 1), (a.image + epsilon).clamp(0, 1)
    eta, window, ends = 2 * epsilon, max(int(0.22 * steps), 1), 0
    shrink, shortest = max(int(0.03 * steps), 1), max(int(0.06 * steps), 1)
    slope, value = a.slope(x, 1, 1)
    best, best_slope, highest = x, slope, value
    previous, last, at_checkpoint, halved, rises = x, 0.0, value, True, 0
    ends = window
    for step in range(1, steps + 1):
        if counts:
            a.keep(x)
        z = (x + eta * slope.sign()).clamp(low, high)
        share = 1.0 if step == 1 else 0.75
        x, previous = (x + share * (z - x) + (1 - share) * (x - previous)).clamp(low, high), x
        slope, value = a.slope(x, 1, 1)
        rises, last = rises + (value > last), value
        if value > highest:
            best, best_slope, highest = x, slope, value
        if step == ends:
            if counts:
                a.keep(x)
            few, stuck = rises <= window * rho, not halved and at_checkpoint >= highest
            halved = few or stuck
            if halved:
                eta, x, slope = eta / 2, best, best_slope
            at_checkpoint, rises, window = highest, 0, max(window - shrink, shortest)
            ends += window
    if counts:
        a.keep(x)
    return best


def shrinking_auto_pgd(a: Attacked, x: Tensor, epsilon: float, steps: int) -> None:
    """The three runs of Croce, Singh and Hein 2024."""
    first = steps * 3 // 10
    for factor, length in ((2.0, first), (1.5, first), (1.0, steps - 2 * first)):
        radius = factor * epsilon
        x = (a.image + (x - a.image).clamp(-radius, radius)).clamp(0, 1)
        x = auto_pgd(a, x, radius, length, counts=factor == 1.0)
