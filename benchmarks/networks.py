"""Small networks for timing attacks, and their digits."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from assay.workers import catalog

TRAINING_EPSILON = {"usual": 0.0, "fgsm-trained": 0.15}
SHAPE = {"image_size": 16, "patch_size": 4, "depth": 2, "width": 64, "heads": 4}
LARGER_SHAPE = {"image_size": 32, "patch_size": 4, "depth": 4, "width": 128, "heads": 4}


def digits(size: int = 16) -> tuple[Tensor, Tensor]:
    """All digits at size x size (a multiple of 8) in [0, 1], and their classes."""
    bunch = load_digits()
    pixels = torch.tensor(bunch.images, dtype=torch.float32)[:, None] / 16
    larger = nn.functional.interpolate(pixels, scale_factor=size // 8)
    return larger, torch.tensor(bunch.target, dtype=torch.int64)


def cnn(pixels: Tensor, labels: Tensor, epsilon: float) -> nn.Module:
    """Trains a small convolutional network, on FGSM examples if epsilon is above 0."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, padding=1), nn.ReLU()]
    layers += [nn.Conv2d(64, 64, 3, 2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 10)]
    return trained(nn.Sequential(*layers), pixels, labels, epsilon, epochs=6 if epsilon else 3)


def trained(
    model: nn.Module,
    pixels: Tensor,
    labels: Tensor,
    epsilon: float,
    *,
    epochs: int,
    decay: float = 0.0,
    rate: float = 2e-3,
    batch: int = 64,
) -> nn.Module:
    """Trains a network where its images are, on FGSM examples if epsilon is above 0."""
    model.to(pixels.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    for _ in range(epochs):
        for rows in torch.randperm(len(pixels)).split(batch):
            images = pixels[rows].clone().requires_grad_(True)
            if epsilon:
                loss = nn.functional.cross_entropy(model(images), labels[rows])
                (gradient,) = torch.autograd.grad(loss, images)
                images = (images.detach() + epsilon * gradient.sign()).clamp(0, 1)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels[rows]).backward()
            optimizer.step()
    model.zero_grad()
    return model.eval()


def vit(pixels: Tensor, labels: Tensor, epsilon: float) -> nn.Module:
    """Trains a small ViT, on FGSM examples if epsilon is above 0."""
    torch.manual_seed(0)
    model: nn.Module = catalog.build("model", "vit", SHAPE)(10, 1)
    return trained(model, pixels, labels, epsilon, epochs=40 if epsilon else 20, decay=0.01)


def larger_vit(pixels: Tensor, labels: Tensor) -> nn.Module:
    """Trains a ViT the size of `small_vit` at 32 x 32 pixels."""
    torch.manual_seed(0)
    model: nn.Module = catalog.build("model", "vit", LARGER_SHAPE)(10, 1)
    return trained(model, pixels, labels, 0.0, epochs=9, decay=0.01, rate=5e-4, batch=32)
