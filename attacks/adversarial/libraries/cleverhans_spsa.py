"""cleverhans' `spsa` as a kernel: one image after the other, with Assay's keyed draws for its random numbers.

It estimates the gradient at twice the unattacked image, see `attacks.adversarial.spsa`. It draws with
`rand_like` only: for each image the start, then at every step the directions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from assay.attacks.adversarial.kernels.random_signs import random_signs, unpack
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.adversarial.libraries.cleverhans import Cleverhans, order
from assay.attacks.kernel import Forward, Setting, State
from assay.attacks.threat import Ball


class _KeyedRandLike(TorchFunctionMode):
    """Makes `torch.rand_like(tensor)` answer with the next of the given draws."""

    def __init__(self, draws: Iterator[Tensor]) -> None:
        super().__init__()
        self.draws = draws

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.rand_like:
            draw = next(self.draws)
            assert draw.shape == args[0].shape, "the library draws in another order"
            return draw
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class CleverhansSpsa(Cleverhans):
    """The library's SPSA."""

    adam_steps: int = 10  # Steps on the perturbation
    samples: int = 128  # Directions for each

    def _keyed(self, setting: Setting, state: State) -> TorchFunctionMode:
        return _KeyedRandLike(self._numbers(setting, state["row"], state["images"]))

    def _numbers(self, setting: Setting, rows: Tensor, images: Tensor) -> Iterator[Tensor]:
        shape, entries = images.shape[1:], images[0].numel()
        for row in rows.split(1):
            yield setting.randomness.uniform(
                setting.ids_of(row), tuple(shape), dtype=images.dtype, device=images.device
            )
            for step in range(self.adam_steps):
                packed = random_signs(setting, row, torch.tensor([step]), self.samples, entries)
                signs = unpack(packed.to(images.device), entries, images.dtype)
                # The library takes the sign of what it draws minus one half.
                yield 0.5 + 0.25 * signs.view(-1, *shape)


def cleverhans_spsa(
    ball: Ball, goal: Goal, *, steps: int, samples: int, delta: float, learning_rate: float
) -> CleverhansSpsa:
    """Returns cleverhans' `spsa` as a kernel."""

    def run(model: Forward, images: Tensor, labels: Tensor, bounds: dict[str, float]) -> Tensor:
        from cleverhans.torch.attacks.spsa import spsa

        found: Tensor = spsa(
            model,
            images,
            ball.epsilon,
            steps,
            order(ball.norm),
            y=labels,
            targeted=goal.targeted,
            learning_rate=learning_rate,
            delta=delta,
            spsa_samples=samples,
            # It asserts on the host what the engine has checked.
            sanity_checks=False,
            **bounds,
        )
        return found

    works = ball.epsilon > 0
    return CleverhansSpsa(
        "spsa",
        ball,
        goal,
        run,
        steps=0,
        queries=steps * (2 * samples + 1) if works else 0,
        gradient=False,
        adam_steps=steps,
        samples=samples,
    )
