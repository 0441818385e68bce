"""Time series under attack or perturbed, in standard deviations of each feature over the training set.

An attack sees the standardised rows (F + 1, T) that the model's backbone reads. Their values have no range,
so that nothing is clipped. Padded steps and the channel that says which steps exist never change: the model
gives them no gradient, and random draws move nothing there (`StepDraws`).

Legend: n series of the shard, B of them, F features, T steps of a row, L steps of a series.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from assay.attacks.ensemble import Ensemble
from assay.attacks.kernel import Attack, frozen
from assay.attacks.randomness import Key, Randomness, Source, of_some
from assay.attacks.threat import sizes
from assay.attacks.variates import Law
from assay.models.layers.series_model import RegressionModel, split_steps
from assay.service.contract.gallery import MAX_ITEMS, GalleryAnswer, GalleryItem, GallerySeries
from assay.workers.data.formats.series import SeriesSet
from assay.workers.evaluation.engine.attack.both_protocols import attack_shard
from assay.workers.evaluation.engine.gallery.candidates import Candidates, answers, finite, safely
from assay.workers.evaluation.engine.gallery.series import attacked_series, perturbed_rows, points
from assay.workers.evaluation.engine.ledger import ExampleOutcomes, listed
from assay.workers.evaluation.engine.loader import Images, Loader, Running
from assay.workers.evaluation.engine.outcomes import WithoutFiles
from assay.workers.evaluation.engine.protocols import classify
from assay.workers.evaluation.engine.shard import Shard

Change = Callable[[Tensor, Source], Tensor]
"""Perturbs one standardised series, float64 (F, L) on the CPU to the same, with the draws of its id."""

# Draws that move nothing: attacks turn uniform ones u into 2 u - 1.
MIDDLE = 0.5


class StepDraws(Randomness):
    """Draws keyed by example that leave padded steps and the channel of steps where they are.

    The draws of a series depend on its own number of steps alone, not on the row's.
    """

    def __init__(self, seed: int, attack: str, lengths: Mapping[str, int]) -> None:
        super().__init__(seed, attack)
        self._lengths = lengths

    def of(self, attack: str) -> Randomness:
        """The same source for another attack."""
        return StepDraws(self.seed, attack, self._lengths)

    def drawn(
        self, law: Law, ids: Sequence[str], shape: tuple[int, ...], key: Key, device: torch.device
    ) -> Tensor:
        """Uniform numbers, 0.5 where nothing may move, or normal ones, 0 there; (len(ids), F + 1, T)."""
        rows = torch.full((len(ids), *shape), MIDDLE if law == "uniform" else 0.0)
        del device  # series are short: all numbers are made on the CPU
        lengths = [self._lengths[identifier] for identifier in ids]
        for length in sorted(set(lengths)):
            same = [row for row, own in enumerate(lengths) if own == length]
            own = (shape[0] - 1, length)
            made = super().drawn(law, [ids[row] for row in same], own, of_some(key, same), rows.device)
            rows[same, :-1, :length] = made
        return rows


def attack_series(attack: Attack | Ensemble, shard: Shard) -> ExampleOutcomes:
    """Attacks every series of a shard, under its protocol; a ValueError where the attack does not fit."""
    draws = StepDraws(shard.seed, attack.name, cast(SeriesSet, shard.data).lengths)
    candidates, model = Candidates(shard.ranks), shard.classifier
    outcomes = attack_shard(
        attack,
        shard,
        shard.images,
        draws,
        candidates,
        pixel_model=model.backbone,
        prepare=model.normalize,
        box=None,
    )
    return replace(outcomes, gallery=safely(lambda: attacked_series(candidates, outcomes)))


@dataclass(frozen=True)
class SquaredErrors(WithoutFiles):
    """Predictions of a regression, one row per series, in the order of `ids`; float64 (n,), on the CPU."""

    ids: tuple[str, ...]
    targets: Tensor  # in their own unit
    predictions: Tensor  # in the same unit
    clean: Tensor | None  # predictions for the unperturbed series; None where nothing was perturbed
    noted: Mapping[str, Any]  # caveats
    # Candidates for the gallery; None where nothing was perturbed
    gallery: tuple[GalleryItem, ...] | None = None

    @property
    def forward(self) -> Tensor:
        """Passes of the model, int64 (n,)."""
        return torch.full((len(self.ids),), 1 if self.clean is None else 2, dtype=torch.int64)

    @property
    def backward(self) -> Tensor:
        """None, int64 (n,)."""
        return torch.zeros(len(self.ids), dtype=torch.int64)

    def columns(self) -> dict[str, list[Any]]:
        """The rows as JSON columns; a prediction that is not finite, and its error, are None."""
        columns: dict[str, list[Any]] = {
            "id": list(self.ids),
            "target": self.targets.tolist(),
            "prediction": listed(self.predictions),
            "squared_error": listed((self.predictions - self.targets).square()),
            "forward": self.forward.tolist(),
            "backward": self.backward.tolist(),
        }
        if self.clean is not None:
            columns["clean_squared_error"] = listed((self.clean - self.targets).square())
        return columns

    def evidence(self) -> dict[str, Any]:
        """Whether passes had to be made smaller."""
        return dict(self.noted)


def squared_errors(shard: Shard, series_of: Images, *, clean: Images | None = None) -> SquaredErrors:
    """Predicts the target of every series of a shard; a ValueError as of `measure`."""
    model = cast(RegressionModel, shard.classifier)
    targets = shard.labels.double()
    found: list[Tensor] = []
    noted: dict[str, Any] = {}
    with torch.no_grad(), frozen(model):
        for load in (series_of, clean):
            if load is None:
                continue
            loader = Loader(model.backbone, load, targets, shard.ids, **shard.running)
            predictions = torch.zeros(loader.n, dtype=torch.float64)
            for rows in loader.batches():
                outputs = loader.load(rows)[1]  # (B, 1)
                predictions[rows] = model.in_units(outputs)[:, 0].double().cpu()
                if load is series_of:
                    shard.progress(int(rows[-1]) + 1)
            found.append(predictions)
            noted |= loader.noted()
    return SquaredErrors(shard.ids, targets, found[0], found[1] if len(found) > 1 else None, noted)


def standardised_rows(shard: Shard, rows: Sequence[int]) -> Tensor:
    """Standardised series (B, F + 1, T) of a shard, on the CPU."""
    with torch.no_grad():
        return shard.classifier.normalize(shard.images(rows).to(shard.classifier.mean)).cpu()


@dataclass(frozen=True)
class Perturbed:
    """A random perturbation of each series as an evaluation: two passes, with and without it."""

    name: str  # of the evaluation; draws are keyed by it, by the job's seed and by the series' id
    change: Change

    def measure(self, shard: Shard) -> ExampleOutcomes | SquaredErrors:
        """One row per series: the answer to the perturbed one, and the size of the perturbation.

        For regression the errors with and without it.
        """
        found = {norm: torch.zeros(len(shard.ids), dtype=torch.float64) for norm in ("Linf", "L2")}
        randomness = Randomness(shard.seed, self.name)

        def standardised(rows: Sequence[int]) -> Tensor:
            return standardised_rows(shard, rows)

        def perturbed(rows: Sequence[int]) -> Tensor:
            series = standardised(rows)
            moved = self._moved(series, [Source(randomness, [shard.ids[row]]) for row in rows])
            found["Linf"][list(rows)] = sizes(moved - series, "Linf").double()
            found["L2"][list(rows)] = sizes(moved - series, "L2").double()
            return moved

        measured: ExampleOutcomes | SquaredErrors
        measured = shard.methods.compare(shard, standardised, perturbed, found)
        return measured

    def _moved(self, series: Tensor, sources: Sequence[Source]) -> Tensor:
        moved, (values, present) = series.clone(), split_steps(series)
        for row, own, length, source in zip(moved, values, present.sum(1).tolist(), sources, strict=True):
            changed = self.change(own[:, :length].double(), source)
            row[:-1, :length] = changed.to(row.dtype)
        return moved


def compare_answers(
    shard: Shard, standardised: Images, perturbed: Images, found: Mapping[str, Tensor]
) -> ExampleOutcomes:
    """A classifier's answers to series and to perturbed ones; `found` are the perturbations' norms, (n,)."""
    backbone = shard.classifier.backbone
    quiet: Running = {**shard.running, "progress": lambda done: None}
    before, after = _Answers(shard.ranks), _Answers(shard.ranks)
    with frozen(shard.classifier):
        clean = classify(backbone, standardised, shard.labels, shard.ids, observe=before.note, **quiet)
        outcomes = classify(backbone, perturbed, shard.labels, shard.ids, observe=after.note, **shard.running)

    def items() -> list[GallerySeries]:
        rows = perturbed_rows(shard.ranks, clean.correct, outcomes.correct)
        given, moved = standardised(rows), perturbed(rows)
        return [
            GallerySeries(
                id=shard.ids[row],
                rank=shard.ranks[row],
                succeeded=not bool(outcomes.correct[row]),
                label=int(shard.labels[row]),
                before=before.of[row],
                after=after.of[row],
                **points(own, changed),
            )
            for row, own, changed in zip(rows, given, moved, strict=True)
        ]

    return replace(
        outcomes,
        clean_correct=clean.correct,
        forward=outcomes.forward + clean.forward,
        nonfinite=outcomes.nonfinite + clean.nonfinite,
        linf=found["Linf"],
        l2=found["L2"],
        gallery=safely(items),
    )


def compare_errors(shard: Shard, standardised: Images, perturbed: Images) -> SquaredErrors:
    """A regression's errors for series and for perturbed ones."""
    errors = squared_errors(shard, perturbed, clean=standardised)
    return replace(errors, gallery=safely(lambda: _regressed(shard, errors, standardised, perturbed)))


class _Answers:
    """The model's answers to the rows that a gallery may show, by row."""

    def __init__(self, ranks: Mapping[int, int]) -> None:
        self.of: dict[int, GalleryAnswer] = {}
        self._ranks = ranks

    def note(self, rows: Tensor, logits: Tensor) -> None:
        """Records the wanted rows of a batch: rows (B,), logits (B, classes)."""
        wanted = [place for place, row in enumerate(rows.tolist()) if row in self._ranks]
        if wanted:
            self.of |= zip(rows[wanted].tolist(), answers(logits[wanted]), strict=True)


def _regressed(
    shard: Shard, errors: SquaredErrors, standardised: Images, perturbed: Images
) -> list[GallerySeries]:
    assert errors.clean is not None
    rows = sorted(shard.ranks, key=shard.ranks.__getitem__)[:MAX_ITEMS]
    given, moved = standardised(rows), perturbed(rows)
    return [
        GallerySeries(
            id=shard.ids[row],
            rank=shard.ranks[row],
            succeeded=False,
            target=finite(float(errors.targets[row])),
            before=GalleryAnswer(value=finite(float(errors.clean[row]))),
            after=GalleryAnswer(value=finite(float(errors.predictions[row]))),
            **points(own, changed),
        )
        for row, own, changed in zip(rows, given, moved, strict=True)
    ]
