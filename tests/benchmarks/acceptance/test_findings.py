"""Checks can fail: planted waits, memory, bits and errors are found by name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from assay.attacks.adversarial import pgd
from benchmarks.acceptance import memory, waits
from benchmarks.acceptance.bits import _other_batches
from benchmarks.acceptance.context import Context
from benchmarks.acceptance.record import why_not
from benchmarks.acceptance.worst import Cases

TABLE = "id,label,prediction,correct,loss,forward\na,1,1,1,0.25,9\nb,2,3,0,1.5,3\n"


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context("emulated", True, 60.0, tmp_path)


def test_the_worst_value_and_every_broken_case_are_named() -> None:
    found = Cases()
    for name, value in (("a", 1.0), ("b", 3.0), ("c", 2.0)):
        with found.case("cases", name):
            found.worst("error", value, 2.5, name)
            found.hold("order", name != "c", name)
            if name == "a":
                raise RuntimeError("planted\nand more")
    rows = {row["what"]: row for row in found.rows()}
    assert rows["cases of cases"]["value"] == 3
    error = rows["error"]
    assert (error["value"], error["case"], error["held"]) == (3.0, "worst: b", False)
    assert rows["cases in which order does not hold"]["case"] == "c"
    assert not rows["cases in which order does not hold"]["held"]
    assert rows["cases that raised"]["case"] == "a: RuntimeError: planted"
    assert not rows["cases that raised"]["held"]
    assert "error (worst: b): 3, must be at most 2.5" in str(why_not(found.rows()))


def test_what_is_no_number_is_the_worst() -> None:
    found = Cases()
    for name, value in (("a", math.nan), ("b", 1.0)):
        found.worst("error", value, 2.0, name)
    assert not found.rows()[0]["held"]


def test_a_planted_wait_is_found(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    params = {"epsilon": 0.1, "steps": 3}
    monkeypatch.setattr(waits, "attack_cases", lambda dry: [("pgd-Linf", pgd, "pgd", params)])
    kind = type(pgd.pgd(epsilon=0.1))
    step = kind.step

    def waiting(self: Any, setting: Any, model: Any, state: Any) -> None:
        step(self, setting, model, state)
        state["objective"].sum().item()

    assert why_not(waits.steps(context)) is None
    monkeypatch.setattr(kind, "step", waiting)
    assert "waits of a step above what the attack states, emulated (worst: pgd-Linf): 1" in str(
        why_not(waits.steps(context))
    )


@pytest.mark.costly
def test_an_attack_above_its_memory_is_named(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_gradient_attacks", lambda: [("pgd", {"epsilon": 1e-5, "steps": 2})])
    assert why_not(memory.attacks(context)) is None
    monkeypatch.setattr(memory, "RATIO", 0.5)
    assert "peak over that of one pass, pgd: 1.0" in str(why_not(memory.attacks(context)))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("1.5,3", "1.5,4"), "predictions, flags or passes that differ between these: 1"),
        (("b,2,3", "b,2,2"), "predictions, flags or passes that differ between these: 1"),
        (("0.25", "0.2500001"), "largest relative difference of their numbers: 4e-07"),
    ],
)
def test_outcomes_that_depend_on_the_batch_are_found(change: tuple[str, str], why: str) -> None:
    assert why_not(_other_batches({"one": TABLE}, {"one": TABLE})) is None
    assert why in str(why_not(_other_batches({"one": TABLE}, {"one": TABLE.replace(*change)})))
