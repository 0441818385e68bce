"""Leaderboards by method: jobs of the same weights are one line, weights of one training recipe one row."""

from __future__ import annotations

from dataclasses import replace
from statistics import stdev
from typing import Any

import pytest

from assay.service.contract.results import EvaluationResult, Warning
from assay.service.leaderboard.entries import LeaderboardEntry, Method, leaderboard_entries
from assay.service.leaderboard.methods import method_of, ranked_methods, same_weights
from tests.service.leaderboard.test_entries import THREATS, job, row, stages

TRAININGS = {
    name: {
        "kind": "train",
        "seed": seed,
        "model": {"name": "vit", "params": {"depth": 2}, "weights": start},
        "data": {"name": "digits", "params": {}},
        "recipe": {"name": "small", "params": {"epochs": epochs}},
        "execution": {"device": "auto", "dtype": "float32", "batch_size": 8 * (seed + 1)},
    }
    for name, seed, epochs, start in [
        ("t0", 0, 5, None),
        ("t1", 1, 5, None),
        ("long", 0, 50, None),
        ("tuned0", 0, 5, {"job": "t0"}),
        ("tuned1", 1, 5, {"job": "t1"}),
    ]
}


def spec(weights: dict[str, Any] | None = None, name: str = "vit", **changes: Any) -> Any:
    return {"seed": 0, "model": {"name": name, "params": {"depth": 2}, "weights": weights}, **changes}


def method(job_id: str, sha256: str | None, weights: dict[str, Any] | None = None, **changes: Any) -> Method:
    return method_of(job_id, spec(weights, **changes), sha256, TRAININGS)  # type: ignore[arg-type]


def entry(job_id: str, *rows: EvaluationResult, made: Method | None = None) -> LeaderboardEntry:
    found = leaderboard_entries(job(*rows, job=job_id, method=made), THREATS.get)
    return next(one for one in found if one.group.norm)


def board(*correct: int, **changes: Any) -> list[LeaderboardEntry]:
    return [entry(f"j{index}", row("ascent", one, "8/255", **changes)) for index, one in enumerate(correct)]


def test_ranks_are_shared_by_equals_and_overlap_is_marked() -> None:
    found = ranked_methods(board(10, 50, 52, 50))
    assert [(one.weights[0].job, one.rank, one.distinct) for one in found] == [
        ("j2", 1, False),
        ("j1", 2, False),
        ("j3", 2, False),
        ("j0", 4, True),
    ]
    assert len(ranked_methods(board(10, 50, 52, 50), 2)) == 2


def test_an_invalid_number_has_no_rank() -> None:
    wrong = Warning(code="leaks_future", message="m", severity="invalid")
    fine, invalid = entry("fine", row("ascent", 10, "8/255")), board(90, warnings=[wrong])[0]
    found = ranked_methods([invalid, fine])
    assert [(one.rank, one.weights[0].invalid) for one in found] == [(1, False), (None, True)]
    assert ranked_methods([invalid])[0].rank is None
    assert ranked_methods([]) == []


def test_an_accuracy_that_attacks_leave_of_probabilities_has_no_rank() -> None:
    """Losses of logits saturate on a sigmoid's outputs, which ranked above the logits of the same network."""
    saturated = Warning(code="probabilities", message="m", severity="caution")
    sigmoid = entry(
        "sigmoid", row("clean", 90, warnings=[saturated]), row("ascent", 45, "8/255", warnings=[saturated])
    )
    found = ranked_methods([sigmoid, entry("logits", row("ascent", 37, "8/255"))])
    assert [(one.weights[0].job, one.rank) for one in found] == [("logits", 1), ("sigmoid", None)]
    clean = leaderboard_entries(job(row("clean", 90, warnings=[saturated]), job="sigmoid"), THREATS.get)
    assert [one.rank for one in ranked_methods(clean)] == [1]


def test_jobs_of_the_same_weights_are_one_line_with_the_lowest_accuracy() -> None:
    """A job with a single step alone was first: its weights fall to 30 % under an ensemble of another job."""
    same = [method(f"j{number}", "a" * 64, {"job": "t0"}) for number in range(3)]
    rival = method("rival", "b" * 64, {"job": "long"})
    found = ranked_methods(
        [
            entry("j0", row("clean", 90), row("step", 80, "8/255"), made=same[0]),
            entry("rival", row("many", 40, "8/255", breakdown=stages("a", "b")), made=rival),
            entry("j1", row("many", 30, "8/255", breakdown=stages("a", "b")), made=same[1]),
            entry("j2", row("ascent", 50, "8/255"), made=same[2]),
        ]
    )
    assert [(one.rank, one.mean, one.seeds, one.sd) for one in found] == [
        (1, 0.4, 1, None),
        (2, 0.3, 1, None),
    ]
    (line,) = found[1].weights
    assert (line.job, line.jobs, line.attack, line.ensemble) == ("j1", ("j0", "j1", "j2"), "many", True)
    assert line.attacks == ("step", "many", "ascent")
    assert line.strength is not None
    assert line.strength.severity == "note"
    assert line.clean is not None, "of the job that measured it"
    assert line.passes == 3 * 1100


def test_jobs_in_a_coarser_arithmetic_are_a_row_of_their_own() -> None:
    same = method("any", "a" * 64)
    exact, again, rough = (
        entry(name, row("ascent", correct, "8/255"), made=same)
        for name, correct in (("exact", 60), ("again", 50), ("rough", 30))
    )
    found = ranked_methods([exact, replace(rough, arithmetic="bfloat16"), again])
    lines = [(one.weights[0].jobs, one.weights[0].arithmetic, one.mean) for one in found]
    assert lines == [(("exact", "again"), "", 0.5), (("rough",), "bfloat16", 0.3)]


def test_an_ensemble_of_any_job_takes_the_caution_from_the_weights() -> None:
    """Also where a single step of another job has left less than the ensemble."""
    made = [method(f"j{number}", "a" * 64, {"job": "t0"}) for number in range(2)]
    step = entry("j0", row("step", 20, "8/255"), made=made[0])
    assert step.strength is not None
    assert step.strength.code == "single_attack"
    many = entry("j1", row("many", 30, "8/255", breakdown=stages("a", "b")), made=made[1])
    for jobs in ([step, many], [many, step]):
        (line,) = same_weights(jobs)
        assert (line.attack, line.metric.value, line.ensemble) == ("step", 0.2, True)
        assert line.strength is not None
        assert (line.strength.code, line.strength.severity) == ("adaptive_attack_needed", "note")


def test_other_weights_parameters_and_readings_are_other_lines() -> None:
    first = method("j", "a" * 64, {"checkpoint": "up"})
    assert method("k", "a" * 64, {"checkpoint": "copy of up"}).weights == first.weights
    others = [
        method("j", "b" * 64, {"checkpoint": "up"}),
        method("j", "a" * 64, {"checkpoint": "up"}, name="other"),
        method("j", "a" * 64, {"checkpoint": "up", "part": "backbone"}),
        method("j", "a" * 64, {"checkpoint": "up", "normalization": "data"}),
        method("j", None, {"checkpoint": "up"}),
    ]
    assert first.weights not in [one.weights for one in others]
    assert first.key not in [one.key for one in others], "uploads do not say how they were trained"
    assert method("j", None).weights != method("k", None).weights, "unknown weights are equal to none"


def test_a_method_is_model_and_recipe_without_weights_and_seeds() -> None:
    first, second = method("j", "a" * 64, {"job": "t0"}), method("k", "b" * 64, {"job": "t1"}, seed=7)
    assert first.key == second.key
    assert (first.seed, second.seed) == (0, 1), "of the training"
    assert first.recipe == "small on digits"
    assert first.params["recipe epochs"] == 5
    assert method("j", "c" * 64, {"job": "long"}).key != first.key
    assert method("j", "c" * 64, {"job": "deleted"}).key not in (
        first.key,
        method("j", "d" * 64, {"job": "deleted"}).key,
    )
    # A training that goes on from another: seeds do not count there either.
    tuned = [method("j", sha * 64, {"job": name}) for sha, name in (("a", "tuned0"), ("b", "tuned1"))]
    assert tuned[0].key == tuned[1].key != first.key
    assert method("j", "a" * 64).key == method("k", "b" * 64, seed=3).key, "random weights of two seeds"
    assert [method("k", "b" * 64, seed=3).seed, method("k", "b" * 64, {"pulled": True}).seed] == [3, None]


def test_a_method_has_the_mean_and_spread_of_its_seeds() -> None:
    seeds = [method(f"j{n}", str(n) * 64, {"job": f"t{n}"}) for n in range(2)]
    other = method("k", "f" * 64, {"job": "long"})
    entries = [
        entry("j0", row("ascent", 60, "8/255"), made=seeds[0]),
        entry("k", row("ascent", 55, "8/255"), made=other),
        entry("j1", row("ascent", 40, "8/255"), made=seeds[1]),
    ]
    found = ranked_methods(entries)
    assert [(one.rank, one.seeds) for one in found] == [(1, 1), (2, 2)], "by the mean, not by the best seed"
    assert found[1].mean == pytest.approx(0.5)
    assert found[1].sd == pytest.approx(stdev([0.6, 0.4]))
    assert [one.job for one in found[1].weights] == ["j0", "j1"]


def test_the_spread_of_seeds_is_in_the_interval() -> None:
    def row_of(correct: int) -> EvaluationResult:
        return row("ascent", correct, "8/255", n=10_000)

    def distinct(*correct: int) -> bool:
        seeds = [
            entry(f"j{n}", row_of(one), made=method(f"j{n}", str(n) * 64, {"job": f"t{n}"}))
            for n, one in enumerate(correct)
        ]
        first = entry("k", row_of(6000), made=method("k", "f" * 64, {"job": "long"}))
        return ranked_methods([first, *seeds])[1].distinct

    assert distinct(5000)
    assert distinct(5000, 5001)
    assert not distinct(4500, 5500), "Student's t with one degree of freedom is wide"


def test_an_invalid_attack_of_one_job_leaves_the_valid_number_of_another() -> None:
    made = [method(f"j{number}", "a" * 64, {"job": "t0"}) for number in range(2)]
    zero = Warning(code="zero_gradient", message="of every example", severity="invalid")
    flat = entry("j0", row("ascent", 20, "8/255", warnings=[zero]), made=made[0])
    sound = entry("j1", row("queries", 30, "8/255"), made=made[1])
    (line,) = same_weights([flat, sound])
    assert (line.metric.value, line.invalid, line.jobs) == (0.3, False, ("j0", "j1"))
    broken = Warning(code="certified_and_broken", message="both", severity="invalid")
    contradicted = entry("j0", row("ascent", 20, "8/255", warnings=[broken]), made=made[0])
    (line,) = same_weights([contradicted, sound])
    assert line.invalid, "what is wrong of the weights is wrong of all their numbers"


def test_an_invalid_seed_does_not_count() -> None:
    wrong = Warning(code="leaks_future", message="m", severity="invalid")
    seeds = [method(f"j{n}", str(n) * 64, {"job": f"t{n}"}) for n in range(2)]
    fine = entry("j0", row("ascent", 30, "8/255"), made=seeds[0])
    leaking = entry("j1", row("ascent", 90, "8/255", warnings=[wrong]), made=seeds[1])
    (found,) = ranked_methods([leaking, fine])
    assert (found.rank, found.mean, found.seeds, found.sd) == (1, 0.3, 1, None)
    assert [one.job for one in found.weights] == ["j0", "j1"], "shown below, last"
