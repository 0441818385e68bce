"""Laws of time series: of every data set of them, and of every attack and model for them.

As for images, a data set's own test brings `law_case(root, monkeypatch, change)`: it writes a tiny set below
`root` (with one value or one label of each split changed, for change = "value" or "label") and returns a
function from the split to the set.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.attacks.passes import differentiate
from assay.attacks.threat import sizes
from assay.models.layers.series_model import SeriesModel
from assay.models.series_transformer import series_transformer
from assay.service.catalog.catalog import load
from assay.workers import catalog
from assay.workers.data.formats.series import Series, statistics_of
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.shard import Shard
from tests.laws.test_data_laws import components, own_test, task_of

SETS = [component for component in components() if task_of(component) == "series"]
each_set = pytest.mark.parametrize("component", SETS, ids=[name for _, name in SETS])
PARTS = [(component, split) for component in SETS for split in ("train", "test")]
each_part = pytest.mark.parametrize(
    ("component", "split"), PARTS, ids=[f"{component[1]}-{split}" for component, split in PARTS]
)
Build = Callable[..., Callable[[str], Any]]

LENGTHS = (9, 1, 4, 9, 6, 2, 8, 5)
FEATURES, CLASSES, LENGTH = 3, 5, 9
QUICK: dict[str, dict[str, Any]] = {
    "pgd": {"steps": 5},
    "apgd_ce": {"steps": 8},
    "apgd_dlr": {"steps": 8},
    "apgd_t": {"steps": 6, "targets": 2},
}
ATTACKS = [
    pytest.param(attack.name, norm, id=f"{attack.name}-{norm}")
    for attack in load().list("attack")
    if "series" in attack.tasks
    for norm in ("Linf", "L2")
]
each_attack = pytest.mark.parametrize(("attack", "norm"), ATTACKS)
EPSILON = {"Linf": 0.6, "L2": 2.0}


@pytest.fixture
def build(
    component: tuple[str, str], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Build:
    """A new tiny set in a new folder."""
    case = own_test(component[0]).law_case
    return lambda change="none": case(tmp_path_factory.mktemp("root"), monkeypatch, change)


def test_there_are_series() -> None:
    assert {"uea", "motions"} <= {name for _, name in SETS}
    assert {"fgsm", "pgd", "apgd_ce", "apgd_dlr", "apgd_t"} <= {param.values[0] for param in ATTACKS}


@each_part
def test_description_is_consistent(build: Build, component: tuple[str, str], split: str) -> None:
    data = build()(split)
    facts = importlib.import_module(f"assay.workers.data.{component[0]}").FACTS
    assert (data.name, data.task, facts["series"]) == (component[1], "series", True)
    assert data.classes == len(data.class_names) == len(set(data.class_names)) >= 2
    assert len(data.mean) == len(data.std) == data.channels
    assert min(data.std) > 0
    assert len(data) == len(data.ids) == len(set(data.ids)) == len(data.labels) > 0
    assert data.labels.dtype == torch.int64
    assert 0 <= int(data.labels.min()) <= int(data.labels.max()) < data.classes
    assert data.lengths.keys() == set(data.ids)
    assert max(data.lengths.values()) <= data.longest


@each_part
def test_rows_are_series_and_their_steps(build: Build, split: str) -> None:
    data = build()(split)
    rows = data.images(range(len(data)), data.longest + 2)
    assert rows.shape == (len(data), data.channels + 1, data.longest + 2)
    assert rows.dtype == torch.float32
    assert rows.isfinite().all()
    lengths = torch.tensor([data.lengths[one] for one in data.ids])
    steps = torch.arange(data.longest + 2) < lengths[:, None]
    assert torch.equal(rows[:, -1], steps.float())
    assert not rows[:, :-1].masked_select(~steps[:, None]).any()
    assert torch.equal(rows.flip(0), data.images(list(range(len(data)))[::-1], data.longest + 2))
    assert torch.equal(rows[:1, :, : data.longest], data.images([0], data.longest))
    rows.zero_()
    assert data.images([0], data.longest).any()
    for index in (-1, len(data)):
        with pytest.raises(IndexError, match=str(index)):
            data.images([index], data.longest)


@each_set
def test_parts_share_the_training_statistics_and_no_example(build: Build) -> None:
    load_part = build()
    train, test = load_part("train"), load_part("test")
    assert not set(train.ids) & set(test.ids)
    assert (train.class_names, train.mean, train.std) == (test.class_names, test.mean, test.std)
    steps = torch.cat([row[:-1, row[-1] > 0] for row in train.images(range(len(train)), train.longest)], 1)
    torch.testing.assert_close(steps.double().mean(1), torch.tensor(train.mean, dtype=torch.float64))
    torch.testing.assert_close(steps.double().std(1), torch.tensor(train.std, dtype=torch.float64))


@each_part
def test_the_hash_tells_any_change(build: Build, split: str) -> None:
    hashes = [build(change)(split).content_sha256() for change in ("none", "none", "value", "label")]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


@cache
def model(length: int = LENGTH) -> SeriesModel:
    """A network with random weights; every place has the same vector for any `length`."""
    backbone: Any = series_transformer(
        CLASSES, FEATURES, width=12, depth=2, heads=2, hidden=16, length=length
    )
    generator = torch.Generator().manual_seed(3)
    positions = torch.randn(20, 12, generator=generator)[:length]
    for name, parameter in sorted(backbone.named_parameters()):
        drawn = 0.3 * torch.randn(parameter.shape if "positions" not in name else (1,), generator=generator)
        parameter.data = positions if "positions" in name else drawn
    classifier = SeriesModel(backbone, (0.5, -1.0, 3.0), (2.0, 0.5, 1.0)).double().eval()
    # No class is far ahead, so that each series is near a boundary.
    with torch.no_grad():
        backbone.head.bias -= classifier(series(LENGTH).images(range(len(LENGTHS)), length).double()).mean(0)
    return classifier


@cache
def series(length: int) -> Series:
    """Series of several lengths."""
    generator = torch.Generator().manual_seed(5)
    values = [torch.randn(steps, FEATURES, generator=generator).numpy() for steps in LENGTHS]
    return Series(
        name="law",
        class_names=tuple(map(str, range(CLASSES))),
        ids=[f"s{number}" for number in range(len(LENGTHS))],
        values=values,
        labels=[0] * len(LENGTHS),
        statistics=statistics_of(values),
        longest=length,
    )


@cache
def shard(length: int = LENGTH) -> Shard:
    """All of them, right without an attack."""
    data = series(LENGTH)
    with torch.no_grad():
        data.labels = model()(data.images(range(len(data)), LENGTH).double()).argmax(1)
    return Shard(
        data=data,
        order=range(len(data)),
        classifier=model(length),
        image_size=length,
        batch_size=len(data),
        device=torch.device("cpu"),
        dtype="float64",
        save_adversarial=True,
    )


def attacked(attack: str, norm: str, where: Shard, epsilon: float | None = None) -> ExampleOutcomes:
    params = {"norm": norm, "epsilon": EPSILON[norm] if epsilon is None else epsilon, **QUICK.get(attack, {})}
    outcomes: Any = catalog.task("series").attack(catalog.build("attack", attack, params)()).measure(where)
    return outcomes


def standardised(where: Shard) -> Tensor:
    return where.classifier.normalize(where.images(range(len(where.ids))).double())


@pytest.mark.sampled
@each_attack
def test_it_stays_in_its_ball_and_leaves_padding_and_steps_alone(attack: str, norm: str) -> None:
    for protocol in ("pixel", "paper"):
        where = replace(shard(), protocol=protocol)
        outcomes, before = attacked(attack, norm, where), standardised(where)
        assert outcomes.clean_correct.all()
        assert not outcomes.correct.all(), "the ball is large enough to break some"
        moved = outcomes.adversarial - before
        assert float(sizes(moved, norm).max()) <= EPSILON[norm] + 1e-12  # type: ignore[arg-type]
        assert float(sizes(moved, norm).max()) > 0.5 * EPSILON[norm]  # type: ignore[arg-type]
        absent = before[:, -1:] == 0
        assert not moved[:, :-1].masked_select(absent).any()
        assert not moved[:, -1].any()


@pytest.mark.sampled
@each_attack
def test_batches_and_padding_do_not_matter_and_a_seed_repeats(attack: str, norm: str) -> None:
    first = attacked(attack, norm, shard())
    again = attacked(attack, norm, shard())
    assert torch.equal(first.adversarial, again.adversarial)
    others = [
        attacked(attack, norm, replace(shard(), batch_size=3)),
        attacked(attack, norm, shard(LENGTH + 4)),
    ]
    for other in others:
        for column in ("prediction", "correct", "forward", "backward"):
            assert torch.equal(getattr(first, column), getattr(other, column)), column
        close = {"rtol": 0, "atol": 1e-6}
        torch.testing.assert_close(first.adversarial, other.adversarial[..., :LENGTH], **close)


@pytest.mark.sampled
@each_attack
def test_a_ball_without_radius_breaks_nothing(attack: str, norm: str) -> None:
    outcomes = attacked(attack, norm, shard(), epsilon=0.0)
    assert outcomes.correct.all()
    assert torch.equal(outcomes.adversarial, standardised(shard()))


def test_no_gradient_reaches_padding_or_steps() -> None:
    rows = standardised(shard())
    logits, _, gradient = differentiate(model().backbone, rows, lambda values: values.square().sum(1))
    assert logits.shape == (len(LENGTHS), CLASSES)
    absent = rows[:, -1:] == 0
    assert not gradient[:, -1].any()
    assert not gradient[:, :-1].masked_select(absent).any()
    assert gradient[:, :-1].masked_select(~absent).abs().min() > 0


@pytest.mark.parametrize("attack", ["fgsm", "pgd", "apgd_ce"])
def test_expected_accuracy_of_series(attack: str) -> None:
    """A model that is not random is right in all draws or in none, under the same attack."""
    params = {"norm": "Linf", "epsilon": EPSILON["Linf"], **QUICK.get(attack, {})}
    drawn = {"eot": 2, "model_draws": 3}
    found: Any = (
        catalog.task("series").attack(catalog.build("attack", attack, params | drawn)()).measure(shard())
    )
    once = attacked(attack, "Linf", shard())
    assert torch.equal(found.expected, once.correct.double())
    assert found.clean_expected.eq(1).all()
    moved = found.adversarial - standardised(shard())
    assert float(sizes(moved, "Linf").max()) <= EPSILON["Linf"] + 1e-12
