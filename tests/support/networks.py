"""Small trained networks of the tests, from stored weights: a training rounds differently on each processor.

`python -m tests.support.networks NAME ...` trains them anew into `tests/vectors/networks`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from assay.models.layers.layers import Classifier
from assay.models.rpc_symvit import rpc_symvit
from assay.models.symvit import symvit
from assay.workers.data.digits import digits as digits_data
from assay.workers.training.loop import train
from assay.workers.training.recipes.small_vit import small_vit

FOLDER = Path(__file__).resolve().parents[1] / "vectors" / "networks"
SHAPE: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 8,
    "depth": 1,
    "width": 32,
    "heads": 2,
    "drop_path": 0.0,
}
TRANSFORMERS = {"symvit": symvit, "rpc_symvit": rpc_symvit}
MEAN, STD = 0.3, 0.4
# The examples before these are held out.
CONVOLUTIONAL_FROM, GELU_FROM, REGULARISED_FROM = 60, 500, 40


def digits() -> tuple[Tensor, Tensor]:
    """Handwritten digits, (1797, 1, 8, 8) in [0, 1], and their classes."""
    bunch = load_digits()
    return torch.tensor(bunch.images, dtype=torch.float32)[:, None] / 16, torch.tensor(bunch.target).long()


def perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


def convolutional() -> nn.Sequential:
    features = nn.Conv2d(1, 6, 3, 2, 1), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*features, nn.Linear(96, 32), nn.ReLU(), nn.Linear(32, 10))


def gelu() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.GELU(), nn.Linear(48, 10))


def regularised() -> nn.Sequential:
    """Dropout and batch normalisation, which a run could disturb."""
    hidden = nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2)
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(32, 10))


def transformer(name: str) -> Classifier:
    data = digits_data(None, "train")
    return Classifier(TRANSFORMERS[name](data.classes, data.channels, **SHAPE), data.mean, data.std)


def fitted(
    model: nn.Sequential, pixels: Tensor, labels: Tensor, *, steps: int, rate: float, epsilon: float = 0.0
) -> None:
    """Steps on all examples, on those of FGSM where epsilon is above 0."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        batch = attacked(model, pixels, labels, epsilon) if epsilon else pixels
        optimizer.zero_grad()
        cross_entropy(model(batch), labels).backward()
        optimizer.step()


def fitted_in_batches(model: nn.Sequential, pixels: Tensor, labels: Tensor, *, epsilon: float) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(8):
        for rows in torch.randperm(len(pixels)).split(64):
            batch = attacked(model, pixels[rows], labels[rows], epsilon)
            optimizer.zero_grad()
            cross_entropy(model(batch), labels[rows]).backward()
            optimizer.step()


def attacked(model: nn.Sequential, pixels: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    batch = pixels.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(cross_entropy(model(batch), labels), batch)
    return (pixels + epsilon * gradient.sign()).clamp(0, 1)


def fit_perceptron(model: nn.Sequential, epsilon: float) -> None:
    fitted(model, *digits(), steps=60, rate=0.02, epsilon=epsilon)


def fit_blind(model: nn.Sequential) -> None:
    """The first pixel, which is always white, has no say."""
    pixels, labels = digits()
    pixels[:, 0, 0, 0] = 0
    fitted(model, pixels, labels, steps=80, rate=0.02)


def fit_convolutional(model: nn.Sequential, epsilon: float) -> None:
    pixels, labels = digits()
    fitted_in_batches(model, pixels[CONVOLUTIONAL_FROM:], labels[CONVOLUTIONAL_FROM:], epsilon=epsilon)


def fit_normalized(model: nn.Sequential, start: int, steps: int) -> None:
    pixels, labels = digits()
    fitted(model, (pixels[start:] - MEAN) / STD, labels[start:], steps=steps, rate=0.01)


def fit_transformer(model: Classifier) -> None:
    recipe = small_vit(epochs=9, learning_rate=4e-3, warmup_epochs=1, shift=0.0, rotate=0.0, scale=0.0)
    with tempfile.TemporaryDirectory() as folder:
        train(
            model,
            digits_data(None, "train"),
            recipe,
            seed=0,
            image_size=SHAPE["image_size"],
            batch_size=64,
            device=torch.device("cpu"),
            dtype=torch.float32,
            folder=Path(folder),
            checkpoint_seconds=3600,
            report=lambda _: None,
        )


# How each is built, how it was trained, and the seed before both.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[..., None], int]] = {
    "undefended": (perceptron, lambda model: fit_perceptron(model, 0.0), 0),
    "fgsm-trained": (perceptron, lambda model: fit_perceptron(model, 0.15), 0),
    "blind": (perceptron, fit_blind, 0),
    "blind-twin": (perceptron, fit_blind, 1),
    "convolutional": (convolutional, lambda model: fit_convolutional(model, 0.0), 0),
    "convolutional-fgsm-trained": (convolutional, lambda model: fit_convolutional(model, 0.15), 0),
    "gelu": (gelu, lambda model: fit_normalized(model, GELU_FROM, 60), 0),
    "regularised": (regularised, lambda model: fit_normalized(model, REGULARISED_FROM, 40), 0),
    "symvit": (lambda: transformer("symvit"), fit_transformer, 0),
    "rpc_symvit": (lambda: transformer("rpc_symvit"), fit_transformer, 0),
}


def network(name: str) -> nn.Module:
    """The trained network, in evaluation mode; each call answers with its own."""
    model = NETWORKS[name][0]()
    model.load_state_dict(load_file(FOLDER / f"{name}.safetensors"))
    return model.eval()


def make(name: str) -> None:
    build, fit, seed = NETWORKS[name]
    torch.manual_seed(seed)
    model = build()
    fit(model)
    save_file(model.state_dict(), FOLDER / f"{name}.safetensors")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or NETWORKS:
        make(name)
