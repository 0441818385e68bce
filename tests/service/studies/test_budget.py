"""Studies that fit a budget: the order of what is given up, and words for it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from assay.service.store.results import ResultRows
from assay.service.studies import posting
from assay.service.studies.budget import ArmCost, Fit, fit, fitted_spec, least_seconds, shortens
from tests.service.studies.test_routes import STUDIES, study_body

ARMS = [
    ArmCost("softmax", 10.0, 2.0, shortens=True, kept=True),
    ArmCost("rpc", 20.0, 4.0, shortens=True, kept=True),
    ArmCost("other", 14.0, 2.0, shortens=True, kept=False),
]  # 52 s for a seed, 8 of them of evaluations


@pytest.mark.parametrize(
    ("budget", "arms", "seeds", "share"),
    [
        (312.0, 3, 6, 1.0),  # all of it
        (311.0, 3, 5, 1.0),
        (208.0, 3, 4, 1.0),
        (164.0, 3, 4, 0.75),
        (120.0, 3, 4, 0.5),
        (112.2, 3, 3, 0.6681818181818182),
        (60.0, 3, 2, 0.5),
        (59.0, 2, 2, 0.7833333333333333),
        (42.0, 2, 2, 0.5),
    ],
)
def test_it_gives_up_seeds_then_length_then_seeds_then_arms(
    budget: float, arms: int, seeds: int, share: float
) -> None:
    found = fit(ARMS, 6, budget)
    assert found is not None
    assert (len(found.arms), found.seeds) == (arms, seeds)
    assert found.share == pytest.approx(share)
    assert found.seconds <= budget * (1 + 1e-12)


def test_what_cannot_fit_is_none_and_the_least_is_told() -> None:
    assert least_seconds(ARMS, 6) == 42.0
    assert fit(ARMS, 6, 41.9) is None
    assert fit(ARMS, 1, 21.0) == Fit(["softmax", "rpc"], 1, 0.5, 21.0)


def test_fits_only_fall_with_the_budget() -> None:
    seconds = [found.seconds for budget in range(330, 41, -1) if (found := fit(ARMS, 6, float(budget)))]
    assert len(seconds) == 330 - 41
    assert all(one <= budget + 1e-9 for one, budget in zip(seconds, range(330, 41, -1), strict=True))


def test_trainings_of_no_stated_length_are_not_shortened() -> None:
    arms = [ArmCost("a", 10.0, 0.0, shortens=False, kept=True)]
    assert fit(arms, 6, 20.0) is None
    assert fit(arms, 6, 40.0) == Fit(["a"], 4, 1.0, 40.0)


def spec() -> dict[str, Any]:
    recipe = {"name": "small_vit", "params": {"steps": 2500, "rate": 0.1}}
    arms = [{"name": name, "recipe": recipe} for name in ("softmax", "rpc", "other")]
    return {"seeds": [0, 1, 2, 3, 4, 5], "arms": [*arms, {"name": "given", "recipe": None}]}


def test_what_is_given_up_is_said() -> None:
    given = spec()
    changed, told = fitted_spec(given, Fit(["softmax", "rpc", "given"], 4, 0.72, 1.0))
    assert told == ["4 seeds of 6", "1,800 steps of 2,500", "without arm 'other'"]
    assert changed["seeds"] == [0, 1, 2, 3]
    assert [arm["name"] for arm in changed["arms"]] == ["softmax", "rpc", "given"]
    assert changed["arms"][0]["recipe"]["params"] == {"steps": 1800, "rate": 0.1}
    assert given == spec(), "the given spec stays"
    assert not shortens(changed["arms"][2])
    every = [arm["name"] for arm in given["arms"]]
    assert fitted_spec(given, Fit(every, 6, 1.0, 1.0)) == (given, [])


def test_a_budget_needs_the_number_of_examples(api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of texts it is counted when a job is planned: a measured speed says nothing of the time."""
    monkeypatch.setattr(posting, "estimated_work", lambda *_: {"seconds": None, "seconds_measured": False})
    uncounted = api.post(STUDIES, params={"budget": 60}, json=study_body(seeds=6))
    assert uncounted.status_code == 409
    assert "counted only when a job of it is planned" in uncounted.json()["error"]["message"]


def test_a_study_is_cut_and_says_so(api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    unmeasured = api.post(STUDIES, params={"budget": 60}, json=study_body(seeds=6))
    assert unmeasured.status_code == 409
    assert "no job has measured the speed of arm 'narrow'" in unmeasured.json()["error"]["message"]
    monkeypatch.setattr(ResultRows, "seconds_per_pass", lambda *_: (1e-3, 5000))
    plan = api.post(STUDIES, params={"dry_run": "true"}, json=study_body(seeds=6)).json()
    assert plan["arms"][0]["evaluate"]["seconds_measured"]
    budget = 0.7 * plan["seconds"]
    design = api.post("/api/v1/designs", json=study_body(seeds=6)).json()
    dry = api.post(STUDIES, params={"dry_run": "true", "budget": budget}, json=study_body(seeds=6)).json()
    assert len(dry["spec"]["seeds"]) == 4
    study = api.post(STUDIES, params={"budget": budget}, json=study_body(seeds=6)).json()
    assert study["spec"]["seeds"] == [0, 1, 2, 3]
    (told,) = study["fixing"]["remarks"]
    assert told == (
        f"after registration at {design['registered_at']} as sha256:{design['digest']},"
        f" changed by a budget of {budget:,g} s: 4 seeds of 6"
    )
    assert dry["notes"] == [told]
    assert study["fixing"]["registered_at"] is None
    assert study["fixing"]["design"] != design["digest"]
    whole = api.post(STUDIES, params={"budget": 2 * plan["seconds"]}, json=study_body(seeds=6)).json()
    assert (whole["fixing"]["design"], whole["fixing"]["remarks"]) == (design["digest"], [])
    none = api.post(STUDIES, params={"budget": 1e-6}, json=study_body(seeds=6))
    assert none.status_code == 422
    assert none.json()["error"]["details"][0]["loc"] == ["query", "budget"]
