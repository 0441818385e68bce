"""The jobs of a storm: most for the fake evaluator, two real ones on handwritten digits."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.service.catalog.catalog import load as load_catalog
from assay.service.submission.validate import validate
from tests.e2e.jobs import attacking, pgd, training

EXAMPLES = 2


@dataclass(frozen=True)
class Wish:
    """A job to be submitted.

    Attributes:
        key: names it in every run of the same storm, and is its idempotency key.
        body: what a user would post, without `weights`.
        weights_of: the key of the job whose weights it takes.
        shards: evaluate and train shards that it will have; None where the plan decides.
    """

    key: str
    body: dict[str, Any]
    weights_of: str | None = None
    shards: int | None = None


def wish(seed: int, number: int, shards: int, *, real: bool) -> Wish:
    """The nth job in the order of submission; the same for the same arguments.

    Args:
        seed: of all that differs between them.
        number: of the job, from 0.
        shards: of each fake one.
        real: whether the first two are real.
    """
    # The real ones early, since they take longest; and a training before what waits for it.
    if real and number < len(_real()):
        return _real()[number]
    return _fake(random.Random(f"jobs {seed} {number}"), number, shards)


def _fake(draw: random.Random, number: int, shards: int) -> Wish:
    evaluations = draw.choice([n for n in (1, 2, 4) if shards % n == 0])
    key = f"storm-{number:03d}"
    items = [pgd(f"{1 + index}/255", steps=2) for index in range(evaluations)]
    name = f"{key} shards={shards // evaluations} examples={EXAMPLES}"
    top = {"name": name, "seed": draw.randrange(10**6), "priority": draw.randrange(10)}
    return Wish(key, attacking(None, items, **top), shards=shards)


def _real() -> list[Wish]:
    source = Wish("real-training", training(epochs=4, name="real training", priority=9), shards=1)
    items = [{"name": "clean"}, pgd("8/255", steps=4)]
    body = attacking(None, items, name="real attack", priority=9, limit=160)
    return [source, Wish("real-attack", body, weights_of=source.key)]


def with_weights(wished: Wish, ids: Mapping[str, str]) -> dict[str, Any]:
    """What a user posts.

    Args:
        wished: the job.
        ids: the ids of the jobs that were submitted before, by key.
    """
    if wished.weights_of is None:
        return wished.body
    # The parameters are those of the training.
    model = {"name": wished.body["model"]["name"], "weights": {"job": ids[wished.weights_of]}}
    return {**wished.body, "model": model}


def spec_of(wished: Wish, ids: Mapping[str, str]) -> dict[str, Any]:
    """The spec as the service would store it: checked, with all defaults filled in; arguments as above."""
    valid = validate(load_catalog(), wished.body, data_root=None, find_job=None).spec
    if wished.weights_of is not None:
        valid["model"]["weights"] = {"job": ids[wished.weights_of]}
    return valid
