"""What a job is estimated to ask for: never more examples than there are, never less than one pass each."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import KINDS, Catalog, load
from assay.service.contract.errors import InvalidSpec
from assay.service.submission.estimate import LeastWork, estimate, least_work
from assay.service.submission.limits import JobLimits, Speed, bounded_estimate
from assay.service.submission.validate import validate

SIZE = (load().find("data", "digits").facts or {})["test"]
SHARED = {
    "model": {"name": "vit", "params": {"image_size": 8, "patch_size": 4}},
    "data": {"name": "digits"},
}


def spec_of(**body: Any) -> Any:
    return validate(load(), SHARED | body).spec


@pytest.mark.parametrize(("limit", "examples"), [(None, SIZE), (10, 10), (SIZE, SIZE), (50_000, SIZE)])
def test_a_limit_above_the_size_of_the_data_adds_no_work(limit: int | None, examples: int) -> None:
    spec = spec_of(kind="evaluate", limit=limit, evaluations=[{"name": "clean"}])
    assert estimate(load(), spec)["examples"] == examples
    assert least_work(load(), spec) == LeastWork(examples, examples, 0)


def without_passes(kind: str, name: str) -> Catalog:
    """The catalog, in which a component does not say how many passes it makes."""
    known = [entry for every in KINDS for entry in load().list(every)]
    return Catalog(
        entry.model_copy(update={"passes": None}) if (entry.kind, entry.name) == (kind, name) else entry
        for entry in known
    )


def test_unknown_passes_are_one_forward_pass_at_least() -> None:
    """Else no limit of computing would hold for them."""
    spec = spec_of(kind="evaluate", limit=10, evaluations=[{"name": "clean"}])
    unknown = without_passes("evaluation", "clean")
    assert estimate(unknown, spec)["forward_passes"] is None
    assert least_work(unknown, spec) == LeastWork(10, 10, 0)
    speed = Speed(1.0, "a guess")
    limits = JobLimits({"cpu": 9.0}, None)
    totals = estimate(unknown, spec)
    with pytest.raises(InvalidSpec, match="estimated 10 s"):
        bounded_estimate(unknown, spec, totals, limits, ("cpu",), lambda device: speed)


def test_unknown_passes_of_a_training_are_one_of_each() -> None:
    spec = spec_of(kind="train", recipe={"name": "small_vit", "params": {"epochs": 1}})
    found = least_work(without_passes("recipe", "small_vit"), spec)
    assert found.forward == found.backward == found.examples > 0


def test_steps_of_a_stated_batch_are_known_work() -> None:
    recipe = {"name": "lra_primal", "params": {"steps": 2500, "total_batch": 256}}
    shared = {
        "model": {"name": "lra_transformer", "params": {"length": 1024}},
        "data": {"name": "lra_image"},
        "kind": "train",
    }
    assert estimate(load(), spec_of(**shared, recipe=recipe))["examples"] == 2500 * 256
    for left in ("steps", "total_batch"):
        params = {name: value for name, value in recipe["params"].items() if name != left}
        spec = spec_of(**shared, recipe={"name": "lra_primal", "params": params})
        assert estimate(load(), spec)["examples"] is None


def test_a_set_of_unknown_size_counts_as_published_where_that_is_asked() -> None:
    shared = {"model": {"name": "symvit_tiny"}, "data": {"name": "imagenet"}}
    training = spec_of(
        kind="train", **shared, recipe={"name": "deit", "params": {"epochs": 2, "warmup_epochs": 1}}
    )
    evaluation = spec_of(kind="evaluate", **shared, evaluations=[{"suite": "rpc_table1"}])
    few = spec_of(kind="evaluate", **shared, evaluations=[{"suite": "rpc_table1"}], limit=100)
    assert estimate(load(), training)["examples"] is None
    assert estimate(load(), training, published=True)["examples"] == 2 * 1_281_167
    assert estimate(load(), evaluation)["examples"] is None
    assert (
        estimate(load(), evaluation, published=True)["examples"] == 50_000 + 30_000 + 7_500 + 50_000 + 12_000
    )
    assert estimate(load(), few, published=True) == estimate(load(), few)
