"""What the leaderboard says of every attack: a caution, the note of an ensemble, or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.results import EvaluationResult, Metric
from assay.service.contract.threat import Knowledge
from assay.service.leaderboard.entries import LeaderboardEntry, MeasuredJob, leaderboard_entries

ATTACKS = {name: threat for name in load().names("attack") if (threat := load().threat_of(name)) is not None}
WEAK = sorted(n for n, t in ATTACKS.items() if t.search in ("single_step", "iterative"))
ENSEMBLES = sorted(n for n, t in ATTACKS.items() if t.search == "ensemble")
NOISES = sorted(n for n, t in ATTACKS.items() if t.knowledge is Knowledge.NOISE)


def row(name: str, top1: float = 0.4, stages: int = 0, **changes: Any) -> EvaluationResult:
    metric = Metric(value=top1, n=100, ci_low=0, ci_high=1, ci_method="wilson", higher_is_better=True)
    facts = {"metrics": {}, "n": 1, "broken": 0, "forward_passes": 1, "backward_passes": 1, "seconds": 1.0}
    given = {
        "name": name,
        "params": {"epsilon": "8/255", "norm": "Linf"},
        "data": {"name": "digits", "params": {}},
        "protocol": "pixel",
        "backend": "native",
        "metrics": {"top1": metric},
        "breakdown": [{"stage": f"stage {number}", **facts} for number in range(stages)],
        "seconds": 1.0,
        "forward_passes": 1,
        "backward_passes": 1,
    }
    return EvaluationResult.model_validate(given | changes)


def entries(*rows: EvaluationResult) -> list[LeaderboardEntry]:
    job = MeasuredJob("j", "", "vit", 0, None, {}, {}, dict(enumerate(rows)))
    return leaderboard_entries(job, load().threat_of, load().radius_unit)


def said(*rows: EvaluationResult) -> list[tuple[str, str] | None]:
    return [one.strength and (one.strength.code, one.strength.severity) for one in entries(*rows)]


def test_every_kind_of_attack_is_in_the_catalog() -> None:
    assert {"single_step", "iterative"} == {ATTACKS[name].search for name in WEAK}
    assert ENSEMBLES
    assert NOISES
    assert len(WEAK) + len(ENSEMBLES) + len(NOISES) == len(ATTACKS)


@pytest.mark.sampled
@pytest.mark.parametrize("name", WEAK)
def test_it_fires_where_no_ensemble_ran(name: str) -> None:
    assert said(row(name)) == [("single_attack", "caution")]
    assert said(*(row(other, 0.5) for other in WEAK), row(name)) == [("single_attack", "caution")]
    (entry,) = entries(row(name))
    assert entry.strength is not None
    assert entry.strength.evidence == {"attack": name, "search": ATTACKS[name].search}
    assert name in entry.strength.message


@pytest.mark.parametrize("name", ENSEMBLES)
def test_an_ensemble_has_its_note(name: str) -> None:
    for beside in ([], [row(WEAK[0], 0.1)], [row(NOISES[0])]):
        assert said(row(name, stages=3), *beside) == [("adaptive_attack_needed", "note")]
    (entry,) = entries(row(name, stages=3))
    assert entry.strength is not None
    assert entry.strength.message == ATTACKS[name].upper_bound
    assert said(row(name, stages=1)) == [("single_attack", "caution")], "a list of one attack"


@pytest.mark.sampled
@pytest.mark.parametrize("name", [*load().names("evaluation"), *NOISES])
def test_it_is_quiet_without_an_attack(name: str) -> None:
    unattacked = row(name, params={"epsilon": "8/255"} if name in NOISES else {}, backward_passes=0)
    assert said(unattacked) in ([], [None])


@pytest.mark.sampled
@pytest.mark.parametrize("name", WEAK)
def test_it_is_quiet_where_nothing_is_left(name: str) -> None:
    assert said(row(name, 0.0)) == [None]
