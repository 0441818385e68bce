"""Items of galleries with texts: the words before and after, with those that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

from assay.service.contract.gallery import MAX_ITEMS, MAX_TOKENS, GalleryAnswer, GalleryText, GalleryToken
from assay.workers.evaluation.engine.gallery.candidates import finite
from assay.workers.evaluation.engine.text.outcomes import TextRow

# Words shown before the first one that differs.
CONTEXT = 16
MAX_CHARACTERS = 200


def attacked_texts(rows: Sequence[TextRow], ranks: Mapping[int, int]) -> list[GalleryText]:
    """The items of an attack on texts: those that it broke, then those that held out, by rank."""
    shown = [number for number in ranks if rows[number].status != "skipped"]
    shown.sort(key=lambda number: (rows[number].status != "succeeded", ranks[number]))
    return [_attacked(rows[number], ranks[number]) for number in shown[:MAX_ITEMS]]


def _attacked(row: TextRow, rank: int) -> GalleryText:
    before, after = row.original.split(), row.text.split()
    old, new = differing(before, after)
    return text_item(
        GalleryText(
            id=row.id,
            rank=rank,
            succeeded=row.status == "succeeded",
            label=row.label,
            before=GalleryAnswer(prediction=row.label, confidence=row.clean_confidence),
            after=GalleryAnswer(
                prediction=None if row.nonfinite else row.prediction, confidence=row.confidence
            ),
            clean=[],
            perturbed=[],
            words=len(before),
        ),
        [
            GalleryToken(text=word[:MAX_CHARACTERS], changed=flag)
            for word, flag in zip(before, old, strict=True)
        ],
        [
            GalleryToken(text=word[:MAX_CHARACTERS], changed=flag)
            for word, flag in zip(after, new, strict=True)
        ],
    )


def differing(before: Sequence[str], after: Sequence[str]) -> tuple[list[bool], list[bool]]:
    """Which words of each differ: by position for texts of equal length, else by a longest matching."""
    if len(before) == len(after):
        flags = [old != new for old, new in zip(before, after, strict=True)]
        return flags, flags
    old, new = [True] * len(before), [True] * len(after)
    for start, other, size in SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks():
        old[start : start + size] = [False] * size
        new[other : other + size] = [False] * size
    return old, new


def text_item(
    item: GalleryText, clean: Sequence[GalleryToken], perturbed: Sequence[GalleryToken]
) -> GalleryText:
    """An item with the words from a little before the first one that differs."""
    flags = (any(token.changed for token in pair) for pair in zip(clean, perturbed, strict=False))
    first = next((number for number, flag in enumerate(flags) if flag), 0)
    start = max(0, first - CONTEXT)
    part = slice(start, start + MAX_TOKENS)
    return item.model_copy(
        update={"clean": list(clean[part]), "perturbed": list(perturbed[part]), "offset": start}
    )


def scored_token(word: str, loss: float, *, changed: bool) -> GalleryToken:
    """A word of a language model with its loss in nats, NaN where it is not scored."""
    known = finite(loss)
    return GalleryToken(
        text=word[:MAX_CHARACTERS], changed=changed, loss=None if known is None else round(known, 4)
    )
