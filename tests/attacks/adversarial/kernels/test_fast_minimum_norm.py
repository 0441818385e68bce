"""FMN's radius."""

from __future__ import annotations

import torch

from assay.attacks.adversarial.fmn import fmn
from assay.attacks.threat import BallNorm
from tests.attacks.adversarial.kernels.iterates import step_of

NORMS: tuple[BallNorm, ...] = ("Linf", "L2", "L1", "L0")


def test_a_success_never_widens_the_ball_beyond_the_smallest_one() -> None:
    at = {
        "radius": torch.tensor([10.0, 10.0, 2.0, 2.0], dtype=torch.float64),
        "smallest": torch.tensor([3.0, 3.0, 9.0, 9.0], dtype=torch.float64),
        "found": torch.ones(4, dtype=torch.bool),
    }
    _, state, iterate = step_of(at)
    by_norm = {norm: fmn(norm=norm, steps=10)._radius(state, iterate) for norm in NORMS}  # type: ignore[attr-defined]
    # Of the successes, the first and third: the smallest one so far, or one value less.
    assert by_norm["L0"].tolist()[::2] == [3.0, 1.0]
    assert by_norm["L0"].tolist()[1::2] == [11.0, 3.0]
    for norm in ("Linf", "L2", "L1"):
        assert by_norm[norm][0] == 3
        assert by_norm[norm][2] < 2
        assert (by_norm[norm][1::2] > torch.tensor([10, 2])).all()
