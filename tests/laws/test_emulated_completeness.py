"""Every component of the catalog is run by a law on the emulated device, or fails here by its name."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from tests.laws import test_emulated_attacks as attacks
from tests.laws import test_emulated_corruptions as corruptions
from tests.laws import test_emulated_evaluations as evaluations
from tests.laws import test_emulated_models as models
from tests.laws import test_emulated_training as training
from tests.support import hf_models

# A component and one of its tasks, "" where its kind has none.
Pair = tuple[str, str]
# Kinds, or a kind and a name, that compute nothing on an accelerator, and why.
NOT_RUN: dict[str | tuple[str, str], str] = {
    "data": "reads files and makes examples on the host; the laws of the other kinds send them to the device",
    "suite": "a list of evaluations, which are run one by one",
    "task": "says how the other kinds are run, and is measured with each",
}
# Components with a law of their own.
ALONE = {
    **dict.fromkeys(models.LIBRARIES, models.test_a_model_of_a_library),
    "exported": models.test_an_exported_program,
    **dict.fromkeys(hf_models.MODELS, models.test_a_hugging_face_model),
}


def of(cases: Iterable[Any], name: int = 0, task: int | str = "") -> set[Pair]:
    """Names and tasks in the parameters of a law.

    Args:
        cases: its parameters.
        name: place of the component's name among them.
        task: place of the task, or the task of all.
    """
    return {
        (str(one.values[name]), task if isinstance(task, str) else str(one.values[task])) for one in cases
    }


RUN: dict[str, set[Pair]] = {
    "model": {(name, task) for name in (*models.KINDS, *ALONE) for task in load().find("model", name).tasks},
    "attention": of(models.MECHANISM_FORMS),
    "attack": of(attacks.usual(), 1, "classification")
    | of(attacks.SEGMENTATION, 0, "segmentation")
    | of(attacks.SERIES, 0, "series"),
    "corruption": {(name, "") for name in corruptions.MODULES},
    "words": {(name, "") for name in evaluations.WORDS},
    "evaluation": of(evaluations.CASES, 0, 1),
    "recipe": of(training.RECIPES, 0, 1),
}


def wanted(kind: str) -> set[Pair]:
    """What the catalog has of a kind, less what is stated not to be run."""
    here = [one for one in load().list(kind) if (kind, one.name) not in NOT_RUN]
    return {(one.name, task) for one in here for task in one.tasks or [""]}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", RUN)
def test_every_component_is_run(kind: str) -> None:
    missing = sorted(" for ".join(filter(None, pair)) for pair in wanted(kind) - RUN[kind])
    assert not missing, f"no law on the emulated device runs {kind} {', '.join(missing)}"


def test_every_kind_is_run_or_computes_nothing() -> None:
    kinds = {one.kind for one in load().list()}
    assert kinds == RUN.keys() | {kind for kind in NOT_RUN if isinstance(kind, str)}


def test_what_is_stated_not_to_be_run_is_there_and_is_not() -> None:
    for stated, reason in NOT_RUN.items():
        assert reason
        if isinstance(stated, str):
            assert load().list(stated), stated
            assert stated not in RUN, stated
        else:
            kind, name = stated
            assert load().find(kind, name), stated
            assert name not in {found for found, _ in RUN[kind]}, stated


def test_a_component_that_no_law_runs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RUN, "attack", RUN["attack"] - {("pgd", "series")})
    with pytest.raises(AssertionError, match="runs attack pgd for series"):
        test_every_component_is_run("attack")


def test_no_law_on_the_device_leaves_a_case_out() -> None:
    """A case that is skipped, or expected to fail, would count as run above."""
    for path in Path(__file__).parent.glob("test_emulated_*.py"):
        names = {
            node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)
        }
        assert not names & {"skip", "skipif", "importorskip", "xfail"}, path.name
