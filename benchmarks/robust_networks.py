"""Adversarially trained CIFAR-10 networks: `python -m benchmarks.robust_networks --data ROOT --state DIR`.

A small ViT and a small ResNet, each with 10 and with 100 classes, trained on FGSM examples from random starts
(Wong, Rice and Kolter 2020, "Fast is better than free", step 1.25 epsilon) at 4/255. Each is kept in DIR and
trained once. ROOT is a data root with `cifar10/cifar-10-batches-bin`.

The 100 classes are not CIFAR-100's: every class of CIFAR-10 is cut into 10 by k-means on its training images
reduced to 8 x 8 pixels, and a test image belongs to the nearest centre of its class. What matters to attacks
is that there are 100 logits, and that classes of one kind look alike.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from sklearn.cluster import KMeans
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy

from assay.models.layers.layers import Classifier
from assay.models.vit import vit
from assay.workers.data.cifar10 import MEAN, STD, cifar10

EPSILON = 4 / 255
SHAPE = {"image_size": 32, "patch_size": 4, "depth": 2, "width": 64, "heads": 4, "mlp_ratio": 2.0}
BATCH, PARTS, WIDTH = 128, 10, 24


@dataclass(frozen=True)
class Recipe:
    """How a network is built and trained."""

    kind: str
    classes: int
    epochs: float
    rate: float


NETWORKS = {
    "resnet-10": Recipe("resnet", 10, 4, 0.01),
    "vit-10": Recipe("vit", 10, 3, 2e-3),
    "resnet-100": Recipe("resnet", 100, 4, 0.01),
    "vit-100": Recipe("vit", 100, 3, 2e-3),
}


class Block(nn.Module):
    """Residual block of two 3 x 3 convolutions with batch normalisation."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, features: Tensor) -> Tensor:
        """Maps features (B, inputs, H, W) to (B, outputs, H / stride, W / stride)."""
        inner = self.norms[0](self.first(features)).relu()
        added: Tensor = self.norms[1](self.second(inner)) + self.skip(features)
        return added.relu()


def resnet(classes: int) -> nn.Sequential:
    """Three residual blocks at 16 x 16, 8 x 8 and 4 x 4 after a convolution of stride 2."""
    stem = nn.Conv2d(3, WIDTH, 3, 2, 1, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU()
    blocks = Block(WIDTH, WIDTH, 1), Block(WIDTH, 2 * WIDTH, 2), Block(2 * WIDTH, 4 * WIDTH, 2)
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * WIDTH, classes))


def built(recipe: Recipe) -> Classifier:
    """Untrained network for pixels in [0, 1]."""
    torch.manual_seed(0)
    if recipe.kind == "resnet":
        return Classifier(resnet(recipe.classes), MEAN, STD)
    return Classifier(vit(recipe.classes, 3, drop_path=0.0, **SHAPE), MEAN, STD)  # type: ignore[arg-type]


def images(root: Path, split: str, classes: int = 10) -> tuple[Tensor, Tensor]:
    """All images of a split, (N, 3, 32, 32) in [0, 1], and their classes among 10 or 100."""
    pixels, labels = _bytes(root, split)
    if classes == 10:
        return pixels, labels
    small = avg_pool2d(pixels, 4).flatten(1).numpy()
    learnt_from, learnt_labels = (small, labels)
    if split != "train":
        learnt, learnt_labels = _bytes(root, "train")
        learnt_from = avg_pool2d(learnt, 4).flatten(1).numpy()
    finer = np.empty(len(labels), dtype=np.int64)
    for label in range(10):
        means = KMeans(PARTS, n_init=1, random_state=0).fit(learnt_from[(learnt_labels == label).numpy()])
        rows = (labels == label).numpy()
        finer[rows] = label * PARTS + means.predict(small[rows])
    return pixels, torch.from_numpy(finer)


def _bytes(root: Path, split: str) -> tuple[Tensor, Tensor]:
    data = cifar10(root, split)  # type: ignore[arg-type]
    return data.images(range(len(data)), 32), data.labels


def attacked(model: nn.Module, pixels: Tensor, labels: Tensor, draws: torch.Generator) -> Tensor:
    """One signed step of 1.25 epsilon from a random start."""
    start = (torch.rand(pixels.shape, generator=draws) * 2 - 1) * EPSILON
    moving = (pixels + start).clamp(0, 1).requires_grad_(True)
    (gradient,) = torch.autograd.grad(cross_entropy(model(moving), labels), moving)
    offset = (moving.detach() + 1.25 * EPSILON * gradient.sign() - pixels).clamp(-EPSILON, EPSILON)
    return (pixels + offset).clamp(0, 1)


def trained(recipe: Recipe, pixels: Tensor, labels: Tensor) -> Classifier:
    """Trains with AdamW on one cycle of the learning rate; flips half of the images."""
    model, draws = built(recipe).train(), torch.Generator().manual_seed(0)
    steps = int(recipe.epochs * (len(pixels) // BATCH))
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.rate, weight_decay=0.01)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.rate, total_steps=steps, pct_start=0.25)
    begun, order = time.process_time(), torch.empty(0, dtype=torch.int64)
    for step in range(steps):
        if len(order) < BATCH:
            order = torch.randperm(len(pixels), generator=draws)
        rows, order = order[:BATCH], order[BATCH:]
        flips = torch.rand(BATCH, generator=draws) < 0.5
        batch = torch.where(flips[:, None, None, None], pixels[rows].flip(3), pixels[rows])
        batch = attacked(model, batch, labels[rows], draws)
        optimizer.zero_grad()
        loss = cross_entropy(model(batch), labels[rows])
        loss.backward()
        optimizer.step()
        cycle.step()
        if step % 100 == 0:
            spent = time.process_time() - begun
            sys.stdout.write(f"  step {step}/{steps} loss {loss.item():.3f} {spent:.0f} CPU s\n")
            sys.stdout.flush()
    return model.eval()


def load(name: str, state: Path) -> Classifier:
    """A network that was trained before."""
    model = built(NETWORKS[name])
    model.load_state_dict(load_file(state / f"{name}.safetensors"))
    return model.eval()


def measured(model: nn.Module, pixels: Tensor, labels: Tensor) -> dict[str, float]:
    """Share right of 1000 test images, clean and after ten signed steps of epsilon / 4."""
    pixels, labels = pixels[:1000], labels[:1000]
    moving, draws = pixels, torch.Generator().manual_seed(1)
    moving = (pixels + (torch.rand(pixels.shape, generator=draws) * 2 - 1) * EPSILON).clamp(0, 1)
    for _ in range(10):
        leaf = moving.requires_grad_(True)
        (gradient,) = torch.autograd.grad(cross_entropy(model(leaf), labels), leaf)
        offset = (leaf.detach() + EPSILON / 4 * gradient.sign() - pixels).clamp(-EPSILON, EPSILON)
        moving = (pixels + offset).clamp(0, 1)
    with torch.no_grad():
        answers = {"clean": model(pixels), "PGD-10 at 4/255": model(moving)}
    return {name: float((logits.argmax(1) == labels).float().mean()) for name, logits in answers.items()}


def main() -> None:
    """Trains what is missing, one network at a time, and prints what each reaches."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.robust_networks", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), metavar="NETWORK")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.state.mkdir(parents=True, exist_ok=True)
    for name in options.networks:
        recipe, report = NETWORKS[name], options.state / f"{name}.json"
        if not report.exists():
            begun = time.process_time()
            model = trained(recipe, *images(options.data, "train", recipe.classes))
            spent = time.process_time() - begun
            save_file(model.state_dict(), options.state / f"{name}.safetensors")
            figures = measured(model, *images(options.data, "test", recipe.classes))
            report.write_text(json.dumps(figures | {"training CPU s": round(spent)}))
        sys.stdout.write(f"{name}: {report.read_text()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
