"""Attacks on text, as jobs on the device and on the CPU: in float64 their rows are the same."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.service.catalog.catalog import load
from benchmarks.acceptance.context import Context
from benchmarks.acceptance.record import Row
from benchmarks.acceptance.worst import Cases
from tests.laws.test_emulated_evaluations import run, spec
from tests.support.texts import write_sst, write_wikitext
from tests.support.word_vectors import write_vectors
from tests.support.wordnet_files import write_wordnet

ATTACKS = ("hotflip", "gradient_word_swap", "textfooler", "pwws", "deepwordbug", "gcg")
RELATIVE, ABSOLUTE = 1e-6, 1e-9


def text_rows(context: Context) -> list[Row]:
    """The rows of each attack on both devices."""
    found = Cases()
    with texts(context.folder / "data"):
        for name in context.share(ATTACKS[:: 3 if context.dry else 1]):
            with found.case("attacks on text", name):
                task = load().find("evaluation", name).tasks[0]
                here = run(spec(name, task, "cpu"), context.folder / f"{name}-cpu")
                with context.opened():
                    there = run(spec(name, task, context.asked), context.folder / f"{name}-device")
                columns = [
                    (ours["columns"], theirs["columns"]) for ours, theirs in zip(there, here, strict=True)
                ]
                same = all(near(*pair) for pair in columns)
                found.hold("the rows of an attack on text are those of the CPU", same, name)
    return found.rows()


@contextmanager
def texts(root: Path) -> Iterator[None]:
    """A data root with small texts, WordNet and word vectors."""
    root.mkdir()
    write_sst(root)
    write_wikitext(root, "wt", train="a b c d e " * 4, test="a b c d e " * 3)
    write_wordnet(root / "wordnet")
    write_vectors(root / "counter-fitted")
    before = os.environ.get("ASSAY_DATA_ROOT")
    os.environ["ASSAY_DATA_ROOT"] = str(root)
    try:
        yield
    finally:
        del os.environ["ASSAY_DATA_ROOT"]
        if before is not None:
            os.environ["ASSAY_DATA_ROOT"] = before


def near(one: Any, other: Any) -> bool:
    """Whether JSON values are the same but for rounding."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(near(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return bool(one == other)
