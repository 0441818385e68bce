"""The nominal cost of corrupted images, and that a plan counts it."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import pytest

from assay.attacks.corruptions.imaging.imagenet_c import FIFTEEN
from assay.service.catalog.catalog import Catalog, load
from assay.service.contract.corruption_cells import SEVERITIES
from assay.workers.jobs import cost
from assay.workers.jobs.cost import FIXED, example_seconds, preparation_seconds, stated_milliseconds
from assay.workers.jobs.plan import cut

ALL = {"corruptions": [*FIFTEEN], "severities": [*SEVERITIES], "source": "generated"}


def corruptions(**params: Any) -> dict[str, Any]:
    return {"name": "corruptions", "params": ALL | params}


def test_every_corruption_has_a_cost_and_nothing_else_has() -> None:
    assert set(stated_milliseconds()) == {component.name for component in load().list("corruption")}
    for component in (*load().list("attack"), *load().list("evaluation")):
        properties = component.parameters["properties"]
        params = {name: schema.get("default") for name, schema in properties.items()}
        cost = preparation_seconds({"name": component.name, "params": params}, 224, "cpu")
        assert (cost > 0) is ("corruptions" in component.name), component.name


def test_it_grows_with_cells_and_pixels_and_is_that_of_reading_where_images_are_stored() -> None:
    whole = preparation_seconds(corruptions(), 224, "cpu")
    assert whole == pytest.approx(5 * sum(stated_milliseconds()[name] + FIXED for name in FIFTEEN) / 1000)
    assert preparation_seconds(corruptions(), 448, "cpu") == pytest.approx(4 * whole - 3 * 75 * FIXED / 1000)
    assert preparation_seconds(corruptions(severities=[3, 3]), 224, "cpu") == pytest.approx(whole / 5)
    assert preparation_seconds(corruptions(), 224, "cuda") == pytest.approx(whole / 20)
    stored = [preparation_seconds(corruptions(source="stored"), size, "cpu") for size in (32, 224)]
    assert stored[0] == stored[1] == pytest.approx(75 * 0.9 / 1000)


def test_a_corruption_that_states_no_cost_has_the_mean_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    fog = load().find("corruption", "fog")
    other = fog.model_copy(update={"name": "posterize", "facts": None})
    monkeypatch.setattr(cost, "load", lambda: Catalog([*load().list(), other]))
    mean = fmean(stated_milliseconds().values())
    assert mean != stated_milliseconds()["fog"]
    seconds = preparation_seconds(corruptions(corruptions=["posterize"], severities=[1]), 224, "cpu")
    assert seconds == pytest.approx((mean + FIXED) / 1000)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_shard_of_a_small_model_is_not_many_times_too_long(device: str) -> None:
    """1 MFLOP: passes alone would put more examples into a shard than can be corrupted in an hour."""
    seconds = example_seconds(corruptions(), 1e6, device, 224)
    making = preparation_seconds(corruptions(), 224, device)
    assert making < seconds < 1.1 * making
    lengths = [shard["stop"] - shard["start"] for shard in cut(0, 10**6, seconds, 64, 240.0)]
    assert 120 < lengths[0] * making < 240
