from __future__ import annotations

from typing import Any

import pytest
import torch

from assay.attacks.randomness import LibraryStream, Randomness

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


@pytest.mark.parametrize("key", ["restart", "target"])
def test_one_restart_or_target_for_each_example(key: str) -> None:
    source = Randomness(0, "pgd")
    mixed = source.uniform(IDS[:3], (4,), **{key: [0, 1, 2]})
    for row, value in enumerate([0, 1, 2]):
        assert torch.equal(mixed[row : row + 1], source.uniform([IDS[row]], (4,), **{key: value}))


def test_the_distributions() -> None:
    source = Randomness(0, "pgd")
    uniform, normal = source.uniform(IDS, (500,)), source.normal(IDS, (500,))
    assert uniform.min() >= 0
    assert uniform.max() <= 1
    assert abs(float(uniform.mean()) - 0.5) < 0.01
    assert abs(float(normal.mean())) < 0.03
    assert abs(float(normal.std()) - 1) < 0.03


def test_nothing_to_draw_for() -> None:
    assert Randomness(0, "pgd").uniform([], (3, 2)).shape == (0, 3, 2)
    assert Randomness(0, "pgd").uniform(IDS, ()).shape == (64,)


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
