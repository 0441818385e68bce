"""Entries and ranks of leaderboards."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.results import EvaluationResult, Metric, Reference, Warning
from assay.service.contract.threat import Threat
from assay.service.leaderboard.entries import UNATTACKED, LeaderboardEntry, MeasuredJob, leaderboard_entries
from assay.service.metrics.statistics.intervals import wilson

THREATS = {
    "noise": Threat(knowledge="noise"),
    "step": Threat(knowledge="white_box", search="single_step"),
    "ascent": Threat(knowledge="white_box", search="iterative"),
    "round": Threat(knowledge="white_box", search="iterative", norm="L2"),
    "queries": Threat(knowledge="black_box", search="iterative"),
    "many": Threat(knowledge="white_box", search="ensemble", upper_bound="an upper bound"),
}
DIGITS = {"name": "digits", "params": {}}


def metric(correct: int, n: int = 100) -> Metric:
    low, high = wilson(correct, n)
    return Metric(value=correct / n, n=n, ci_low=low, ci_high=high, ci_method="wilson", higher_is_better=True)


def row(name: str, correct: int, epsilon: Any = None, n: int = 100, **changes: Any) -> EvaluationResult:
    attack = name in THREATS
    values: dict[str, Any] = {
        "name": name,
        "params": {"epsilon": epsilon} if attack else {},
        "data": DIGITS,
        "protocol": "pixel",
        "backend": "native",
        "metrics": {"top1": metric(correct, n)},
        "seconds": 2.0,
        "forward_passes": n,
        "backward_passes": 10 * n if attack else 0,
    }
    return EvaluationResult.model_validate(values | changes)


def job(*rows: EvaluationResult, **changes: Any) -> MeasuredJob:
    values: dict[str, Any] = {
        "job": "j",
        "name": "",
        "model": "vit",
        "seed": 0,
        "weights_sha256": None,
        "data_sha256": {"digits": "d" * 64},
        "available": dict.fromkeys(range(len(rows)), 200),
        "evaluations": dict(enumerate(rows)),
    }
    return MeasuredJob(**(values | changes))


def entries(*rows: EvaluationResult, **changes: Any) -> dict[str, LeaderboardEntry]:
    found = leaderboard_entries(job(*rows, **changes), THREATS.get)
    assert len({one.group for one in found}) == len(found)
    return {one.group.threat: one for one in found}


def test_the_lowest_accuracy_of_a_threat_counts() -> None:
    found = entries(
        row("clean", 90), row("step", 50, "8/255"), row("ascent", 30, 8 / 255), row("ascent", 70, "2/255")
    )
    assert set(found) == {UNATTACKED, "Linf 8/255", "Linf 2/255"}
    one = found["Linf 8/255"]
    assert (one.metric.value, one.attack, one.attacks) == (0.3, "ascent", ("step", "ascent"))
    assert one.clean is not None
    assert one.clean.value == 0.9
    assert (one.passes, one.seconds) == (2200, 4.0)
    assert not one.ensemble
    assert found[UNATTACKED].metric.value == 0.9


def test_an_ensemble_is_named_among_equals() -> None:
    found = entries(row("ascent", 10, "8/255"), row("many", 10, "8/255"))
    assert (found["Linf 8/255"].attack, found["Linf 8/255"].ensemble) == ("many", True)
    assert found["Linf 8/255"].clean is None


def test_noise_and_rows_without_accuracy_or_epsilon_have_no_entry() -> None:
    unknown = row("clean", 50, params={"epsilon": 0.1})
    without = row("clean", 50).model_copy(update={"metrics": {}})
    corrupted = row("clean", 50, breakdown=[{"corruption": "fog", "severity": 1, "metrics": {}}])
    drawn = row("token_noise", 50)
    assert entries(row("noise", 80, "8/255"), row("ascent", 10), unknown, without, corrupted, drawn) == {}


@pytest.mark.parametrize(
    ("name", "epsilon", "label"),
    [
        ("ascent", "8/255", "Linf 8/255"),
        ("ascent", 0.1, "Linf 0.1"),
        ("ascent", 0.0, "Linf 0"),
        ("ascent", 0.5 / 255, "Linf 0.001961"),
        ("round", 0.5, "L2 0.5"),
        ("round", 0.2, "L2 0.2"),
    ],
)
def test_threats_are_named_by_norm_and_epsilon(name: str, epsilon: Any, label: str) -> None:
    assert set(entries(row(name, 10, epsilon))) == {label}


def test_other_examples_and_protocols_are_other_groups() -> None:
    rows = [row("ascent", 10, "8/255")]
    same = leaderboard_entries(job(*rows), THREATS.get)[0].group
    others = [
        job(row("ascent", 10, "8/255", n=50)),
        job(row("ascent", 10, "8/255", protocol="paper")),
        job(*rows, data_sha256={"digits": "e" * 64}),
        job(row("ascent", 10, "8/255", data={"name": "digits", "params": {"folder": "x"}})),
    ]
    for other in others:
        assert leaderboard_entries(other, THREATS.get)[0].group != same
    assert leaderboard_entries(job(*rows, model="other", seed=3), THREATS.get)[0].group == same
    assert not same.whole
    assert leaderboard_entries(job(*rows, available={0: 100}), THREATS.get)[0].group.whole


def test_an_unattacked_row_with_fewer_parameters_is_the_clean_one() -> None:
    noisy = row("clean", 20, params={"rate": 0.1})
    assert entries(noisy, row("clean", 90))[UNATTACKED].metric.value == 0.9


def test_parameters_and_published_numbers() -> None:
    size = Metric(value=5.0, n=3, ci_low=5.0, ci_high=5.0, ci_method="exact", higher_is_better=False)
    counted = row("efficiency", 0).model_copy(update={"metrics": {"parameters": size}})
    told = [
        Reference(metric=name, value=0.2, source="a paper", protocol="paper") for name in ("top1", "top5")
    ]
    found = entries(row("clean", 90, reference=told), row("ascent", 10, "8/255"), counted)
    assert found["Linf 8/255"].parameters == 5.0
    assert [one.metric for one in found["Linf 8/255"].clean_references] == ["top1"]
    assert found["Linf 8/255"].references == ()


def test_warnings_across_the_job_are_told_of_attacked_rows_alone() -> None:
    found = entries(row("clean", 95), row("step", 10, "8/255"), row("ascent", 60, "8/255"))
    codes = {threat: [str(one.code) for one in entry.warnings] for threat, entry in found.items()}
    assert codes == {UNATTACKED: [], "Linf 8/255": ["single_step_stronger_than_iterative"]}


@pytest.mark.parametrize(
    ("epsilon", "label"), [(0.2, "Linf 0.2 sd"), (0.4, "Linf 0.4 sd"), (1.5, "Linf 1.5 sd")]
)
def test_radii_on_series_are_in_standard_deviations(epsilon: float, label: str) -> None:
    assert set(entries(row("ascent", 10, epsilon, protocol="series"))) == {label}
    # Rows of earlier versions state `pixel`; the catalog knows the data set.
    old = row("ascent", 10, epsilon, data={"name": "motions", "params": {}})
    found = leaderboard_entries(job(old), THREATS.get, load().radius_unit)
    assert [one.group.threat for one in found] == [label]


SCREENED = {"code": "screened", "message": "", "evidence": {"screening": "bfloat16_gradients"}}


@pytest.mark.parametrize(
    ("dtype", "warnings", "attacked", "unattacked"),
    [
        ("float32", [], "", ""),
        ("float64", [], "", ""),
        ("tf32", [], "tf32", "tf32"),
        ("bfloat16", [SCREENED], "bfloat16", "bfloat16"),
        ("float32", [SCREENED], "screening bfloat16_gradients", ""),
    ],
)
def test_an_arithmetic_coarser_than_float32_is_named(
    dtype: str, warnings: list[Any], attacked: str, unattacked: str
) -> None:
    found = entries(row("clean", 90), row("ascent", 10, "8/255", warnings=warnings), dtype=dtype)
    assert (found["Linf 8/255"].arithmetic, found[UNATTACKED].arithmetic) == (attacked, unattacked)


def test_tf32_on_a_device_without_it_is_plain_float32() -> None:
    """The job's warning says that another dtype was asked for: no caution of the number."""
    lacking = {"code": "other_dtype", "message": "computed in float32", "evidence": {}}
    found = entries(row("ascent", 10, "8/255", warnings=[lacking]), dtype="float32")["Linf 8/255"]
    assert (found.arithmetic, found.warnings) == ("", ())


def test_earlier_versions_called_attacks_without_gradients_screened() -> None:
    found = entries(row("queries", 10, "8/255", warnings=[SCREENED]))
    assert found["Linf 8/255"].arithmetic == ""
    found = entries(
        row("queries", 10, "8/255", warnings=[SCREENED]), row("ascent", 30, "8/255", warnings=[SCREENED])
    )
    assert found["Linf 8/255"].arithmetic == "screening bfloat16_gradients"


def test_expected_accuracy_is_never_in_bfloat16() -> None:
    expected = {"metrics": {"expected_top1": metric(40)}}
    assert entries(row("ascent", 40, "8/255", **expected), dtype="bfloat16")["Linf 8/255"].arithmetic == ""
    assert entries(row("ascent", 40, "8/255", **expected), dtype="tf32")["Linf 8/255"].arithmetic == "tf32"


def strength(*rows: EvaluationResult) -> tuple[str, str, Any] | None:
    found = entries(*rows)["Linf 8/255"].strength
    return None if found is None else (found.code, found.severity, found.evidence.get("search"))


def stages(*names: str) -> list[dict[str, Any]]:
    facts = {"metrics": {}, "n": 1, "broken": 0, "forward_passes": 1, "backward_passes": 1, "seconds": 1.0}
    return [{"stage": name, **facts} for name in names]


@pytest.mark.parametrize(
    ("name", "search"), [("step", "single_step"), ("ascent", "iterative"), ("queries", "iterative")]
)
def test_an_accuracy_without_an_ensemble_has_a_caution(name: str, search: str) -> None:
    assert strength(row(name, 30, "8/255")) == ("single_attack", "caution", search)
    # A noise beside it is no attack, and a weaker attack changes nothing.
    assert strength(row("noise", 10, "8/255"), row(name, 30, "8/255"), row("step", 40, "8/255")) == (
        ("single_attack", "caution", search)
    )
    assert strength(row(name, 0, "8/255")) is None, "nothing is below 0"


def test_an_ensemble_has_a_note_and_no_caution() -> None:
    stored = Warning(
        code="adaptive_attack_needed", severity="caution", message="as stored by an earlier version"
    )
    several = row("many", 30, "8/255", breakdown=stages("a", "b"), warnings=[stored])
    note = ("adaptive_attack_needed", "note", None)
    assert strength(several) == note
    assert strength(row("step", 20, "8/255"), several) == note
    assert strength(row("many", 30, "8/255")) == note, "results without stages"
    assert entries(several)["Linf 8/255"].warnings == (), "said once, by the note"
    # A list of one attack is one attack.
    alone = row("many", 30, "8/255", breakdown=stages("a"))
    assert strength(alone) == ("single_attack", "caution", "ensemble")
    assert entries(row("clean", 30))[UNATTACKED].strength is None
