"""Randomised smoothing: a certified L2 radius for the smoothed classifier made from any model.

Cohen, Rosenfeld and Kolter 2019, "Certified Adversarial Robustness via Randomized Smoothing", Theorem 1,
section 3.2 and the procedure Certify:

    g(x) = argmax_c P(f(x + e) = c),  e ~ N(0, sigma^2 I)     the smoothed classifier
    c    = the most frequent class of `selection` draws
    k    = how many of `draws` fresh draws have the class c
    p    = lower Clopper-Pearson bound of k / draws, one-sided, at 1 - alpha
    R    = sigma Phi^-1(p) where p > 1/2, otherwise g abstains

With probability 1 - alpha over the draws of an example, g answers c in the whole open L2 ball of radius R, in
pixel units. The certificate is for g, not for the model f itself, whose answers may change within the ball.
Noisy images are not clipped to [0, 1], as in the paper.

Deviations from the released code: draws are keyed by seed and example, and shared by the noise levels, which
scale them; `draws` is 1,000 by default, there it is 100,000. The largest radius that so many draws
can certify is sigma Phi^-1(alpha^(1 / draws)): 2.46 sigma for 1,000 draws at alpha 0.001.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Annotated

import torch
from annotated_types import Interval, Len
from torch import Tensor

from assay.attacks.kernel import frozen
from assay.attacks.randomness import Randomness
from assay.workers.evaluation.engine.analysis import Measured
from assay.workers.evaluation.engine.loader import Loader
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["randomized_smoothing"]

ALSO = ("smoothing", "RS", "Cohen")
TASKS = ("classification",)
TABLE = "smoothed"
PASSES = ("len(params.sigmas) * (params.selection + params.draws)", "0")
RULES = (("ascending(params.sigmas)", "sigmas must be in ascending order, each once"),)
PAPER = "Cohen et al. 2019, Certified Adversarial Robustness via Randomized Smoothing"

# Draws per generator. Torch's normal numbers depend on how many are drawn at once, so that this may not
# follow the batch size.
CHUNK = 50
ABSTAINED = -1

Sigma = Annotated[float, Interval(gt=0, le=10)]
Radius = Annotated[float, Interval(ge=0, le=100)]


def randomized_smoothing(
    *,
    sigmas: Annotated[list[Sigma], Len(1, 8)] = [0.25],  # noqa: B006 (never changed)
    selection: Annotated[int, Interval(ge=1, le=10_000)] = 100,
    draws: Annotated[int, Interval(ge=10, le=1_000_000)] = 1000,
    alpha: Annotated[float, Interval(gt=0, lt=0.5)] = 0.001,
    radii: Annotated[list[Radius], Len(1, 32)] = [0.0, 0.25, 0.5, 0.75, 1.0],  # noqa: B006 (never changed)
) -> Evaluation:
    """Certified L2 radius of the smoothed classifier, by votes under Gaussian noise; not of the model itself.

    Args:
        sigmas: standard deviations of the noise, in pixel units; in ascending order.
        selection: draws that choose the class.
        draws: draws that estimate its probability; more of them certify larger radii.
        alpha: probability that the certificate of an example is wrong.
        radii: L2 radii at which certified accuracy is reported.

    Raises:
        ValueError: `sigmas` are not in ascending order.
    """
    if sorted(set(sigmas)) != list(sigmas):
        raise ValueError(f"sigmas must be in ascending order, each once: got {sigmas}")
    del radii  # the outcome table reads them
    return _Smoothing(tuple(sigmas), selection, draws, alpha)


def certified_radius(count: int, draws: int, sigma: float, alpha: float) -> float | None:
    """The L2 radius that votes certify; None where the smoothed classifier abstains.

    `count` of the draws have the class; `sigma` is the noise's standard deviation, `alpha` the probability of
    a wrong certificate.
    """
    lower = lower_bound(count, draws, alpha)
    return sigma * NormalDist().inv_cdf(lower) if lower > 0.5 else None


@lru_cache(maxsize=65_536)
def lower_bound(count: int, draws: int, alpha: float) -> float:
    """The lower end of Clopper and Pearson's one-sided interval at 1 - alpha: the quantile of a beta law."""
    from scipy.special import betaincinv  # imported where it is used: it takes a while

    return float(betaincinv(count, draws - count + 1, alpha)) if count else 0.0


@dataclass(frozen=True)
class _Smoothing:
    sigmas: tuple[float, ...]
    selection: int
    draws: int
    alpha: float

    def measure(self, shard: Shard) -> Measured:
        """One row per example: each noise level's class, votes and radius; a ValueError outside [0, 1]."""
        loader = shard.loader(batch_size=1)
        randomness = Randomness(shard.seed, "randomized_smoothing")
        n, levels = len(shard.ids), len(self.sigmas)
        prediction = torch.full((n, levels), ABSTAINED)
        votes, radius = torch.zeros(n, levels, dtype=torch.int64), torch.zeros(n, levels, dtype=torch.float64)
        with torch.no_grad(), frozen(shard.classifier):
            for row, (place, example) in enumerate(zip(loader.batches(), shard.ids, strict=True)):
                image = loader.images(place)
                chosen, counted = (
                    self._votes(loader, image, _noise(image, randomness, example, purpose, draws), shard)
                    for purpose, draws in (("selection", self.selection), ("estimation", self.draws))
                )
                for level, sigma in enumerate(self.sigmas):
                    top = int(chosen[level].argmax())
                    votes[row, level] = counted[level, top]
                    found = certified_radius(int(counted[level, top]), self.draws, sigma, self.alpha)
                    if found is not None:
                        prediction[row, level], radius[row, level] = top, found
                shard.progress(row + 1)
        passes = torch.full((n,), levels * (self.selection + self.draws))
        values = {
            "label": shard.labels,
            "prediction": prediction,
            "radius": radius,
            "votes": votes,
            "draws": torch.full((n,), self.draws),
            "smoothed_correct": prediction[:, 0] == shard.labels,
        }
        return Measured(shard.ids, values, passes, torch.zeros_like(passes), loader.noted())

    def _votes(self, loader: Loader, image: Tensor, chunks: Iterator[Tensor], shard: Shard) -> Tensor:
        votes: Tensor | None = None
        for noise in chunks:
            for level, sigma in enumerate(self.sigmas):
                for part in noise.split(shard.batch_size):
                    logits = loader.forward(image + sigma * part)
                    # What is not a number is no vote.
                    answers = logits.argmax(1)[logits.isfinite().all(1)].cpu()
                    if votes is None:
                        votes = torch.zeros(len(self.sigmas), logits.shape[1], dtype=torch.int64)
                    votes[level] += torch.bincount(answers, minlength=logits.shape[1])
        assert votes is not None, "there is at least one draw"
        return votes


def _noise(image: Tensor, randomness: Randomness, example: str, purpose: str, draws: int) -> Iterator[Tensor]:
    """Standard normal numbers like the image, a chunk of draws at a time, (B, C, H, W)."""
    for step, start in enumerate(range(0, draws, CHUNK)):
        shape = (CHUNK, *image.shape[1:])
        whole = randomness.normal(
            [example], shape, step=step, purpose=purpose, dtype=image.dtype, device=image.device
        )
        yield whole[0, : draws - start]
