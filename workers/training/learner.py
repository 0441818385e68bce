"""One optimiser step, and everything that one step leaves to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from workers.training.augment import mix, move_maps, move_pixels
from workers.training.optimisers import adamw
from workers.training.pixels import pixel_loss
from workers.training.randomness import seed_layers
from workers.training.recipe import Recipe


class StepResult(NamedTuple):
    """Of a batch before the update: the mean loss, and how many of its examples or pixels were right.

    `judged` is how many there were; a pixel without a class is not judged.
    """

    loss: float
    correct: int
    judged: int


class Learner:
    """A classifier, its optimiser and the average of its weights."""

    def __init__(
        self,
        classifier: nn.Module,
        recipe: Recipe,
        *,
        seed: int,
        classes: int,
        device: torch.device,
        dtype: torch.dtype,
    ):
        """Move the classifier to the device and choose its arithmetic.

        Args:
            classifier: maps pixels (B, C, S, S) in [0, 1] to logits (B, K); trained in place.
            recipe: how to train.
            seed: keys augmentation, dropout and drop-path.
            classes: K.
            device: where to compute.
            dtype: float32 or float64 for everything; bfloat16 keeps the weights and the loss in
                float32 and computes the layers under autocast.
        """
        self._dtype = dtype
        self._weights_dtype = torch.float32 if dtype is torch.bfloat16 else dtype
        self.classifier = classifier.to(device, self._weights_dtype)
        self._recipe = recipe
        self._seed = seed
        self._classes = classes
        self._device = device
        self._optimiser = adamw(self.classifier, recipe)
        self._trained = [p for group in self._optimiser.param_groups for p in group["params"]]
        self._average = None
        if recipe.ema_decay is not None:
            self._average = AveragedModel(
                self.classifier, multi_avg_fn=get_ema_multi_avg_fn(recipe.ema_decay), use_buffers=True
            )

    @property
    def average(self) -> nn.Module | None:
        """The classifier with averaged weights; None when the recipe keeps no average."""
        return None if self._average is None else self._average.module

    def update(self, images: Tensor, labels: Tensor, *, step: int, learning_rate: float) -> StepResult:
        """Do one optimiser step.

        Args:
            images: (B, C, S, S) in [0, 1], before augmentation.
            labels: int64 (B,), or of segmentation label maps, (B, S, S).
            step: number of steps done before; keys all randomness.
            learning_rate: of this step.
        """
        recipe = self._recipe
        key = {"seed": self._seed, "step": step}
        moved = move_pixels(images.to(self._weights_dtype), recipe.augmentation, **key)
        if labels.dim() == 1:
            mixed, target = mix(moved, labels, recipe.augmentation, classes=self._classes, **key)
        else:
            mixed, target = moved, move_maps(labels, recipe.augmentation, **key)
        seed_layers(self._seed, step, self._device)
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._dtype is torch.bfloat16):
            logits = self.classifier(mixed)  # (B, K), or of segmentation (B, K, S, S)
        logits = logits.to(self._weights_dtype)
        if labels.dim() == 1:
            loss = functional.cross_entropy(logits, target, label_smoothing=recipe.label_smoothing)
            correct = (logits.detach().argmax(dim=1) == labels).sum()
            judged = torch.tensor(len(labels), device=loss.device)
        else:
            loss, correct, judged = pixel_loss(logits, target, recipe.label_smoothing)
        loss.backward()
        self._apply_gradients(learning_rate)
        # One transfer from the device for all numbers.
        numbers = torch.stack([loss.detach().double(), correct.double(), judged.double()]).tolist()
        return StepResult(loss=numbers[0], correct=int(numbers[1]), judged=int(numbers[2]))

    def _apply_gradients(self, learning_rate: float) -> None:
        if self._recipe.clip_norm is not None:
            nn.utils.clip_grad_norm_(self._trained, self._recipe.clip_norm)
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        if self._average is not None:
            self._average.update_parameters(self.classifier)

    def weights_are_finite(self) -> bool:
        """Whether no trained weight is NaN or infinite."""
        return all(bool(torch.isfinite(weight).all()) for weight in self._trained)

    def state(self) -> dict[str, object]:
        """Tensors and plain values from which `restore` continues exactly here."""
        average = None if self._average is None else self._average.state_dict()
        return {
            "classifier": self.classifier.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "average": average,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.classifier.load_state_dict(state["classifier"])
        self._optimiser.load_state_dict(state["optimiser"])
        if self._average is not None:
            self._average.load_state_dict(state["average"])
