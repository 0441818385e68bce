"""DDN, FMN and sigma-zero: results of adversarial-library, smallest adversarials, batches, bad values."""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.carlini_wagner import carlini_wagner
from assay.attacks.adversarial.ddn import ddn
from assay.attacks.adversarial.fmn import fmn
from assay.attacks.adversarial.sigma_zero import sigma_zero
from assay.attacks.kernel import Attack
from assay.attacks.randomness import Randomness
from assay.attacks.threat import BallNorm, sizes
from assay.models.layers.layers import Classifier
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.support import networks

# A case is one network, norm or size of one law: a sixteenth of them in each commit.
pytestmark = pytest.mark.sampled

N = 60
IDS = [f"digit-{number:04d}" for number in range(N)]
NORMS: dict[BallNorm, float] = {"Linf": float("inf"), "L2": 2, "L1": 1, "L0": 0}
OURS: dict[str, Callable[..., Attack]] = {
    "ddn": lambda **more: ddn(**{"steps": 40} | more),
    **{f"fmn-{norm}": lambda norm=norm, **more: fmn(**{"norm": norm, "steps": 40} | more) for norm in NORMS},  # type: ignore[misc]
    "sigma_zero": lambda **more: sigma_zero(**{"steps": 60} | more),
}
NORM_OF: dict[str, BallNorm] = {"ddn": "L2", "sigma_zero": "L0"} | {f"fmn-{norm}": norm for norm in NORMS}
each = pytest.mark.parametrize("name", OURS)


@pytest.fixture(scope="module")
def images() -> Tensor:
    return networks.digits()[0][:N].double()


@pytest.fixture(scope="module")
def labels() -> Tensor:
    return networks.digits()[1][:N]


@pytest.fixture(scope="module")
def network() -> nn.Module:
    model = Classifier(networks.network("gelu"), [networks.MEAN], [networks.STD])
    return model.eval().double()


def run(attack: Attack, model: nn.Module, images: Tensor, labels: Tensor, **more: Any) -> ExampleOutcomes:
    arguments: dict[str, Any] = {"batch_size": 16, "dtype": "float64", "keep_adversarial": True, **more}
    return attack_pixel(
        *(attack, model, lambda rows: images[list(rows)].float(), labels, IDS[: len(labels)]),
        randomness=Randomness(0, attack.name),
        **arguments,
    )


def found(outcomes: ExampleOutcomes) -> Tensor:
    assert outcomes.adversarial is not None
    return outcomes.adversarial


def theirs(name: str, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """The library's result; it imports a plotting tool that it does not need."""
    sys.modules.setdefault("visdom", types.ModuleType("visdom"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from adv_lib import attacks as library

    if name == "ddn":
        return library.ddn(model, images, labels, steps=40, levels=None)
    if name == "sigma_zero":
        return library.sigma_zero(model, images, labels, num_steps=60)
    return library.fmn(model, images, labels, norm=NORMS[NORM_OF[name]], steps=40)


@each
def test_results_are_those_of_the_library(
    name: str, network: nn.Module, images: Tensor, labels: Tensor
) -> None:
    """With the library's rule before the first adversarial; its DDN keeps radii in float32."""
    own = images.float().double()
    attack = OURS[name](overshoot=False) if name.startswith("fmn") else OURS[name]()
    ours, other = run(attack, network, own, labels), theirs(name, network, own, labels)
    attacked = ours.clean_correct
    tolerance = 2e-6 if name == "ddn" else 1e-9
    torch.testing.assert_close(found(ours)[attacked], other[attacked], rtol=0, atol=tolerance)


@each
def test_the_smallest_adversarial_of_all_iterates_counts(
    name: str, network: nn.Module, images: Tensor, labels: Tensor
) -> None:
    seen: list[tuple[Tensor, Tensor]] = []
    attack = OURS[name]()
    step = type(attack).step

    def watched(self: Attack, setting: Any, model: Any, state: Any) -> None:
        points, logits = state["adversarial"].clone(), model(state["adversarial"])
        seen.append((sizes(points - state["images"], NORM_OF[name]), logits.argmax(1) != state["truth"]))
        step(self, setting, model, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(attack), "step", watched)
        outcomes = run(attack, network, images, labels, batch_size=N)
    attacked = outcomes.clean_correct.nonzero().flatten()
    # All slots leave together: rows of the batch are the attacked examples, in order.
    all_sizes = torch.stack([size.where(wrong, torch.inf) for size, wrong in seen]).amin(0)
    ours = sizes(found(outcomes) - images.float().double(), NORM_OF[name])[attacked]
    broken = ~outcomes.correct[attacked]
    assert int(broken.sum()) > 45
    torch.testing.assert_close(ours[broken], all_sizes[broken], rtol=1e-6, atol=1e-9)
    assert (all_sizes[~broken] == torch.inf).all()
    column = {"L2": outcomes.l2, "Linf": outcomes.linf, "L1": outcomes.l1, "L0": outcomes.l0}[NORM_OF[name]]
    assert column is not None
    torch.testing.assert_close(column[attacked][broken], ours[broken].double())


@each
def test_an_example_depends_on_no_other(
    name: str, network: nn.Module, images: Tensor, labels: Tensor
) -> None:
    whole, parts = (run(OURS[name](), network, images, labels, batch_size=size) for size in (N, 7))
    assert torch.equal(whole.correct, parts.correct)
    torch.testing.assert_close(found(whole), found(parts), rtol=0, atol=1e-9)
    assert torch.equal(whole.forward, parts.forward)


@each
def test_classes_that_are_switched_off_change_nothing(
    name: str, network: nn.Module, images: Tensor, labels: Tensor
) -> None:
    class Masked(nn.Module):
        def forward(self, points: Tensor) -> Tensor:
            logits: Tensor = network(points)
            return torch.cat([logits, torch.full_like(logits[:, :2], -torch.inf)], dim=1)

    plain, masked = (run(OURS[name](), model, images, labels) for model in (network, Masked()))
    assert int((plain.clean_correct & ~plain.correct).sum()) > 45
    assert torch.equal(masked.correct, plain.correct)
    torch.testing.assert_close(found(masked), found(plain), rtol=0, atol=1e-9)


@pytest.mark.parametrize("norm", NORMS)
def test_the_boundary_of_smooth_models_is_crossed(
    norm: BallNorm, network: nn.Module, images: Tensor, labels: Tensor
) -> None:
    """With the authors' radius it stays short of it in L2, and for some examples in L1."""
    outcomes = run(fmn(norm=norm, steps=50), network, images, labels)
    assert not outcomes.correct.any()
    short = run(fmn(norm=norm, steps=50, overshoot=False), network, images, labels)
    assert (int(short.correct.sum()) > 5) == (norm in ("L2", "L1"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ddn", "fmn-L2"])
def test_distances_are_those_of_carlini_and_wagner_at_a_tenth_of_the_passes(
    name: str, network: nn.Module, images: Tensor, labels: Tensor
) -> None:
    """Medians within a thousandth; means are smaller. `benchmarks.minimal_perturbations` has larger nets."""
    slow = run(carlini_wagner(searches=5, iterations=200, learning_rate=0.01), network, images, labels)
    fast = run(OURS[name](steps=100), network, images, labels)
    assert slow.l2 is not None
    assert fast.l2 is not None
    assert not fast.correct.any()
    attacked = slow.clean_correct
    assert float(fast.l2[attacked].median()) <= 1.001 * float(slow.l2[attacked].median())
    assert float(fast.l2[attacked].mean()) < float(slow.l2[attacked].mean())
    assert 10 * float(fast.forward[attacked].sum()) <= 1.03 * float(slow.forward[attacked].sum())


def test_targets_are_reached(network: nn.Module, images: Tensor, labels: Tensor) -> None:
    aimed: dict[str, Any] = {"steps": 60, "targeted": True, "target": "next"}
    for attack in (ddn(**aimed), fmn(norm="L2", **aimed)):
        outcomes = run(attack, network, images, labels)
        assert outcomes.hit is not None
        broken = outcomes.clean_correct & ~outcomes.correct
        assert int(broken.sum()) > 45
        assert torch.equal(outcomes.hit, broken)
        assert torch.equal(outcomes.prediction[broken], (labels[broken] + 1) % 10)


def test_levels_of_pixels(network: nn.Module, images: Tensor, labels: Tensor) -> None:
    outcomes = run(ddn(steps=40, levels=17), network, images, labels)
    steps = found(outcomes) * 16
    torch.testing.assert_close(steps, steps.round(), rtol=0, atol=1e-5)
    assert int((outcomes.clean_correct & ~outcomes.correct).sum()) > 45


@each
def test_a_model_that_never_errs_keeps_its_images(name: str, images: Tensor, labels: Tensor) -> None:
    class Right(nn.Module):
        def forward(self, points: Tensor) -> Tensor:
            known = nn.functional.one_hot(labels[: len(points)], 10).to(points)
            return known + 0 * points.flatten(1).sum(1, keepdim=True)

    outcomes = run(OURS[name](), Right(), images, labels, batch_size=N)
    assert outcomes.correct.all()
    assert outcomes.zero_gradient == N
    assert outcomes.l2 is not None
    assert (outcomes.l2 == 0).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ddn(steps=1), "steps is 1, it must be at least 2"),
        (lambda: ddn(norm="Linf"), "norm is 'Linf', allowed is L2"),  # type: ignore[arg-type]
        (lambda: sigma_zero(norm="L2"), "norm is 'L2', allowed is L0"),  # type: ignore[arg-type]
        (lambda: fmn(norm="L3"), "norm is 'L3', allowed are Linf, L2, L1, L0"),  # type: ignore[arg-type]
    ],
)
def test_bad_values(make: Callable[[], Attack], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
