"""What the ledger keeps of several stages, and which images go into the file of adversarial ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from assay.attacks.judgement import judge
from assay.attacks.kernel import Examples, State, begin
from assay.workers.evaluation.engine.ledger import ExampleOutcomes, Ledger

IDS = ("a", "b", "c")
LABELS = torch.tensor([0, 1, 2])
CLEAN = torch.zeros(3, 1, 1, 1)
ROWS = torch.arange(3)


def ledger(**more: Any) -> Ledger:
    return Ledger(LABELS, IDS, True, attacked=True, **more)


def right(margins: list[float]) -> Tensor:
    """Logits of 3 classes whose true one is this much above the others."""
    return torch.nn.functional.one_hot(LABELS, 3) * torch.tensor(margins, dtype=torch.float64)[:, None]


def held(book: Ledger, losses: list[float], size: float, margins: list[float]) -> None:
    """Holds results of one stage: the images at `size`, with these losses and margins."""
    logits = right(margins)
    values = judge(logits, LABELS)._asdict() | {"loss": torch.tensor(losses).double(), "logits": logits}
    book.hold(ROWS, values, CLEAN + size, CLEAN)


@pytest.mark.parametrize("first", [True, False])
def test_of_several_stages_the_highest_loss_counts(first: bool) -> None:
    book = ledger()
    low, high = ([1.0, 1.0, 1.0], 0.25, [4.0, 4.0, 4.0]), ([2.0, 2.0, 2.0], 0.5, [3.0, 3.0, 3.0])
    for stage in (high, low) if first else (low, high):
        held(book, *stage)
    book.settle_open()
    found = book.close(3)
    assert found.loss.tolist() == [2.0] * 3
    assert found.adversarial is not None
    assert found.adversarial.flatten().tolist() == [0.5] * 3
    assert found.margin is not None
    assert found.margin.tolist() == [3.0] * 3
    assert found.linf is not None
    assert found.linf.tolist() == [0.5] * 3


def test_a_loss_that_is_known_counts_before_one_that_is_not() -> None:
    book, nan = ledger(), float("nan")
    held(book, [nan, 1.0, nan], 0.25, [4.0] * 3)
    held(book, [1.0, nan, nan], 0.5, [3.0] * 3)
    book.settle_open()
    found = book.close(3)
    assert found.loss[:2].tolist() == [1.0, 1.0]
    assert found.loss[2].isnan()
    assert found.adversarial is not None
    # Where none is known the last one counts.
    assert found.adversarial.flatten().tolist() == [0.5, 0.25, 0.5]


FLAGS = ("zero_gradient", "nonfinite_gradient")


def leaving(**flags: list[bool]) -> State:
    """Slots of a stage that has ended without success; flags that are not given are down."""
    state = begin(Examples(ROWS, CLEAN, LABELS, LABELS, right([1.0] * 3)), LABELS, CLEAN)
    up = {key: torch.tensor(values) for key, values in flags.items() if key != "unconverged"}
    if "unconverged" in flags:
        rise = torch.tensor(flags["unconverged"])
        up |= {"plateau": torch.zeros(3).double(), "objective": rise.double()}
    return state | {"row": ROWS} | up


def closed(*stages: State, final: bool = True) -> ExampleOutcomes:
    book = ledger()
    for state in stages:
        book.note_attack(state, final=final)
    held(book, [1.0] * 3, 0.25, [4.0] * 3)
    book.settle_open()
    return book.close(3)


@pytest.mark.parametrize("flag", [*FLAGS, "unconverged"])
@pytest.mark.parametrize("last", [True, False])
def test_what_one_stage_saw_survives_the_others(flag: str, last: bool) -> None:
    seen, quiet = leaving(**{flag: [True, False, True]}), leaving()
    found = closed(*((quiet, quiet, seen) if last else (seen, quiet, quiet)))
    assert found.evidence()[flag] == 2
    both = closed(seen, leaving(**{flag: [True, True, False]}))
    assert both.evidence()[flag] == 3
    assert closed(quiet, quiet).evidence().get(flag, 0) == 0


def test_convergence_is_judged_by_the_last_run_of_a_stage() -> None:
    assert "unconverged" not in closed(leaving(unconverged=[True] * 3), final=False).noted


def test_broken_examples_are_not_unconverged() -> None:
    book = ledger()
    book.note_attack(leaving(unconverged=[True, True, False]))
    logits = right([-1.0, 1.0, 1.0])
    values = judge(logits, LABELS)._asdict() | {"logits": logits}
    book.settle(ROWS, values, CLEAN + 0.5, CLEAN)
    assert book.close(3).noted == {"unconverged": 1}


def test_images_that_made_a_random_model_no_worse_are_not_adversarial() -> None:
    expected, before = torch.tensor([0.25, 0.5, 0.75]).double(), torch.tensor([0.5, 0.5, 0.5]).double()
    some = torch.tensor([True, True, False])
    outcomes = ExampleOutcomes(
        ids=IDS, labels=LABELS, prediction=LABELS, correct=some, correct5=some, clean_correct=some,
        loss=torch.zeros(3), forward=ROWS, backward=ROWS, adversarial=torch.arange(3.0).view(3, 1, 1, 1),
        expected=expected, clean_expected=before,
    )  # fmt: skip
    (file,) = outcomes.files()
    assert safetensors.torch.load(file.content)["images"].flatten().tolist() == [0]
    length = int.from_bytes(file.content[:8], "little")
    assert json.loads(json.loads(file.content[8 : 8 + length])["__metadata__"]["ids"]) == ["a"]
