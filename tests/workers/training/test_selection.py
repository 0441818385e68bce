"""The validation share is stratified, keyed and never trained on; the saved weights are the selected ones."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from assay.workers.training.order import Order
from assay.workers.training.recipe import Recipe
from assay.workers.training.selection import Best, Judge, Judgement, judge_of, validation_split

IDS = [f"example {number}" for number in range(60)]
LABELS = [0] * 30 + [1] * 20 + [2] * 9 + [3]


def split(share: float = 0.2, seed: int = 0, ids: Sequence[str] = IDS) -> tuple[list[int], list[int]]:
    return validation_split("stripes", ids, LABELS, share, seed)


def test_every_class_gives_its_share_and_nothing_is_in_both() -> None:
    kept, chosen = split()
    assert sorted(kept + chosen) == list(range(60))
    assert [sum(LABELS[index] == label for index in chosen) for label in range(4)] == [6, 4, 2, 0]
    assert kept == sorted(kept)
    assert chosen == sorted(chosen)
    smallest = split(0.001)[1]
    assert [LABELS[index] for index in smallest] == [0, 1, 2]


def test_the_split_is_keyed_by_seed_and_id_and_not_by_position() -> None:
    assert split() == split()
    assert split(seed=1) != split()
    by_id = {IDS[index] for index in split()[1]}
    turned = list(reversed(IDS))
    _, chosen = validation_split("stripes", turned, list(reversed(LABELS)), 0.2, 0)
    assert {turned[index] for index in chosen} == by_id


def test_singles_leave_nothing_to_validate() -> None:
    with pytest.raises(ValueError, match=r"validation is 0\.5, but no class"):
        validation_split("singles", ["a", "b"], [0, 1], 0.5, 0)


def test_a_larger_share_takes_a_superset() -> None:
    assert set(split(0.1)[1]) < set(split(0.4)[1])


def test_an_order_of_some_rows_visits_them_alone() -> None:
    rows = [1, 4, 5, 7, 9]
    order = Order(10, seed=0, batch_size=2, rows=rows)
    assert order.steps_per_epoch == 2
    visited = torch.cat([visit.indices for visit in order.between(0, 8)]).tolist()
    assert set(visited) == set(rows)
    everything = Order(5, seed=0, batch_size=2)
    places = torch.cat([visit.indices for visit in everything.between(0, 8)]).tolist()
    assert visited == [rows[place] for place in places]


@pytest.mark.parametrize("batch_size", [1, 3, 100])
@pytest.mark.parametrize("processes", [1, 2, 5])
def test_judges_of_all_processes_judge_every_row_once(batch_size: int, processes: int) -> None:
    logits, labels = torch.randn(7, 3), torch.arange(7) % 3

    def load(rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        return logits[list(rows)], labels[list(rows)]

    given: dict[str, Any] = {
        "batch_size": batch_size,
        "device": torch.device("cpu"),
        "processes": processes,
    }
    parts = [judge_of(load, 7, rank=rank, **given)(lambda inputs: inputs) for rank in range(processes)]
    found = Judgement.of(torch.stack(parts).sum(0))
    assert found.loss == pytest.approx(functional.cross_entropy(logits.double(), labels).item(), rel=1e-12)
    assert found.accuracy == pytest.approx((logits.argmax(1) == labels).double().mean().item())


def test_the_better_one_is_more_accurate_or_as_accurate_with_less_loss() -> None:
    assert Judgement(2.0, 0.6).better_than(Judgement(1.0, 0.5))
    assert Judgement(0.9, 0.5).better_than(Judgement(1.0, 0.5))
    assert not Judgement(1.0, 0.5).better_than(Judgement(1.0, 0.5)), "the earlier one stays"


def test_the_best_weights_are_copies_and_come_back() -> None:
    model, average = nn.Linear(2, 2), nn.Linear(2, 2)
    before = model.weight.detach().clone()
    best = Best.of(3, Judgement(1.0, 0.5), model, average)
    with torch.no_grad():
        model.weight.zero_()
    Best(**best.state()).put_back(model, average)
    assert torch.equal(model.weight, before)


class Scripted:
    """Judges by a list, and keeps the weights that it saw."""

    def __init__(self, model: nn.Module, accuracies: Sequence[float]) -> None:
        self.model = model
        self.left = list(accuracies)
        self.seen: list[dict[str, Tensor]] = []
        self.modes: list[bool] = []

    def __call__(self, logits_of: Any) -> Tensor:
        self.seen.append({name: tensor.clone() for name, tensor in self.model.state_dict().items()})
        self.modes.append(self.model.training)
        return torch.tensor([1.0, self.left.pop(0), 1.0], dtype=torch.float64)


VALIDATING = {"validation": 0.2, "selection": "validation"}


@pytest.mark.trains
@pytest.mark.parametrize(
    ("changes", "step"),
    [
        ({}, 10),
        ({"selection": "released_test", "validation": 0.0}, 10),
        ({"first_judged": 0.5}, 20),
        ({"selection": "last"}, None),
    ],
    ids=["validation", "released_test", "not in the first half", "last"],
)
def test_the_saved_weights_are_the_selected_ones(
    standins: ModuleType, tmp_path: Path, changes: dict[str, Any], step: int | None
) -> None:
    model = standins.classifier()
    judge = Scripted(model, [0.2, 0.9, 0.5, 0.9, 0.4, 0.3])
    recipe = dataclasses.replace(standins.EVERYTHING, **(VALIDATING | changes))
    trained = standins.run(tmp_path, classifier=model, recipe=recipe, judge=judge)
    assert trained.selected_step == step
    expected = judge.seen[(step or 30) // 5 - 1]
    for weights in (load_file(trained.weights_path), model.state_dict()):
        assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())
    assert judge.modes == [False] * 6
    log = [json.loads(line) for line in trained.log_path.read_text().splitlines()]
    assert [record["judged_accuracy"] for record in log] == [0.2, 0.9, 0.5, 0.9, 0.4, 0.3]
    name = "test set" if recipe.selection == "released_test" else "validation"
    assert f">{name}<" in trained.curves_path.read_text()


@pytest.mark.trains
def test_judging_more_often_than_by_epoch(standins: ModuleType, tmp_path: Path) -> None:
    model = standins.classifier()
    judge = Scripted(model, [0.1, 0.2, 0.9, 0.3])
    recipe = dataclasses.replace(standins.EVERYTHING, **VALIDATING, epochs=2, judged_every=3)
    trained = standins.run(tmp_path, classifier=model, recipe=recipe, judge=judge)
    assert trained.selected_step == 9
    log = [json.loads(line) for line in trained.log_path.read_text().splitlines()]
    assert [record["judged_accuracy"] for record in log] == [0.1, 0.3], "of the latest judgement"


def real_judge(standins: ModuleType, rows: Sequence[int]) -> Judge:
    data = standins.Stripes()

    def load(chosen: Sequence[int]) -> tuple[Tensor, Tensor]:
        indices = [rows[place] for place in chosen]
        return data.images(indices, standins.SIZE), data.labels[indices]

    return judge_of(load, len(rows), batch_size=3, device=torch.device("cpu"))


@pytest.mark.trains
def test_judging_changes_no_bit_of_the_training(standins: ModuleType, tmp_path: Path) -> None:
    plain = standins.run(tmp_path / "plain")
    judged = standins.run(tmp_path / "judged", judge=real_judge(standins, range(9)))
    assert judged.weights_path.read_bytes() == plain.weights_path.read_bytes()
    assert judged.average_path.read_bytes() == plain.average_path.read_bytes()


@pytest.mark.trains
def test_the_best_so_far_survives_an_interruption(standins: ModuleType, tmp_path: Path) -> None:
    data = standins.Stripes()
    kept, chosen = validation_split(data.name, data.ids, data.labels.tolist(), 0.3, 3)
    # A learning rate that overshoots at the end: the best epoch is not the last.
    recipe = dataclasses.replace(
        standins.EVERYTHING, **(VALIDATING | {"validation": 0.3}), epochs=8, schedule="constant"
    )
    given = {"recipe": recipe, "rows": kept, "judge": real_judge(standins, chosen)}
    whole = standins.run(tmp_path / "whole", **given)
    for step in (4, 13, 22):
        with pytest.raises(KeyboardInterrupt):
            standins.run(tmp_path / "cut", checkpoint_seconds=0.0, report=standins.stop_at(step), **given)
    cut = standins.run(tmp_path / "cut", classifier=standins.classifier(9), **given)
    assert cut.selected_step == whole.selected_step
    assert cut.weights_path.read_bytes() == whole.weights_path.read_bytes()
    assert cut.average_path.read_bytes() == whole.average_path.read_bytes()
    assert cut.curves_path.read_text() == whole.curves_path.read_text()


@pytest.mark.trains
def test_the_validation_share_is_not_trained_on(standins: ModuleType, tmp_path: Path) -> None:
    """Other pixels in it change nothing in weights that are not selected."""
    data, other = standins.Stripes(), standins.Stripes()
    kept, chosen = validation_split(data.name, data.ids, data.labels.tolist(), 0.3, 3)
    other._pixels[chosen] = 0.0
    recipe = dataclasses.replace(standins.EVERYTHING, validation=0.3)
    trained = [
        standins.run(tmp_path / name, recipe=recipe, data=each, rows=kept)
        for name, each in (("one", data), ("other", other))
    ]
    assert trained[0].weights_path.read_bytes() == trained[1].weights_path.read_bytes()


def test_a_selection_needs_a_judge(standins: ModuleType, tmp_path: Path) -> None:
    recipe = dataclasses.replace(standins.EVERYTHING, **VALIDATING)
    with pytest.raises(ValueError, match="selection is 'validation': it needs examples"):
        standins.run(tmp_path, recipe=recipe)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"selection": "validation"}, "validation is 0"),
        ({"selection": "released_test", "validation": 0.1}, "validation must be 0"),
        ({"validation": 0.6}, "validation is 0.6; allowed"),
        ({"selection": "best"}, "selection is 'best'; allowed: last, validation, released_test"),
        ({"total_batch": 8, "total_tokens": 8}, "give one of them"),
        ({"momentum_cycle": (0.85, 0.95)}, "goes with one_cycle schedules"),
        ({"by_epoch": True, "steps": 9}, "neither steps nor one_cycle"),
        ({"by_epoch": True, "schedule": "one_cycle"}, "neither steps nor one_cycle"),
        ({"epochs_late": 1}, "epochs_late is 1; allowed"),
        ({"nesterov": True}, "nesterov is for the optimiser 'sgd'"),
        ({"nesterov": True, "optimiser": "sgd", "momentum": 0.0}, "with a momentum above 0"),
        ({"clip_value": 0.0}, "clip_value is 0.0; allowed"),
        ({"total_batch": 0}, "total_batch is 0; allowed"),
    ],
)
def test_parts_that_do_not_go_together_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(epochs=1, learning_rate=0.1, **wrong)
