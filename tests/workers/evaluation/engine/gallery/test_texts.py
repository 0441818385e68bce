"""Texts of galleries: which words differ, the part that is shown, and the order of the examples."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.contract.gallery import MAX_TOKENS, GalleryText, GalleryToken
from assay.workers.evaluation.engine.gallery.texts import (
    CONTEXT,
    attacked_texts,
    differing,
    scored_token,
    text_item,
)
from assay.workers.evaluation.engine.text.outcomes import TextRow


def row(number: int, status: Any, original: str = "a b c", text: str = "a x c", **fields: Any) -> TextRow:
    known = {"label": 1, "prediction": 0, "loss": 1.0, "queries": 3, "passes": 3, "words": 3, "changed": 1}
    known |= {"nonfinite": False, "clean_confidence": 0.9, "confidence": 0.6} | fields
    return TextRow(id=f"t{number}", status=status, original=original, text=text, **known)


@pytest.mark.parametrize(
    ("before", "after", "old", "new"),
    [
        ("a b c", "a x c", "010", "010"),
        ("a b c", "a b c", "000", "000"),
        ("a b c", "a c", "010", "00"),
        ("a b c", "a b y z c", "000", "00110"),
        ("", "a", "", "1"),
    ],
)
def test_words_that_differ_are_flagged(before: str, after: str, old: str, new: str) -> None:
    flags = differing(before.split(), after.split())
    assert ["".join("01"[flag] for flag in part) for part in flags] == [old, new]


def test_broken_texts_come_first_by_rank_and_skipped_ones_never() -> None:
    rows = [row(0, "failed"), row(1, "succeeded"), row(2, "skipped"), row(3, "succeeded"), row(4, "failed")]
    found = attacked_texts(rows, {0: 9, 1: 7, 2: 0, 3: 2, 4: 1})
    assert [(item.id, item.succeeded) for item in found] == [
        ("t3", True), ("t1", True), ("t4", False), ("t0", False)
    ]  # fmt: skip
    assert [(token.text, token.changed) for token in found[0].perturbed] == [
        ("a", False), ("x", True), ("c", False)
    ]  # fmt: skip
    assert found[0].before is not None
    assert (found[0].before.prediction, found[0].before.confidence) == (1, 0.9)


def test_logits_that_are_not_finite_give_no_prediction() -> None:
    (item,) = attacked_texts([row(0, "succeeded", nonfinite=True, prediction=-1, confidence=None)], {0: 0})
    assert item.after is not None
    assert (item.after.prediction, item.after.confidence) == (None, None)


def test_long_texts_are_shown_from_a_little_before_the_change() -> None:
    tokens = [GalleryToken(text=str(number), changed=number == 900) for number in range(2000)]
    empty = GalleryText(id="a", rank=0, succeeded=True, clean=[], perturbed=[], words=2000)
    item = text_item(empty, tokens, tokens)
    assert (item.offset, len(item.clean), len(item.perturbed)) == (900 - CONTEXT, MAX_TOKENS, MAX_TOKENS)
    assert item.clean[CONTEXT].changed


def test_a_loss_that_is_not_finite_is_null() -> None:
    assert [scored_token("a", loss, changed=False).loss for loss in (1.23456, float("nan"))] == [1.2346, None]
