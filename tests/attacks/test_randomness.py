from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from assay.attacks import randomness
from assay.attacks.randomness import VERSION, LibraryStream, Randomness, Source
from tests.support.emulated_device.device import emulated_device

WORDS = [-1007643455, -366657086, 443640395]
UNIFORM = [4452501, 6956353, 10121579]
NORMAL = [-664468, -91801, 194326, 2287103, 654506]
IDS = [f"image-{number:03d}" for number in range(64)]


@pytest.mark.parametrize("kind", ["uniform", "normal"])
@pytest.mark.parametrize("size", [1, 7, 64])
def test_draws_do_not_depend_on_the_batch(kind: str, size: int) -> None:
    draw = getattr(Randomness(3, "pgd"), kind)
    whole = draw(IDS, (3, 5), dtype=torch.float64)
    parts = [draw(IDS[start : start + size], (3, 5), dtype=torch.float64) for start in range(0, 64, size)]
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(draw(IDS[::-1], (3, 5), dtype=torch.float64), whole.flip(0))


@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_draws_do_not_depend_on_the_dtype(kind: str) -> None:
    draw = getattr(Randomness(3, "pgd"), kind)
    double = draw(IDS, (4,), dtype=torch.float64)
    assert torch.equal(draw(IDS, (4,), dtype=torch.float32), double.float())


@pytest.mark.parametrize(
    "other",
    [{"restart": 1}, {"target": 0}, {"step": 1}, {"purpose": "target"}],
    ids=lambda change: next(iter(change)),
)
def test_every_part_of_the_key_matters(other: dict[str, Any]) -> None:
    source = Randomness(3, "pgd")
    assert not torch.equal(source.uniform(IDS, (4,)), source.uniform(IDS, (4,), **other))


def test_the_seed_the_attack_and_the_id_matter() -> None:
    draws = [Randomness(seed, attack).uniform(IDS, (4,)) for seed, attack in [(0, "a"), (1, "a"), (0, "b")]]
    assert not torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert len({tuple(row.tolist()) for row in draws[0]}) == 64


def test_parts_of_the_key_do_not_run_together() -> None:
    assert not torch.equal(Randomness(1, "2a").uniform(["x"], (4,)), Randomness(12, "a").uniform(["x"], (4,)))


@pytest.mark.parametrize("key", ["restart", "target", "step"])
def test_one_restart_target_or_step_for_each_example(key: str) -> None:
    source = Randomness(0, "pgd")
    mixed = source.uniform(IDS[:3], (4,), **{key: [0, 1, 2]})
    for row, value in enumerate([0, 1, 2]):
        assert torch.equal(mixed[row : row + 1], source.uniform([IDS[row]], (4,), **{key: value}))


def test_the_distributions() -> None:
    source = Randomness(0, "pgd")
    uniform, normal = source.uniform(IDS, (500,)), source.normal(IDS, (500,))
    assert uniform.min() > 0
    assert uniform.max() < 1
    assert abs(float(uniform.mean()) - 0.5) < 0.01
    assert abs(float(normal.mean())) < 0.03
    assert abs(float(normal.std()) - 1) < 0.03


@pytest.mark.parametrize("size", [1, 7, 64])
def test_words_integers_and_orders_do_not_depend_on_the_batch(size: int) -> None:
    source = Randomness(3, "pgd")

    def drawn(ids: list[str]) -> list[Tensor]:
        bounds = [10 + int(name[-3:]) for name in ids]
        return [source.words(ids, (5, 3)), source.below(ids, (7,), bounds), source.permutation(ids, 9)]

    parts = [drawn(IDS[start : start + size]) for start in range(0, 64, size)]
    for whole, pieces in zip(drawn(IDS), zip(*parts, strict=True), strict=True):
        assert torch.equal(torch.cat(pieces), whole)


def test_a_longer_draw_of_words_begins_with_a_shorter_one() -> None:
    source = Randomness(3, "pgd")
    for count in (1, 2, 9, 1000):
        assert torch.equal(source.words(IDS, (1000,))[:, :count], source.words(IDS, (count,)))
        assert torch.equal(source.uniform(IDS, (1000,))[:, :count], source.uniform(IDS, (count,)))


def test_orders_are_permutations_and_all_occur() -> None:
    ids = [str(number) for number in range(3000)]
    orders = Randomness(0, "pgd").permutation(ids, 3)
    assert torch.equal(orders.sort(1).values, torch.arange(3).expand(3000, 3))
    counts = torch.unique(orders, dim=0, return_counts=True)[1]
    assert len(counts) == 6
    assert float(((counts - 500) ** 2 / 500).sum()) < 21  # 5 degrees of freedom: 0.1 %


def test_integers_fill_the_range_of_each_example() -> None:
    bounds = [1, 2, 5]
    drawn = Randomness(0, "pgd").below(IDS[:3], (400,), bounds)
    assert drawn.dtype == torch.int64
    for row, bound in zip(drawn, bounds, strict=True):
        assert sorted(set(row.tolist())) == list(range(bound))


@pytest.mark.sampled
@pytest.mark.parametrize("together", [1, 100, 2**16])
@pytest.mark.parametrize("verb", ["uniform", "normal", "words", "below", "permutation"])
def test_a_device_makes_the_numbers_of_the_cpu(
    verb: str, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: dict[str, tuple[Any, ...]] = {"below": ((4, 5), 77), "permutation": (20,)}
    draw = getattr(Randomness(3, "pgd"), verb)
    given, key = arguments.get(verb, ((4, 5),)), {"step": list(range(64)), "purpose": "any"}
    expected = draw(IDS, *given, **key)
    monkeypatch.setattr(randomness, "WORDS_TOGETHER", {False: together, True: together})
    assert torch.equal(draw(IDS, *given, **key), expected)
    with emulated_device() as device:
        few = draw(IDS, *given, **key, device=device.device)
        monkeypatch.setattr(randomness, "WORDS_FOR_DEVICE", 0)
        device.forget_counts()
        many = draw(IDS, *given, **key, device=device.device)
        assert not device.waits
        assert not device.uploads
        for found in (few, many):
            assert found.device == device.device
            assert torch.equal(found.cpu(), expected)


def test_draws_of_a_source_are_those_of_its_key() -> None:
    source = Source(Randomness(3, "pgd"), IDS, step=4)
    same: dict[str, Any] = {"step": 4, "purpose": "other"}
    keyed = source.randomness
    assert torch.equal(source.uniform((2,), "other"), keyed.uniform(IDS, (2,), **same))
    assert torch.equal(source.normal((2,), "other"), keyed.normal(IDS, (2,), **same))
    assert torch.equal(source.words((2,), "other"), keyed.words(IDS, (2,), **same))
    assert torch.equal(source.below((2,), 9, "other"), keyed.below(IDS, (2,), 9, **same))
    assert torch.equal(source.permutation(5, "other"), keyed.permutation(IDS, 5, **same))


def test_the_numbers_of_this_version_stay() -> None:
    """Results record the version of their draws: other numbers need another version."""
    source = Randomness(0, "pgd")
    assert VERSION == 2
    assert source.words(["image-000"], (3,), restart=1)[0].tolist() == WORDS
    assert (source.uniform(["image-000"], (3,), restart=1)[0].double() * 2**24).tolist() == UNIFORM
    assert (source.normal(["image-000"], (5,), restart=1)[0].double() * 2**20).tolist() == NORMAL


def test_nothing_to_draw_for() -> None:
    assert Randomness(0, "pgd").uniform([], (3, 2)).shape == (0, 3, 2)
    assert Randomness(0, "pgd").uniform(IDS, ()).shape == (64,)
    source = Randomness(0, "pgd")
    for ids in ([], IDS[:1], IDS):
        for draw in (source.uniform, source.normal, source.words):
            assert draw(ids, (3, 0)).shape == (len(ids), 3, 0)
        assert source.below(ids, (0,), 5).shape == source.permutation(ids, 0).shape == (len(ids), 0)


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    Randomness(0, "pgd").normal(IDS, (4,))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_library_stream_is_what_a_seeded_library_draws() -> None:
    torch.manual_seed(5)
    theirs = [torch.rand((64, 3, 5)), torch.randn((40, 3, 5)), torch.rand((3,)), torch.randn((7, 2))]
    stream = LibraryStream(5)
    ours = [
        stream.uniform(IDS, (3, 5), restart=1, target=[2] * 64),
        stream.normal(IDS[:40], (3, 5), step=4),
        stream.uniform(IDS[:3], ()),
        stream.normal(IDS[:7], (2,), dtype=torch.float64).float(),
    ]
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other)


def test_a_library_stream_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    LibraryStream(0).normal(IDS, (4,))
    assert torch.equal(torch.get_rng_state(), before)
