from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from assay.workers.training import loop
from assay.workers.training.batches import TrainingBatch
from assay.workers.training.files import CONTENT
from assay.workers.training.learner import Learner
from assay.workers.training.recipe import Recipe
from assay.workers.training.result import WEIGHTS_NAME, TrainingDiverged
from assay.workers.training.schedule import SCHEDULES
from assay.workers.training.training_log import LOG_NAME

pytestmark = pytest.mark.trains

PLAIN = Recipe(epochs=4, learning_rate=0.02)


def records(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_it_learns(standins: ModuleType, tmp_path: Path, dtype: torch.dtype) -> None:
    model = standins.classifier()
    recipe = dataclasses.replace(PLAIN, epochs=12)
    trained = standins.run(tmp_path, classifier=model, recipe=recipe, dtype=dtype)
    log = records(trained.log_path)
    assert log[-1]["loss"] < 0.5 * log[0]["loss"]
    assert log[-1]["accuracy"] > 0.9
    assert (trained.steps, trained.epochs, trained.final_loss) == (60, 12, log[-1]["loss"])
    data = standins.Stripes()
    kept = torch.float64 if dtype is torch.float64 else torch.float32
    assert {weight.dtype for weight in model.parameters()} == {kept}
    predicted = model(data.images(range(43), standins.SIZE).to(kept)).argmax(dim=1)
    assert (predicted == data.labels).double().mean() > 0.9


def test_one_step_is_adamw_on_the_smoothed_cross_entropy(standins: ModuleType, tmp_path: Path) -> None:
    data = standins.Stripes(8)
    model, reference = (nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).double() for _ in range(2))
    reference.load_state_dict(model.state_dict())
    recipe = Recipe(
        epochs=1, learning_rate=0.02, weight_decay=0.5, label_smoothing=0.1, clip_norm=1e-3, betas=(0.8, 0.9)
    )
    standins.run(tmp_path, classifier=model, data=data, recipe=recipe, dtype=torch.float64)

    weight, bias = reference[1].weight, reference[1].bias
    logits = reference(data.images(range(8), standins.SIZE).double())
    target = 0.9 * functional.one_hot(data.labels, 3) + 0.1 / 3
    loss = -(target * logits.log_softmax(dim=1)).sum(dim=1).mean()
    gradients = torch.autograd.grad(loss, [weight, bias])
    norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
    clipped = [gradient * 1e-3 / (norm + 1e-6) for gradient in gradients]
    # After one step the bias-corrected moments are the gradient and its square.
    step = [0.02 * gradient / (gradient.abs() + 1e-8) for gradient in clipped]
    assert torch.allclose(model[1].weight, weight * (1 - 0.02 * 0.5) - step[0], atol=1e-12)
    assert torch.allclose(model[1].bias, bias - step[1], atol=1e-12)
    assert torch.tensor(records(tmp_path / LOG_NAME)[0]["loss"]).item() == pytest.approx(loss.item())


@pytest.mark.parametrize("schedule", ["one_cycle", "polynomial"])
def test_the_schedule_and_the_batch_decide_the_learning_rate(
    standins: ModuleType, tmp_path: Path, schedule: Any
) -> None:
    recipe = Recipe(epochs=2, learning_rate=0.02, reference_batch=16, schedule=schedule, warmup_epochs=1)
    log = records(standins.run(tmp_path, recipe=recipe).log_path)
    last = SCHEDULES[schedule](9, steps=10, warmup_steps=5, peak=0.01, start=1e-6, minimum=0.0)
    assert log[-1]["learning_rate"] == last


def test_the_log_has_a_line_per_epoch(standins: ModuleType, tmp_path: Path) -> None:
    log = records(standins.run(tmp_path, recipe=PLAIN).log_path)
    assert [record["epoch"] for record in log] == [1, 2, 3, 4]
    assert [record["step"] for record in log] == [5, 10, 15, 20]
    assert log[-1]["learning_rate"] < log[0]["learning_rate"] <= 0.02
    assert all(0 <= record["accuracy"] <= 1 for record in log)
    assert [record["seconds"] for record in log] == sorted(record["seconds"] for record in log)


def test_it_is_in_train_mode_in_every_step_and_in_eval_mode_between_epochs(
    standins: ModuleType, tmp_path: Path
) -> None:
    model = standins.classifier()
    modes: list[bool] = []
    between: list[bool] = []
    model.register_forward_pre_hook(lambda module, _: modes.append(module.training))

    def held_out_loss(classifier: nn.Module) -> float:
        between.append(classifier.training)
        return 1.0

    standins.run(tmp_path, classifier=model, recipe=PLAIN, held_out_loss=held_out_loss)
    assert modes == [True] * 20
    assert between == [False] * 4


def test_the_weights_file_holds_the_trained_weights_and_the_metadata(
    standins: ModuleType, tmp_path: Path
) -> None:
    model = standins.classifier()
    trained = standins.run(tmp_path, classifier=model, recipe=PLAIN, metadata={"model": "stand-in"})
    loaded = load_file(trained.weights_path)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in model.state_dict().items())
    with safe_open(trained.weights_path, framework="pt") as file:
        assert file.metadata().keys() == {"model", CONTENT}
        assert file.metadata()["model"] == "stand-in"
    assert trained.average_path is None
    assert not model.training


def test_the_average_is_beside_the_weights_and_does_not_touch_them(
    standins: ModuleType, tmp_path: Path
) -> None:
    plain = standins.run(tmp_path / "plain", recipe=PLAIN)
    averaged = standins.run(tmp_path / "average", recipe=dataclasses.replace(PLAIN, ema_decay=0.5))
    assert averaged.weights_path.read_bytes() == plain.weights_path.read_bytes()
    assert averaged.average_path is not None
    raw, average = load_file(averaged.weights_path), load_file(averaged.average_path)
    assert raw.keys() == average.keys()
    distance = (raw["5.weight"] - average["5.weight"]).abs().max()
    assert 0 < distance < 0.1


def test_an_average_without_decay_is_the_last_weights(standins: ModuleType, tmp_path: Path) -> None:
    trained = standins.run(tmp_path, recipe=dataclasses.replace(PLAIN, ema_decay=0.0))
    assert trained.average_path is not None
    raw, average = load_file(trained.weights_path), load_file(trained.average_path)
    assert all(torch.equal(raw[name], average[name]) for name, _ in standins.classifier().named_parameters())


def test_the_seed_decides_and_the_callers_generator_does_not(standins: ModuleType, tmp_path: Path) -> None:
    def weights(name: str, seed: int, noise: int) -> bytes:
        torch.manual_seed(noise)
        content: bytes = standins.run(tmp_path / name, seed=seed).weights_path.read_bytes()
        return content

    assert weights("a", seed=1, noise=0) == weights("b", seed=1, noise=9)
    assert weights("c", seed=2, noise=0) != weights("a2", seed=1, noise=0)


def test_the_callers_generator_is_left_as_it_was(standins: ModuleType, tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    standins.run(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_reports_come_in_order_and_end_at_the_total(standins: ModuleType, tmp_path: Path) -> None:
    reports: list[Mapping[str, object]] = []
    standins.run(tmp_path, recipe=PLAIN, report=reports.append, checkpoint_seconds=0.0)
    progress = [report for report in reports if report["type"] == "progress"]
    begun = {"type": "progress", "done": 0, "total": 20, "message": "epoch 1/4"}
    assert progress[0] == {**begun, "examples_per_second": 0.0}
    assert progress[-1]["done"] == progress[-1]["total"] == 20
    assert str(progress[-1]["message"]).startswith("epoch 4/4 loss ")
    assert [report["step"] for report in reports if report["type"] == "checkpoint"] == list(range(1, 21))


def test_the_last_report_of_a_part_of_an_epoch_has_its_loss(standins: ModuleType, tmp_path: Path) -> None:
    reports: list[Mapping[str, object]] = []
    done = standins.run(tmp_path, recipe=dataclasses.replace(PLAIN, steps=7), report=reports.append)
    assert done.final_loss > 0
    assert reports[-1]["message"] == f"epoch 2/2 loss {done.final_loss:.3g}"


@pytest.mark.costly
def test_progress_is_reported_at_most_twice_a_second(
    standins: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.01
        return now

    monkeypatch.setattr(loop.time, "monotonic", clock)
    times: list[float] = []
    recipe = dataclasses.replace(PLAIN, epochs=100)

    def report(message: Mapping[str, object]) -> None:
        if message["type"] == "progress":
            times.append(now)

    standins.run(tmp_path, recipe=recipe, report=report)
    assert len(times) > 4
    assert all(later - earlier >= 1 for earlier, later in zip(times, times[2:], strict=False))


def test_progress_has_the_examples_per_second_since_the_report_before(
    standins: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step of 8 examples takes a second, by a clock that goes on as the model runs."""
    now = 0.0
    update = Learner.update

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal now
        now += 1.0
        return update(*args, **options)

    monkeypatch.setattr(loop.time, "monotonic", lambda: now)
    monkeypatch.setattr(Learner, "update", counted)
    rates: list[object] = []

    def report(message: Mapping[str, object]) -> None:
        if message["type"] == "progress":
            rates.append(message["examples_per_second"])

    standins.run(tmp_path, recipe=dataclasses.replace(PLAIN, epochs=2), report=report)
    assert rates == [0.0] + [8.0] * 11  # before the first step, after each, and at the end again


def test_checkpoints_come_by_the_clock(
    standins: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = iter(range(10**6))
    monkeypatch.setattr(loop.time, "monotonic", lambda: 3600.0 * next(hour))
    reports: list[Mapping[str, object]] = []
    standins.run(tmp_path, recipe=PLAIN, report=reports.append, checkpoint_seconds=10 * 3600.0)
    saved = [report["step"] for report in reports if report["type"] == "checkpoint"]
    assert 1 < len(saved) < 10
    assert saved[-1] == 20


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_float16_leaves_out_steps_whose_gradients_overflow(standins: ModuleType, optimiser: str) -> None:
    model, data = standins.Overflowing(), standins.Stripes(8)
    before = model.linear.weight.detach().clone()
    recipe = dataclasses.replace(PLAIN, optimiser=optimiser)  # type: ignore[arg-type]
    learner = Learner(model, recipe, seed=0, data=data, device=torch.device("cpu"), dtype=torch.float16)
    images = data.images(range(8), standins.SIZE)
    assert learner.state()["scaler"]["scale"] == 2.0**16
    changed = []
    for step in range(8):
        learner.update(TrainingBatch(images, data.labels), step=step, learning_rate=0.01)
        changed.append(not torch.equal(before, model.linear.weight))
        before = model.linear.weight.detach().clone()
    assert not changed[0]
    assert changed[-1]
    assert learner.state()["scaler"]["scale"] < 2.0**16
    assert learner.weights_are_finite()


class Exploding(nn.Module):
    """Its logits are NaN from the given forward pass on."""

    def __init__(self, passes: int):
        super().__init__()
        self.linear = nn.Linear(64, 3)
        self.left = passes

    def forward(self, x: Tensor) -> Tensor:
        self.left -= 1
        logits: Tensor = self.linear(x.flatten(1))
        return logits * (float("nan") if self.left < 0 else 1.0)


def test_a_loss_that_is_not_finite_stops_the_training(standins: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(TrainingDiverged, match=r"loss is not finite at step 8 of 20 \(loss nan\)") as caught:
        standins.run(tmp_path, recipe=PLAIN, classifier=Exploding(7))
    assert caught.value.step == 8
    assert not (tmp_path / WEIGHTS_NAME).exists()


class NanGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        return gradients[0] * float("nan")


class BadGradient(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = NanGradient.apply(self.linear(x.flatten(1)))
        return logits


def test_weights_that_are_not_finite_are_never_a_result(standins: ModuleType, tmp_path: Path) -> None:
    recipe = Recipe(epochs=1, learning_rate=0.1)
    with pytest.raises(TrainingDiverged, match="a weight is not finite at step 1 of 1"):
        standins.run(tmp_path, recipe=recipe, classifier=BadGradient(), data=standins.Stripes(8))
    assert not (tmp_path / WEIGHTS_NAME).exists()


@pytest.mark.parametrize("wrong", [{"dtype": torch.int8}, {"batch_size": 0}])
def test_bad_arguments_are_named(standins: ModuleType, tmp_path: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is .*; allowed"):
        standins.run(tmp_path, **wrong)
