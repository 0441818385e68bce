"""Attacks as evaluations: runs attack components over a shard of images, series or segmentation images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from assay.attacks.ensemble import Ensemble
from assay.attacks.kernel import Attack, Forward
from assay.attacks.randomness import Randomness
from assay.attacks.segmentation.kernel import PixelEnsemble
from assay.attacks.segmentation.losses import class_weights
from assay.service.contract.gallery import GalleryImage
from assay.workers.evaluation.engine.attack.both_protocols import attack_shard
from assay.workers.evaluation.engine.forward import Passes
from assay.workers.evaluation.engine.gallery.candidates import Candidates, safely
from assay.workers.evaluation.engine.gallery.images import PixelSpace, attacked_images
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.segmentation.attack import attack_segmentation
from assay.workers.evaluation.engine.segmentation.attacked import AttackedPixels
from assay.workers.evaluation.engine.series import attack_series
from assay.workers.evaluation.engine.shard import Shard


@runtime_checkable
class WithOtherModel(Protocol):
    """An attack that needs the models of other jobs."""

    @property
    def jobs(self) -> Sequence[str]:
        """Ids of the training jobs that the models come from."""

    def on(self, sources: Sequence[Forward]) -> Attack:
        """The same attack with its other models, in the order of the jobs."""


@dataclass(frozen=True)
class ClassifierAttack:
    """An attack on a classifier, under the shard's protocol."""

    attack: Attack | Ensemble

    def measure(self, shard: Shard) -> ExampleOutcomes:
        """Attacks every example of the shard; a ValueError as `attack_pixel`."""
        attack = self.attack
        if isinstance(attack, WithOtherModel):
            attack = attack.on([Passes(shard.others[job], shard.device) for job in attack.jobs])
        candidates, model = Candidates(shard.ranks), shard.classifier
        randomness = Randomness(shard.seed, attack.name)
        outcomes = attack_shard(attack, shard, shard.inputs, randomness, candidates, pixel_model=model)

        def items() -> list[GalleryImage]:
            space = PixelSpace.of(model, normalised=shard.protocol == "paper")
            return attacked_images(candidates, outcomes, space, attack.ball)

        return replace(outcomes, gallery=safely(items))


@dataclass(frozen=True)
class SeriesAttack:
    """An attack on a classifier of time series."""

    attack: Attack | Ensemble

    def measure(self, shard: Shard) -> ExampleOutcomes:
        """Attacks every standardised series of the shard; a ValueError as `attack_series`."""
        return attack_series(self.attack, shard)


@dataclass(frozen=True)
class SegmentationAttack:
    """An attack on a segmentation model; there is one protocol."""

    ensemble: PixelEnsemble

    def measure(self, shard: Shard) -> AttackedPixels:
        """Attacks every image of the shard; the planned `class_pixels` weight balanced losses."""
        pixels = shard.planned.get("class_pixels")
        return attack_segmentation(
            self.ensemble,
            shard.classifier,
            shard.inputs,
            shard.truth,
            shard.ids,
            classes=shard.classes,
            seed=shard.seed,
            class_weights=None if pixels is None else class_weights(pixels),
            screening=shard.screening,
            capture=shard.capture,
            preparing=shard.preparing,
            compiled=shard.compiled,
            keep_adversarial=shard.save_adversarial,
            ranks=shard.ranks,
            staged=shard.staged,
            **shard.running,
        )
