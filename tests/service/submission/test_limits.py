"""JobLimits of a job's work: what counts, what is refused, and the deadline that follows from an estimate."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.submission.limits import JobLimits, Speed, bounded_estimate, plan_excess
from assay.service.submission.validate import validate

LIMITS = JobLimits({"cpu": 1000.0, "cuda": 10_000.0}, 100_000)
MODEL = {"name": "vit", "params": {"image_size": 8, "patch_size": 4}}


def bounded(
    body: dict[str, Any], limits: JobLimits = LIMITS, devices: tuple[str, ...] = ("cpu",), each: float = 0.01
) -> dict[str, Any]:
    valid = validate(load(), {"model": MODEL, "data": {"name": "digits"}} | body)
    seconds = {"cpu": each, "cuda": each / 100}
    return bounded_estimate(
        load(), valid.spec, valid.estimate, limits, devices, lambda device: Speed(seconds[device], "a guess")
    )


def evaluations(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "evaluate", "evaluations": list(items), **more}


PGD = {"name": "pgd", "params": {"steps": 10}}


def test_an_estimate_counts_a_backward_pass_twice_and_says_where_its_seconds_come_from() -> None:
    found = bounded(evaluations(PGD, limit=100))
    # 10 steps of a forward and a backward pass, and two checks.
    assert (found["forward_passes"], found["backward_passes"]) == (1200, 1000)
    assert found["seconds"] == pytest.approx((1200 + 2 * 1000) * 0.01)
    assert found["seconds_from"] == "a guess"
    assert (found["device"], found["max_seconds"], found["max_examples"]) == ("cpu", 1000.0, 100_000)


@pytest.mark.parametrize("recipe", ["lra_primal", "lra_skyformer"])
def test_a_recipe_whose_steps_are_those_of_its_task_is_estimated(recipe: str) -> None:
    body = {
        "kind": "train",
        "model": {"name": "lra_transformer", "params": {"length": 64}},
        "data": {"name": "lra_listops"},
        "recipe": {"name": recipe, "params": {"task": "listops"}},
        "execution": {"batch_size": 8},
    }
    assert bounded(body)["examples"] is None


@pytest.mark.parametrize(
    ("body", "loc", "given", "allowed"),
    [
        (
            evaluations({"name": "pgd", "params": {"steps": 100_000, "restarts": 100}}),
            "evaluations",
            "estimated 1.07e+08 s",
            "at most 1000 s on cpu",
        ),
        # The size of a folder is not known here; one example is at least in it.
        (
            evaluations(
                {"name": "clean"},
                {"name": "pgd", "params": {"steps": 100_000}},
                model={"name": "vit"},
                data={"name": "imagenet"},
            ),
            "evaluations",
            "estimated 3e+03 s",
            "at most 1000 s on cpu",
        ),
        (
            {"kind": "train", "recipe": {"name": "small_vit", "params": {"epochs": 10_000}}},
            "recipe",
            "estimated 4.33e+05 s",
            "at most 1000 s on cpu",
        ),
    ],
)
def test_a_job_over_the_seconds_is_refused(body: dict[str, Any], loc: str, given: str, allowed: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        bounded(body)
    detail = refused.value.details[0]
    assert (detail.loc, detail.given, detail.allowed) == ([loc], given, allowed)
    assert "ASSAY_MAX_JOB_SECONDS" in detail.message
    assert "a guess" in detail.message
    assert bounded(body, JobLimits({"cpu": None, "cuda": None}, None))["max_seconds"] is None


def test_a_job_over_the_examples_is_refused_and_each_evaluation_counts() -> None:
    def asks(count: int) -> dict[str, Any]:
        return bounded(evaluations(*[{"name": "clean"}] * count, limit=100), JobLimits({"cpu": None}, 500))

    assert asks(5)["examples"] == 500
    with pytest.raises(InvalidSpec) as refused:
        asks(6)
    assert (refused.value.details[0].given, refused.value.details[0].allowed) == (
        "600 examples",
        "at most 500 examples",
    )


def test_of_several_device_classes_the_one_with_most_room_counts() -> None:
    body = evaluations({"name": "pgd", "params": {"steps": 2000}})
    with pytest.raises(InvalidSpec):
        bounded(body)
    assert bounded(body, devices=("cpu", "cuda"))["device"] == "cuda"


def test_a_job_that_fits_one_device_class_is_accepted_though_another_is_faster() -> None:
    body = evaluations(PGD, limit=10)  # 320 passes: 3.2 s on the CPU, 0.032 s on a GPU
    scarce = JobLimits({"cpu": 1000.0, "cuda": 0.01}, None)
    assert bounded(body, scarce, ("cuda", "cpu"))["device"] == "cpu"
    free = JobLimits({"cpu": None, "cuda": 0.01}, None)
    assert bounded(body, free, ("cuda", "cpu"))["device"] == "cpu"
    with pytest.raises(InvalidSpec, match="on cuda"):
        bounded(body, scarce, ("cuda",))


def test_an_unknown_number_of_examples_gives_no_seconds() -> None:
    model = {"name": "vit"}
    found = bounded(evaluations({"name": "clean"}, model=model, data={"name": "imagenet"}))
    assert (found["examples"], found["seconds"]) == (None, None)
    assert "planned" in found["seconds_from"]


def test_suites_are_counted_before_they_are_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    def expanded(*_: object) -> None:
        raise AssertionError("a suite was expanded")

    monkeypatch.setattr("assay.service.submission.validate.expand", expanded)
    monkeypatch.setattr("assay.service.submission.validate.expand_fitting", expanded)
    with pytest.raises(InvalidSpec) as refused:
        bounded(evaluations(*[{"suite": "quick"}] * 500))
    assert refused.value.details[0].given == 500 * 17
    assert refused.value.details[0].allowed == "at most 500 evaluations"


def test_fewer_evaluations_may_be_allowed() -> None:
    body = {"model": MODEL, "data": {"name": "digits"}} | evaluations(*[{"name": "clean"}] * 4)
    assert len(validate(load(), body, max_evaluations=4).spec["evaluations"]) == 4
    with pytest.raises(InvalidSpec, match="has 4 evaluations, at most 3 are allowed"):
        validate(load(), body, max_evaluations=3)


@pytest.mark.parametrize(
    ("seconds", "deadline"), [(0.0, 3600.0), (500.0, 5000.0), (900.0, 9000.0), (5000.0, 10_000.0)]
)
def test_a_deadline_is_ten_estimates_an_hour_at_least_and_ten_limits_at_most(
    seconds: float, deadline: float
) -> None:
    assert LIMITS.deadline_seconds("cpu", seconds) == deadline
    assert JobLimits({"cpu": None}, None).deadline_seconds("cpu", 1e6) == 1e7


def plan(examples: int, **more: Any) -> Any:
    return {"device": "cpu", "shards": [{"start": 0, "stop": examples, "cost": 600.0}] * 2, **more}


def test_a_plan_is_measured_by_its_estimate_else_by_its_shards() -> None:
    assert plan_excess(LIMITS, plan(50_000, estimated_seconds=999.0)) is None
    assert "estimated 1.2e+03 s" in str(plan_excess(LIMITS, plan(50_000)))
    assert "ASSAY_MAX_EXAMPLES" in str(plan_excess(LIMITS, plan(50_001, estimated_seconds=1.0)))
