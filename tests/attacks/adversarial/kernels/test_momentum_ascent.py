"""MI-FGSM and its variants: a plain loop, the transformations by hand, batches, bad values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy.ndimage import convolve
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from assay.attacks.adversarial.kernels.momentum_ascent import shrunk, smoothed
from assay.attacks.adversarial.mi_fgsm import mi_fgsm
from assay.attacks.randomness import Randomness
from assay.models.layers.layers import Classifier
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_paper, attack_pixel
from tests.support import networks

# A case is one network, norm or size of one law: a sixteenth of them in each commit.
pytestmark = pytest.mark.sampled

N = 30
IDS = [f"digit-{number:04d}" for number in range(N)]
EPSILON = 0.1


@pytest.fixture(scope="module")
def network() -> Classifier:
    return Classifier(networks.network("gelu"), [0.0], [1.0]).eval().double()


def run(attack: Any, model: nn.Module, **more: Any) -> ExampleOutcomes:
    images, labels = networks.digits()
    evaluation = more.pop("evaluation", attack_pixel)
    found: ExampleOutcomes = evaluation(
        *(attack, model, lambda rows: images[list(rows)], labels[:N], IDS),
        randomness=Randomness(0, attack.name),
        **{"batch_size": 16, "dtype": "float64", "keep_adversarial": True, **more},
    )
    return found


def loop(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    steps: int,
    norm: str,
    *,
    momentum: float,
    nesterov: bool = False,
    smoothing: int = 1,
    scales: int = 1,
) -> Tensor:
    """The attack as in the papers, image after image, without an early exit and without a range."""
    found = []
    for image, label in zip(images, labels, strict=True):
        point, total, size = image.clone(), torch.zeros_like(image), EPSILON / steps
        for _ in range(steps):
            ahead = point + size * momentum * total if nesterov else point
            gradient = torch.zeros_like(image)
            for number in range(scales):
                leaf = ahead.clone().requires_grad_(True)
                loss = cross_entropy(model((leaf / 2**number)[None]), label[None])
                gradient += torch.autograd.grad(loss, leaf)[0] / scales
            if smoothing > 1:
                gradient = smoothed(gradient[None], smoothing)[0]
            total = momentum * total + gradient / gradient.abs().sum()
            direction = total.sign() if norm == "Linf" else total / total.norm()
            moved = point + size * direction - image
            if norm == "Linf":
                moved = moved.clamp(-EPSILON, EPSILON)
            else:
                moved = moved * min(1.0, EPSILON / float(moved.norm()))
            point = image + moved
        found.append(point)
    return torch.stack(found)


@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize(
    "variant",
    [
        {"momentum": 1.0},
        {"momentum": 0.0},
        {"momentum": 0.9, "nesterov": True},
        {"momentum": 1.0, "smoothing": 3},
        {"momentum": 1.0, "scales": 3},
    ],
    ids=str,
)
def test_it_is_the_loop_of_the_papers(network: Classifier, norm: Any, variant: dict[str, Any]) -> None:
    """In `paper`, which takes the model's predictions as labels, all steps, and the last iterate."""
    images = networks.digits()[0][:N].double()
    with torch.no_grad():
        labels = network(images).argmax(1)
    found = run(mi_fgsm(epsilon=EPSILON, norm=norm, steps=6, **variant), network, evaluation=attack_paper)
    expected = loop(network, images, labels, 6, norm, **variant)
    assert found.adversarial is not None
    torch.testing.assert_close(found.adversarial, expected, rtol=0, atol=1e-9)


def test_a_shrunk_image_is_where_it_was_put() -> None:
    image = torch.ones(1, 1, 20, 20, dtype=torch.float64)
    half = shrunk(image, torch.tensor([[0.5, 0.0, 1.0]], dtype=torch.float64))[0, 0]
    assert half[10:, :10].min() > 0.74  # a border pixel is blended with black
    assert half[11:19, 1:9].min() == pytest.approx(1.0)
    assert half[:9].max() < 1e-9
    assert half[:, 11:].max() < 1e-9
    whole = shrunk(image, torch.tensor([[1.0, 0.3, 0.9]], dtype=torch.float64))
    torch.testing.assert_close(whole, image)


def test_smoothing_is_a_convolution_with_a_normal_kernel() -> None:
    gradient = torch.randn(1, 2, 9, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    line = torch.exp(-torch.linspace(-3, 3, 5, dtype=torch.float64).square() / 2)
    kernel = (line[:, None] * line / (line.sum() ** 2)).numpy()
    expected = [torch.tensor(convolve(part.numpy(), kernel, mode="constant")) for part in gradient[0]]
    torch.testing.assert_close(smoothed(gradient, 5)[0], torch.stack(expected))


def test_shrinking_draws_for_each_example_and_step(network: Classifier) -> None:
    attack = mi_fgsm(epsilon=EPSILON, diversity=0.7, resize=0.6, steps=8)
    whole, parts = (run(attack, network, batch_size=size) for size in (N, 4))
    assert torch.equal(whole.correct, parts.correct)
    torch.testing.assert_close(whole.adversarial, parts.adversarial, rtol=0, atol=1e-9)
    other = run(mi_fgsm(epsilon=EPSILON, steps=8), network)
    assert not torch.equal(whole.adversarial, other.adversarial)  # type: ignore[arg-type]


def test_passes(network: Classifier) -> None:
    plain = run(mi_fgsm(epsilon=1e-9, steps=5), network)
    assert int(plain.forward.max()) == 7  # the clean pass, five with gradients, the last iterate
    scaled = run(mi_fgsm(epsilon=1e-9, steps=5, scales=3, diversity=0.5), network)
    assert int(scaled.forward.max()) == 1 + 6 + 15
    assert int(scaled.backward.max()) == 15


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"smoothing": 4}, "smoothing is 4, it must be odd"),
        ({"diversity": 1.5}, "diversity is 1.5, allowed are 0 to 1"),
        ({"resize": 0.0}, "resize is 0.0, allowed are above 0"),
        ({"scales": 0}, r"scales \(0\) must be at least 1"),
        ({"norm": "L1"}, "norm is 'L1', allowed are Linf, L2"),
    ],
)
def test_bad_values(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mi_fgsm(**wrong)
