"""Verified robust accuracy: a lower bound of every margin over the whole ball, by IBP, CROWN or alpha-CROWN.

Gowal et al. 2018, "On the Effectiveness of Interval Bound Propagation for Training Verifiably Robust Models",
section 3; Zhang et al. 2018, "Efficient Neural Network Robustness Certification with General Activation
Functions", Theorem 3.2; Xu et al. 2021, "Fast and Complete", section 3.1, for the optimised slopes. By
auto_LiRPA (Xu et al. 2020), an extra.

    m_j = lower bound of  z_y(x') - z_j(x')  over  |x' - x|_p <= epsilon, x' in [0, 1]
    verified where the model is right at x and every m_j > 1e-4 (1 + max_k |z_k(x)|)

No attack within the ball can break a verified example; of an unverified example nothing is known. An L2 ball
is the box around it for intervals; linear bounds take the better of ball and box. The radius is enlarged by
what the engine allows attacks for rounding. It needs float32 or float64, and a model without random outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from annotated_types import Interval

from assay.attacks.kernel import frozen
from assay.attacks.threat import Fraction
from assay.workers.evaluation.engine.analysis import Measured
from assay.workers.evaluation.engine.attack.bound_operators import require_library
from assay.workers.evaluation.engine.attack.linear_bounds import MarginBounds, proved
from assay.workers.evaluation.engine.loader import Loader
from assay.workers.evaluation.engine.shard import Evaluation, Shard

__all__ = ["verified"]

TASKS = ("classification",)
TABLE = "verified"
# Linear bounds go back through the network from every layer.
PASSES = ("20", "20")
PAPER = "Xu et al. 2020, Automatic Perturbation Analysis for Scalable Certified Robustness and Beyond"

# Images between two reports of progress.
MAX_BATCH = 16


def verified(
    *,
    norm: Literal["Linf", "L2"] = "Linf",
    epsilon: Annotated[Fraction, Interval(ge=0, le=100)] = 1 / 255,
    method: Literal["IBP", "CROWN", "alpha-CROWN"] = "CROWN",
    iterations: Annotated[int, Interval(ge=1, le=1000)] = 20,
) -> Evaluation:
    """Share of examples that provably no perturbation in the ball can break.

    Args:
        norm: of the ball.
        epsilon: radius, in pixel units.
        method: IBP is the fastest and loosest, and the only one for transformers; alpha-CROWN the tightest.
        iterations: of the optimisation of alpha-CROWN; the others have none.
    """
    return _Verified(norm, epsilon, method, iterations)


@dataclass(frozen=True)
class _Verified:
    norm: Literal["Linf", "L2"]
    epsilon: float
    method: Literal["IBP", "CROWN", "alpha-CROWN"]
    iterations: int

    def check(self, root: Path | None) -> None:
        """Refuses where auto_LiRPA is missing, when the job is planned; a ValueError says the remedy."""
        del root
        require_library()

    def check_model(self, shard: Shard) -> None:
        """Refuses a model without bounds for the first image, when the job is planned.

        A ValueError names the operators without bounds and their modules, or the arithmetic.
        """
        if shard.dtype not in ("float32", "float64"):
            raise ValueError(f"verified needs execution.dtype float32 or float64, not {shard.dtype}")
        loader = _loader(shard)
        image, label = loader.images(torch.tensor([0])), loader.labels_of(torch.tensor([0]))
        with frozen(shard.classifier):
            bounds = MarginBounds(shard.classifier, image, self.method, iterations=1)
            bounds.lower(image, label, self.norm, self.epsilon)

    def measure(self, shard: Shard) -> Measured:
        """One row per example: whether it is verified, and its smallest lower margin.

        A ValueError: an operator of the model has no bounds, or images are outside [0, 1].
        """
        loader = _loader(shard)
        example = loader.images(torch.tensor([0]))
        n = len(shard.ids)
        right, held = torch.zeros(n, dtype=torch.bool), torch.zeros(n, dtype=torch.bool)
        margin = torch.full((n,), torch.nan, dtype=torch.float64)
        with frozen(shard.classifier):
            bounds = MarginBounds(shard.classifier, example, self.method, self.iterations)
            for rows in loader.batches():
                images, labels = loader.images(rows), loader.labels_of(rows)
                lower, logits = bounds.lower(images, labels, self.norm, self.epsilon)
                right[rows] = (logits.argmax(1) == labels).cpu()
                held[rows] = right[rows] & proved(lower, logits).cpu()
                margin[rows] = lower.amin(1).double().cpu()
                shard.progress(int(rows[-1]) + 1)
        values = {"label": shard.labels, "clean_correct": right, "verified": held, "lower_margin": margin}
        passes = torch.ones(n, dtype=torch.int64)
        return Measured(shard.ids, values, passes, torch.zeros_like(passes), loader.noted())


def _loader(shard: Shard) -> Loader:
    return shard.loader(batch_size=min(shard.batch_size, MAX_BATCH))
