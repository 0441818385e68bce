"""Projected gradient ascent on the loss of a detector.

Madry et al. 2018, "Towards Deep Learning Models Resistant to Adversarial Attacks", section 2.1, on the loss
of `detector.py`. The iterate with the greatest loss counts, the random start included. It is rounded to
float32 and clipped to the ball and to [0, 1] once more; its detections are of a pass without autocast.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from toydet.assay.detector import detector_loss
from toydet.assay.outcomes import Detected

from assay.attacks import parameters
from assay.attacks.kernel import frozen
from assay.attacks.passes import differentiate
from assay.attacks.randomness import Randomness
from assay.workers.evaluation.engine.forward import Passes
from assay.workers.evaluation.engine.shard import Shard

__all__ = ["detector_pgd"]

TASKS = ("detection",)
PROTOCOLS = ("pixel",)
THREAT = {"knowledge": "white_box", "search": "iterative"}
TABLE = "toydet.assay.tables:TABLE"
PASSES = ("params.steps + 3", "params.steps")
PAPER = "Madry et al. 2018, Towards Deep Learning Models Resistant to Adversarial Attacks"


@dataclass(frozen=True)
class DetectorPgd:
    """The attack; its measure runs it."""

    epsilon: float
    steps: int
    step_size: float
    random_start: bool

    def measure(self, shard: Shard) -> Detected:
        """Attacks every image."""
        loader, found = shard.loader(), Detected(shard, (self.steps + 3, self.steps))
        [passes] = loader.passes(None)
        with torch.no_grad(), frozen(shard.classifier):
            for rows in loader.batches():
                images, outputs = loader.load(rows)
                truth = loader.labels_of(rows)
                found.claim(outputs, truth, "clean_")
                ids = [shard.ids[row] for row in rows.tolist()]
                attacked = self._ascended(shard, passes, images, truth, ids)
                attacked = _within(attacked.float(), images.float(), self.epsilon)
                confirmed = loader.exact(attacked.to(images))
                found.claim(confirmed, truth)
                found.add(
                    loss=_losses(shard, confirmed, truth),
                    clean_loss=_losses(shard, outputs, truth),
                    linf=(attacked - images.float()).abs().flatten(1).amax(1).double().tolist(),
                )
                shard.progress(int(rows[-1]) + 1)
        found.noted = loader.noted()
        return found

    def _ascended(
        self, shard: Shard, passes: Passes, images: Tensor, truth: Tensor, ids: list[str]
    ) -> Tensor:
        """The iterate with the greatest loss of each image, (B, C, S, S)."""

        def objective(outputs: Tensor) -> Tensor:
            return detector_loss(outputs, truth, shard.classes, shard.image_size)

        points = images
        if self.random_start:
            shape = tuple(images.shape[1:])
            draws = Randomness(shard.seed, "detector_pgd").uniform(
                ids, shape, dtype=images.dtype, device=images.device
            )
            points = _within(images + self.epsilon * (2 * draws - 1), images, self.epsilon)
        best, greatest = points, torch.full((len(images),), -torch.inf).to(images)
        for step in range(self.steps + 1):
            if step < self.steps:
                _, values, gradient = differentiate(passes, points, objective)
            else:
                values, gradient = objective(passes(points)), torch.zeros_like(points)
            better = values > greatest
            greatest = torch.where(better, values, greatest)
            best = torch.where(better[:, None, None, None], points, best)
            moved = points + self.step_size * gradient.nan_to_num(0.0, 0.0, 0.0).sign()
            points = _within(moved, images, self.epsilon)
        return best


def _within(points: Tensor, images: Tensor, epsilon: float) -> Tensor:
    return points.clamp(images - epsilon, images + epsilon).clamp(0, 1)


def _losses(shard: Shard, outputs: Tensor, truth: Tensor) -> list[float | None]:
    values = detector_loss(outputs, truth, shard.classes, shard.image_size).double()
    return [
        value if finite else None for value, finite in zip(values.tolist(), values.isfinite(), strict=True)
    ]


def detector_pgd(
    *,
    epsilon: parameters.PixelRadius = 4 / 255,
    steps: parameters.Steps = 10,
    relative_step_size: parameters.RelativeStepSize = 0.25,
    random_start: bool = True,
) -> DetectorPgd:
    """Projected gradient ascent on the loss of a detector, in the Linf ball.

    Args:
        random_start: Begin at a random point of the cube of half-width epsilon.
    """
    return DetectorPgd(epsilon, steps, relative_step_size * epsilon, random_start)
