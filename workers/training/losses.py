"""The losses of a training step, by the task of the data.

B = examples of a piece, K = classes, S = side of images or steps of a window, N = tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from assay.attacks.kernel import frozen
from assay.models.layers.auxiliary import collected
from assay.models.layers.series_model import RegressionModel
from assay.models.layers.token_model import TokenModel
from assay.workers.data.formats.segmentation import IGNORE
from assay.workers.training.augmentation.augment import mix
from assay.workers.training.distributed.processes import Part
from assay.workers.training.objective import Objective, attack, pixel_loss, plain, robust, starts_of
from assay.workers.training.randomness import seed_layers
from assay.workers.training.recipe import Recipe
from assay.workers.training.trajectories import action_loss, existing

# Computed under autocast, with weights in float32.
MIXED = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Trainee:
    """The model in training, as losses run it."""

    classifier: nn.Module  # on the device, in `weights_dtype`
    recipe: Recipe
    classes: int
    seed: int  # keys augmentation, dropout and drop-path
    device: torch.device
    dtype: torch.dtype  # of the layers' arithmetic
    weights_dtype: torch.dtype

    def autocast(self) -> torch.autocast:
        """The arithmetic of the layers."""
        mixed = self.dtype in MIXED
        return torch.autocast(self.device.type, self.dtype if mixed else None, enabled=mixed)

    def logits(self, images: Tensor) -> Tensor:
        """Logits (B, K), for segmentation (B, K, S, S), in the dtype of the weights."""
        with self.autocast():
            logits: Tensor = self.classifier(images)
        return logits.to(self.weights_dtype)


@dataclass(frozen=True)
class Piece:
    """A piece of this process's part of a batch."""

    part: Part
    step: int  # steps done before
    rank: int  # of the process
    number: int  # of the piece in the process's batch
    counted: Tensor | None  # what `count` found for the whole batch, over all processes


class TrainingLoss:
    """The loss of image classification."""

    judged = True  # whether right answers are counted, beside the loss

    def count(self, inputs: Tensor, truth: Tensor) -> Tensor | None:
        """What the loss is a mean over, in this process; None: examples."""
        return None

    def of(self, trainee: Trainee, inputs: Tensor, truth: Tensor, piece: Piece) -> tuple[Tensor, Tensor]:
        """This piece's share of the loss, and its numbers, float64 (4,).

        The numbers are the loss, the right answers, the judged ones, and the right ones under attack.
        """
        part, step, seed = piece.part, piece.step, trainee.seed
        changes, classes = trainee.recipe.augmentation, trainee.classes
        mixed, target = mix(inputs, truth, changes, classes=classes, part=part, seed=seed, step=step)
        seed_piece(trainee, piece)
        objective = _objective(trainee, mixed, target, step, part)
        loss = share(objective.loss, part)
        return loss, _numbers(loss, objective, truth)


class PixelLoss(TrainingLoss):
    """A mean over labelled pixels."""

    def count(self, inputs: Tensor, truth: Tensor) -> Tensor:
        """Labelled pixels."""
        return (truth != IGNORE).sum()

    def of(self, trainee: Trainee, inputs: Tensor, truth: Tensor, piece: Piece) -> tuple[Tensor, Tensor]:
        """Of label maps (B, S, S)."""
        assert piece.counted is not None
        seed_piece(trainee, piece)
        smoothing, maps = trainee.recipe.label_smoothing, truth.to(torch.int64)
        with collected() as auxiliary:
            loss, correct, judged = pixel_loss(trainee.logits(inputs), maps, smoothing, piece.counted)
        loss = sum((share(added.to(loss), piece.part) for added in auxiliary), loss)
        numbers = [loss.detach(), correct, judged, torch.zeros_like(judged)]
        return loss, torch.stack([number.double() for number in numbers])


class WordLoss(TrainingLoss):
    """A mean over the words of windows."""

    judged = False

    def of(self, trainee: Trainee, inputs: Tensor, truth: Tensor, piece: Piece) -> tuple[Tensor, Tensor]:
        """Of next words (B, N)."""
        seed_piece(trainee, piece)
        model = cast(TokenModel, trainee.classifier)
        with collected() as auxiliary:
            with trainee.autocast():
                losses = model.negative_log_likelihood(inputs, truth)
            loss = losses.to(trainee.weights_dtype).mean()
        return unjudged(share(sum((added.to(loss) for added in auxiliary), loss), piece.part))


class ActionLoss(TrainingLoss):
    """A mean over existing steps."""

    judged = False

    def count(self, inputs: Tensor, truth: Tensor) -> Tensor:
        """Existing steps."""
        return existing(inputs).sum()

    def of(self, trainee: Trainee, inputs: Tensor, truth: Tensor, piece: Piece) -> tuple[Tensor, Tensor]:
        """Of the actions of contexts (B, S)."""
        assert piece.counted is not None
        seed_piece(trainee, piece)
        with collected() as auxiliary:
            loss = action_loss(trainee.logits(inputs), inputs, truth, piece.counted)
        return unjudged(sum((share(added.to(loss), piece.part) for added in auxiliary), loss))


class TargetLoss(TrainingLoss):
    """The mean squared error of standardised targets."""

    judged = False

    def of(self, trainee: Trainee, inputs: Tensor, truth: Tensor, piece: Piece) -> tuple[Tensor, Tensor]:
        """Of targets (B,)."""
        seed_piece(trainee, piece)
        model = cast(RegressionModel, trainee.classifier)
        mean, std = model.target_mean.double(), model.target_std.double()
        wanted = ((truth.double() - mean) / std).to(trainee.weights_dtype)
        with collected() as auxiliary:
            with trainee.autocast():
                outputs: Tensor = model.backbone(model.normalize(inputs))  # (B, 1)
            loss = (outputs[:, 0].to(wanted) - wanted).square().mean()
        return unjudged(share(sum((added.to(loss) for added in auxiliary), loss), piece.part))


def seed_piece(trainee: Trainee, piece: Piece) -> None:
    """Key dropout and drop-path of a piece."""
    seed_layers(trainee.seed, piece.step, trainee.device, piece.rank, piece.number)


def _objective(trainee: Trainee, images: Tensor, target: Tensor, step: int, part: Part) -> Objective:
    training, smoothing = trainee.recipe.adversarial, trainee.recipe.label_smoothing
    if training is None:
        with collected() as auxiliary:
            objective = plain(trainee.logits, images, target, smoothing)
        return objective.plus(auxiliary)
    with frozen(trainee.classifier):
        draws = starts_of(trainee.seed, step, part.rows, images.device)
        attacked = attack(trainee.logits, images, target, training, draws)
    with collected() as auxiliary:
        objective = robust(trainee.logits, images, attacked, target, training, smoothing)
    return objective.plus(auxiliary)


def unjudged(loss: Tensor) -> tuple[Tensor, Tensor]:
    """A loss, with the numbers where only the loss is measured."""
    nothing = torch.zeros((), dtype=torch.float64, device=loss.device)
    return loss, torch.stack([loss.detach().double(), nothing, nothing, nothing])


def share(loss: Tensor, part: Part) -> Tensor:
    """Contribution of a mean over a part of the batch to the mean over the whole."""
    return loss if part.share == 1 else loss * part.share


def _numbers(loss: Tensor, objective: Objective, labels: Tensor) -> Tensor:
    """Share of the loss, correct, judged, and correct under attack: float64 (4,)."""
    right = _right(objective.logits, labels)
    attacked = objective.adversarial_logits
    under_attack = torch.zeros_like(right) if attacked is None else _right(attacked, labels)
    return torch.stack([loss.detach().double(), right, torch.full_like(right, len(labels)), under_attack])


def _right(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.detach().argmax(dim=1) == labels).sum().double()
