"""Every keyed draw of an evaluation is used once: no two purposes share the key of their random numbers."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
import torch

from assay.attacks.adversarial.pgd import pgd
from assay.attacks.randomness import LibraryStream, Randomness
from assay.workers.evaluation.engine import probe
from assay.workers.evaluation.engine.protocols import attack_pixel
from assay.workers.evaluation.randomized_smoothing import randomized_smoothing
from tests.laws import test_attack_laws as classifiers
from tests.laws import test_segmentation_attack_laws as segmentation
from tests.laws.test_attack_laws import Network
from tests.support import networks
from tests.support.random_models import Noisy
from tests.support.shards import Given, shard

N = 6
PIXELS, LABELS = networks.digits()
# Between a draw and the code that asks for it.
BETWEEN = ("randomness.py", "test_draw_laws.py")

Key = tuple[Any, ...]
Site = tuple[str, ...]


def site() -> Site:
    """The lines of the attacks and evaluations that lead to a draw, the innermost first."""
    frame, lines = sys._getframe(2), []
    while frame is not None:
        path = frame.f_code.co_filename
        inside = "/attacks/" in path or "/workers/" in path
        if inside and "/tests/" not in path and not path.endswith(BETWEEN) and "/engine/" not in path:
            lines.append(f"{path.rpartition('/')[2]}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(lines)


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[Key, list[Site]]]:
    """The sites of all draws by their key."""
    found: dict[Key, list[Site]] = defaultdict(list)
    keyed = Randomness._key

    def noting(self: Randomness, *parts: Any) -> int:
        found[(self.seed, self.attack, *parts)].append(site())
        return keyed(self, *parts)

    with monkeypatch.context() as patch:
        patch.setattr(Randomness, "_key", noting)
        yield found


def shared(found: dict[Key, list[Site]]) -> dict[Key, set[Site]]:
    """Keys that several sites draw from, or one site more than once."""
    return {key: set(sites) for key, sites in found.items() if len(sites) > 1}


CASES = [case for case in classifiers.CASES if "compatible" not in str(case.id)]


@pytest.fixture(scope="module")
def network() -> Network:
    return Network().eval()


@pytest.mark.sampled
@pytest.mark.parametrize(("module", "name", "params"), CASES)
def test_no_attack_draws_twice_from_one_key(
    module: ModuleType, name: str, params: dict[str, Any], network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = classifiers.make(module, name, params)
    ids = classifiers.IDS[:N]
    with watched(monkeypatch) as found:
        attack_pixel(
            attack,
            network,
            lambda rows: PIXELS[list(rows)],
            LABELS[:N],
            ids,
            randomness=Randomness(0, attack.name),
            batch_size=4,
        )
    assert shared(found) == {}


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "params"), segmentation.CASES)
def test_no_attack_on_segmentation_draws_twice_from_one_key(
    name: str, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = segmentation.Network().double().eval()
    images = torch.rand(segmentation.N, 3, segmentation.SIDE, segmentation.SIDE)
    maps = model(images.double()).argmax(1).to(torch.uint8)
    with watched(monkeypatch) as found:
        segmentation.run(name, params, model, (images, maps))
    assert shared(found) == {}


def test_smoothing_draws_once_for_each_purpose(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Given(classifiers.IDS[:2], classes=10, images=lambda rows: PIXELS[list(rows)], labels=LABELS[:2])
    with watched(monkeypatch) as found:
        randomized_smoothing(sigmas=[0.1, 0.2], selection=60, draws=120).measure(shard(network, data))
    assert shared(found) == {}
    assert {key[-1] for key in found} == {"selection", "estimation"}


def test_draws_of_a_random_model_have_keys_by_purpose(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One key for each purpose and batch, the same for every image that is compared there."""
    keys: dict[str, set[str]] = defaultdict(set)
    seeds: list[int] = []
    derived = probe.derive_seed

    def deriving(seed: int, purpose: str, number: int) -> int:
        value = derived(seed, purpose, number)
        keys[purpose.rpartition("/")[0]].add(purpose)
        seeds.append(value)
        return value

    monkeypatch.setattr(probe, "derive_seed", deriving)
    attack_pixel(
        pgd(epsilon=0.1, steps=2, eot=2, model_draws=2),
        Noisy(network, 0.1).eval(),
        lambda rows: PIXELS[list(rows)],
        LABELS[:N],
        classifiers.IDS[:N],
        randomness=Randomness(0, "pgd"),
        batch_size=3,
    )
    assert {purpose: len(batches) for purpose, batches in keys.items()} == {
        "answers/expected/choice": 2,
        "answers/expected/final": 2,
    }
    assert len(set(seeds)) == 4


def test_a_shared_key_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = Randomness(0, "any")
    with watched(monkeypatch) as found:
        draws.uniform(["a", "b"], (3,))
        draws.normal(["b"], (3,))
        draws.normal(["b"], (3,), purpose="other")
        LibraryStream(0).uniform(["a"], (3,))
    assert [key[2] for key in shared(found)] == ["b"]
