"""A gallery's image under each corruption at its worst. B batch, C channels, H height, W width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from assay.attacks.corruptions.imaging.corruption import Corruption
from assay.attacks.judgement import Verdict
from assay.service.contract.gallery import GalleryAnswer, GalleryImage
from assay.workers.evaluation.engine.gallery.candidates import answers
from assay.workers.evaluation.engine.gallery.images import outside, png


class CorruptedExample:
    """Keeps the example with the lowest rank among those that are right without a corruption."""

    def __init__(self, ranks: Mapping[int, int], kernels: Sequence[Corruption]) -> None:
        self._ranks = ranks
        worst: dict[str, int] = {}
        for cell, kernel in enumerate(kernels):
            known = worst.get(kernel.name)
            if known is None or kernels[known].severity < kernel.severity:
                worst[kernel.name] = cell
        self._cells = {cell: kernels[cell] for cell in sorted(worst.values())}
        self._row: int | None = None
        self._place: int | None = None
        self._clean: Tensor | None = None
        self._before: GalleryAnswer | None = None
        self._seen: dict[int, tuple[Tensor, Tensor]] = {}  # on the device: nothing waits before the end

    def begin(self, rows: Tensor, verdict: Verdict, images: Tensor, logits: Tensor) -> None:
        """Takes a batch (B, C, H, W) before it is corrupted, with its logits (B, classes)."""
        right = (verdict.rank == 0).tolist()
        fitting = [
            (self._ranks[row], place)
            for place, (row, fine) in enumerate(zip(rows.tolist(), right, strict=True))
            if fine and row in self._ranks
        ]
        self._place = None
        if not fitting:
            return
        rank, place = min(fitting)
        if self._row is None or rank < self._ranks[self._row]:
            self._row, self._place = int(rows[place]), place
            self._clean = images[place].cpu().clone()
            (self._before,) = answers(logits[place : place + 1])

    def note(self, cell: int, images: Tensor, logits: Tensor) -> None:
        """Takes the batch under the corruption with this number."""
        if self._place is not None and cell in self._cells:
            part = slice(self._place, self._place + 1)
            self._seen[cell] = (images[self._place].clone(), logits[part].clone())

    def items(self, ids: Sequence[str], labels: Tensor) -> list[GalleryImage]:
        """The items: only the first has the uncorrupted image."""
        if self._row is None or self._clean is None:
            return []
        label, clean = int(labels[self._row]), png(self._clean)
        seen = [
            (self._cells[cell], image.cpu(), answers(logits)[0])
            for cell, (image, logits) in sorted(self._seen.items())
        ]
        return [
            GalleryImage(
                id=ids[self._row],
                rank=self._ranks[self._row],
                succeeded=answer.prediction != label,
                label=label,
                before=self._before,
                after=answer,
                width=image.shape[2],
                height=image.shape[1],
                clean=None if number else clean,
                changed=png(image),
                clamped=outside(image),
                corruption=kernel.name,
                severity=kernel.severity,
            )
            for number, (kernel, image, answer) in enumerate(seen)
        ]
