"""Iterates with gradients in bfloat16 that are not judged in float32 are judged as float32 judges them.

A run with the measured bound visits the same iterates as a run that judges all of them both ways, so that
flags are equal where no iterate that was left to bfloat16 has another class in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.judgement import wrong_by
from assay.attacks.randomness import Randomness
from assay.models.layers.layers import Classifier
from assay.workers import catalog
from assay.workers.evaluation.engine.attack.error_bound import ErrorBound
from assay.workers.evaluation.engine.forward import Passes
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.support import networks
from tests.support.emulated_device.device import emulated_device

N = 160
ATTACKS: dict[str, dict[str, Any]] = {
    "pgd": {"steps": 12},
    "apgd": {"steps": 12},
    "apgd_dlr": {"steps": 12},
    "apgd_t": {"steps": 8, "targets": 3},
    "assay_fast": {"check_share": 0.0},
    "mi_fgsm": {"steps": 10},
}
EPSILON = {"convolutional-fgsm-trained": 0.15, "fgsm-trained": 0.15, "symvit": 0.01, "rpc_symvit": 0.01}


def subject(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """A network that reads images in [0, 1], with its images and labels."""
    model, (pixels, labels) = networks.network(name), networks.digits()
    if name in networks.TRANSFORMERS:
        return model, nn.functional.interpolate(pixels, scale_factor=4), labels
    normalised = name in ("gelu", "regularised")
    mean, std = (networks.MEAN, networks.STD) if normalised else (0.0, 1.0)
    return Classifier(model, (mean,), (std,)).eval(), pixels, labels


def run(
    name: str, attack: str, *, device: Any = "cpu", model: nn.Module | None = None, **more: Any
) -> ExampleOutcomes:
    given, pixels, labels = subject(name)
    more = {"screening": "bfloat16_gradients"} | more
    built = catalog.build("attack", attack, ATTACKS[attack] | {"epsilon": EPSILON.get(name, 0.1)})()
    return attack_pixel(
        built,
        (model or given).to(device),
        lambda rows: pixels[list(rows)],
        labels[:N],
        [f"digit-{row}" for row in range(N)],
        randomness=Randomness(0, attack),
        batch_size=64,
        device=device,
        **more,
    )


@contextmanager
def judging_all() -> Iterator[list[int]]:
    """Judges every iterate in float32 as well; how many that were left to bfloat16, and how many wrongly."""
    counts, judged = [0, 0], Passes._judged

    def both(self: Passes, images: Tensor, rough: Tensor) -> Tensor:
        logits, exact = judged(self, images, rough), self._whole(images)
        left = (logits == rough).all(1)
        counts[0] += int(left.sum())
        counts[1] += int((left & (logits.argmax(1) != exact.argmax(1))).sum())
        return logits

    with patch.object(Passes, "_judged", both):
        yield counts


def cases() -> list[Any]:
    quick = {("convolutional-fgsm-trained", attack) for attack in ATTACKS} | {
        (name, "pgd") for name in networks.NETWORKS if name not in networks.TRANSFORMERS
    }
    return [
        pytest.param(name, attack, marks=[] if (name, attack) in quick else [pytest.mark.slow])
        for name in networks.NETWORKS
        for attack in ATTACKS
    ]


@pytest.mark.sampled
@pytest.mark.parametrize(
    "how", [{"screening": "bfloat16_gradients"}, {"screening": None, "dtype": "bfloat16"}], ids=["", "dtype"]
)
@pytest.mark.parametrize(("name", "attack"), cases())
def test_what_is_left_to_bfloat16_is_judged_alike(name: str, attack: str, how: dict[str, Any]) -> None:
    with judging_all() as counts:
        outcomes = run(name, attack, **how)
    judgement = outcomes.evidence()["judgement"]
    assert counts[1] == 0
    assert judgement["above_bound"] == 0
    assert judgement["iterates"] - judgement["in_float32"] == counts[0] > 0


def test_what_holds_out_is_judged_in_float32_on_the_iterate_that_counts() -> None:
    name = "convolutional-fgsm-trained"
    model, _, labels = subject(name)
    outcomes = run(name, "pgd", keep_adversarial=True)
    held = outcomes.correct
    assert 50 < int(held.sum()) < N
    assert outcomes.adversarial is not None
    assert outcomes.margin is not None
    with torch.no_grad():
        exact = -wrong_by(model(outcomes.adversarial[held]), labels[:N][held])
    torch.testing.assert_close(outcomes.margin[held], exact, rtol=1e-5, atol=1e-5)


class Failing(nn.Module):
    """In bfloat16, after some passes, it no longer sees what the attack has changed."""

    def __init__(self, model: nn.Module, after: int) -> None:
        super().__init__()
        self.model, self.left = model, after

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        if torch.is_autocast_enabled("cpu"):
            self.left -= 1
            if self.left < 0:
                return logits + 50 * nn.functional.one_hot(logits.argmax(1), logits.shape[1])
        return logits


def test_a_bound_that_is_refuted_ends_the_run_that_trusted_it() -> None:
    name = "convolutional-fgsm-trained"
    given = subject(name)[0]
    refuted = run(name, "pgd", model=Failing(given, 6))
    judgement = refuted.evidence()["judgement"]
    assert judgement["above_bound"] > 0
    assert judgement["in_float32"] == judgement["iterates"], "the run that counts judged all"
    with patch.object(ErrorBound, "doubtful", lambda self, rough: torch.arange(len(rough))):
        whole = run(name, "pgd", model=Failing(given, 0))
    assert torch.equal(refuted.correct, whole.correct)
    assert refuted.stages == whole.stages


@pytest.mark.costly
def test_on_a_gpu_a_step_waits_once_to_learn_which_iterates_are_near() -> None:
    """And most of its rows take no pass in float32."""
    with emulated_device() as device:
        waits = []
        doubtful = ErrorBound.doubtful

        def counted(self: ErrorBound, rough: Tensor) -> Tensor:
            before = device.waits.total()
            rows = doubtful(self, rough)
            waits.append(device.waits.total() - before)
            return rows

        with patch.object(ErrorBound, "doubtful", counted):
            outcomes = run("convolutional-fgsm-trained", "pgd", device=device.device)
    assert max(waits) == 1
    judgement = outcomes.evidence()["judgement"]
    assert judgement["in_float32"] < 0.5 * judgement["iterates"]
