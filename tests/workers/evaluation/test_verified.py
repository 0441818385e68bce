"""Verified margins against exact ones by linear programs, against attacks, and what is refused."""

from __future__ import annotations

import importlib.util
from itertools import product
from typing import Any

import numpy
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor, nn

from assay.attacks.adversarial.pgd import pgd
from assay.attacks.randomness import Randomness
from assay.models.layers.layers import Classifier
from assay.service.metrics.table import Context
from assay.service.metrics.tables.verification import Verified
from assay.workers.evaluation.engine.attack import bound_operators, linear_bounds
from assay.workers.evaluation.engine.attack.bound_operators import UnsupportedModel
from assay.workers.evaluation.engine.attack.linear_bounds import MarginBounds, proved
from assay.workers.evaluation.engine.protocols import attack_pixel
from assay.workers.evaluation.verified import verified
from assay.workers.jobs.evaluate import check_folders
from tests.support import networks
from tests.support.shards import Given, shard

pytestmark = pytest.mark.filterwarnings("ignore")

METHODS = ["IBP", "CROWN", "alpha-CROWN"]
IMAGES, LABELS = (values[:24] for values in networks.digits())


def tiny() -> nn.Sequential:
    """Two pixels, four hidden units, two classes."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2)).eval()


def exact_margin(model: nn.Sequential, image: Tensor, label: int, epsilon: float) -> float:
    """The smallest margin over the box, by a linear program for each of the 16 activation patterns."""
    hidden, out = ((layer.weight.double().detach(), layer.bias.double().detach()) for layer in model[1::2])
    low, high = (image.double().flatten() + sign * epsilon for sign in (-1, 1))
    box = list(zip(low.clamp(0, 1).tolist(), high.clamp(0, 1).tolist(), strict=True))
    row, offset = out[0][label] - out[0][1 - label], float(out[1][label] - out[1][1 - label])
    found = []
    for pattern in product((0.0, 1.0), repeat=4):
        on = torch.tensor(pattern).double()
        signs = (1 - 2 * on)[:, None]
        solved = linprog(
            ((row * on) @ hidden[0]).numpy(),
            A_ub=(signs * hidden[0]).numpy(),
            b_ub=-(signs[:, 0] * hidden[1]).numpy(),
            bounds=box,
        )
        if solved.success:
            found.append(solved.fun + float((row * on) @ hidden[1]) + offset)
    return min(found)


@pytest.mark.costly
@pytest.mark.parametrize("method", METHODS)
def test_bounds_are_below_the_exact_margins_and_near_them(method: Any) -> None:
    model = tiny()
    images = torch.rand(24, 1, 1, 2, generator=torch.Generator().manual_seed(0))
    labels = model(images).argmax(1)
    for epsilon, most in ((0.02, 0.05), (0.1, 0.3)):
        bounds, logits = MarginBounds(model, images[:1], method).lower(images, labels, "Linf", epsilon)
        exact = [exact_margin(model, *pair, epsilon) for pair in zip(images, labels.tolist(), strict=True)]
        gaps = torch.tensor(exact) - bounds[:, 0]
        assert gaps.min() > -1e-5
        assert gaps.max() < most
        # No example is verified beyond its exact robustness.
        assert not (proved(bounds, logits) & (torch.tensor(exact) <= 0)).any()
    tight = MarginBounds(model, images[:1], "CROWN").lower(images, labels, "Linf", 1e-4)[0][:, 0]
    clean = model(images).detach().gather(1, torch.stack([labels, 1 - labels], 1)).diff(dim=1)[:, 0]
    torch.testing.assert_close(tight, -clean, rtol=0, atol=2e-3)


NETWORKS = {
    "fgsm-trained": 0.03,
    "convolutional-fgsm-trained": 0.03,
    "regularised": 0.02,
    "gelu": 0.01,
    "normalised": 0.03,
}


def model_of(name: str) -> nn.Module:
    if name == "normalised":  # as every model of a job: pixels are normalised by its wrapper
        return Classifier(networks.network("convolutional"), (0.1,), (0.8,)).eval()
    return networks.network(name)


@pytest.mark.sampled
@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NETWORKS)
def test_no_attack_in_the_ball_breaks_a_verified_example(name: str, method: Any, norm: Any) -> None:
    model, epsilon = model_of(name), NETWORKS[name] * (1 if norm == "Linf" else 4)
    if name == "gelu" and method != "IBP":
        with pytest.raises(UnsupportedModel, match="Erf"):
            MarginBounds(model, IMAGES[:1], method)
        return
    bounds, logits = MarginBounds(model, IMAGES[:1], method).lower(IMAGES, LABELS, norm, epsilon)
    safe = proved(bounds, logits)
    ids = [str(row) for row in range(len(IMAGES))]
    attack = pgd(norm=norm, epsilon=epsilon, steps=20, restarts=2)
    outcomes = attack_pixel(
        attack,
        model,
        lambda rows: IMAGES[list(rows)],
        LABELS,
        ids,
        randomness=Randomness(0, "pgd"),
        batch_size=24,
        keep_adversarial=True,
    )
    assert outcomes.correct[safe].all()
    if method != "IBP":
        assert safe.any()
    # The margins of the strongest images found are not below the bounds either.
    assert outcomes.adversarial is not None
    with torch.no_grad():
        found = model(outcomes.adversarial)
    for row, label in enumerate(LABELS.tolist()):
        margins = torch.stack([found[row, label] - found[row, j] for j in range(10) if j != label])
        assert (margins >= bounds[row] - 1e-3).all()


@pytest.mark.costly
def test_tighter_methods_verify_no_less_and_larger_balls_no_more() -> None:
    model = networks.network("convolutional-fgsm-trained")
    shares = {}
    for method in METHODS:
        margins = MarginBounds(model, IMAGES[:1], method)  # type: ignore[arg-type]
        shares[method] = [
            int(proved(*margins.lower(IMAGES, LABELS, "Linf", epsilon)).sum()) for epsilon in (0.01, 0.04)
        ]
        assert shares[method][0] >= shares[method][1]
    assert shares["IBP"] <= shares["CROWN"] <= shares["alpha-CROWN"]
    assert shares["CROWN"][1] > 0


@pytest.mark.costly
def test_alpha_crown_optimises_its_slopes() -> None:
    # Two convolutions, the second of more neurons than a linear layer here has.
    torch.manual_seed(0)
    first, second = nn.Conv2d(1, 8, 3, 1, 1), nn.Conv2d(8, 8, 4, 2, 1)
    deep = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(128, 10)).eval()
    for model, epsilon in ((networks.network("convolutional"), 24 / 255), (deep, 0.05)):
        crown, alpha = (
            MarginBounds(model, IMAGES[:1], method, 10).lower(IMAGES[:4], LABELS[:4], "Linf", epsilon)[0]  # type: ignore[arg-type]
            for method in ("CROWN", "alpha-CROWN")
        )
        # The sum over classes is what is optimised.
        assert (alpha.sum(1) > crown.sum(1)).all()


@pytest.mark.parametrize("name", ["symvit", "rpc_symvit"])
def test_transformers_have_interval_bounds_that_hold(name: str) -> None:
    model = networks.network(name)
    images = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    labels = model(images).argmax(1)
    bounds, _ = MarginBounds(model, images[:1], "IBP").lower(images, labels, "Linf", 1e-7)
    logits = model(images).detach()
    for row, label in enumerate(labels.tolist()):
        margins = torch.stack([logits[row, label] - logits[row, j] for j in range(10) if j != label])
        assert (bounds[row] <= margins).all()
    with pytest.raises(UnsupportedModel, match="Erf"):
        MarginBounds(model, images[:1], "CROWN")


def test_outcomes_do_not_depend_on_batches_and_have_a_table() -> None:
    model = networks.network("fgsm-trained")
    data = Given(
        [str(row) for row in range(24)], classes=10, images=lambda rows: IMAGES[list(rows)], labels=LABELS
    )
    whole = verified(epsilon=0.06).measure(shard(model, data, batch_size=24)).columns()
    part = verified(epsilon=0.06).measure(shard(model, data, [7, 2], batch_size=1)).columns()
    for name, values in part.items():
        assert values == [whole[name][7], whole[name][2]], name
    summary = Verified().summarise(whole, Context())
    right, safe = whole["clean_correct"], whole["verified"]
    assert summary.metrics["verified_top1"].value == sum(safe) / 24
    assert 0 < sum(safe) < sum(right) <= 24
    assert not any(one and not other for one, other in zip(safe, right, strict=True))
    assert summary.metrics["verified_top1"].ci_method == "wilson"


def test_an_unsound_relaxation_of_the_library_is_refused() -> None:
    class Root(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return (images.flatten(1)[:, :3] + 1).sqrt()

    with pytest.raises(UnsupportedModel, match="no sound bounds by CROWN: the model itself: Sqrt"):
        MarginBounds(Root(), IMAGES[:1], "CROWN")
    bounds, _ = MarginBounds(Root(), IMAGES[:1], "IBP").lower(IMAGES, LABELS % 3, "Linf", 0.1)
    assert bounds.isfinite().all()


def test_intervals_of_a_quotient_hold_for_negative_numbers() -> None:
    class Quotient(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            pixels = images.flatten(1)
            return torch.stack([(pixels[:, 0] - 2) / (pixels[:, 9] + 0.5), pixels[:, 0] * 0], 1)

    images, labels = torch.full((1, 1, 8, 8), 0.5), torch.tensor([0])
    bounds, _ = MarginBounds(Quotient(), images, "IBP").lower(images, labels, "Linf", 0.25)
    # (0.25 - 2) / 0.75, the least numerator over the least divisor.
    assert bounds.item() == pytest.approx(-1.75 / 0.75, rel=1e-5)


def test_a_missing_library_is_told_when_the_job_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    present = importlib.util.find_spec
    monkeypatch.setattr(
        bound_operators.importlib.util,
        "find_spec",
        lambda name: None if name == "auto_LiRPA" else present(name),
    )
    with pytest.raises(ValueError, match="verified needs auto_LiRPA: install it with"):
        verified().check(None)  # type: ignore[attr-defined]
    params = {"norm": "Linf", "epsilon": 0.01, "method": "IBP", "iterations": 1}
    with pytest.raises(ValueError, match="verified needs auto_LiRPA"):
        check_folders({"name": "verified", "params": params, "data": None})


def test_labels_are_numbered_from_the_true_class() -> None:
    rows = linear_bounds._differences(torch.tensor([1]), 3).numpy()
    assert numpy.array_equal(rows, [[[-1, 1, 0], [0, 1, -1]]])
