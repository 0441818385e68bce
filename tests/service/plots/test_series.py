"""Input of plots: the accuracy without an attack beside the accuracy under it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from assay.service.contract.results import EvaluationResult, Metric, Results
from assay.service.plots import series
from assay.service.plots.kinds import LabelledResults, plots_of
from assay.service.plots.series import attacked, unattacked_accuracy
from tests.service.plots.conftest import metric, row

A, B = ({"name": name, "params": {}} for name in ("a", "b"))
FOLDER = {"name": "b", "params": {"folder": "other"}}
ATTACKED = row("pgd", 0.3, params={"epsilon": "2/255"}, data=B)


def clean_of(*rows: EvaluationResult) -> float | None:
    """The accuracy without an attack that is drawn beside the first row under one."""
    results = Results(job="j", complete=True, evaluations=list(rows), provenance=None)
    under = next(one for one in rows if "epsilon" in one.params)
    found = unattacked_accuracy(results, under)
    assert attacked([LabelledResults("a job", results)])[0].unattacked == found
    return None if found is None else found.value


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (2, 0, 1)])
def test_the_accuracy_without_an_attack_is_of_the_same_data(order: tuple[int, ...]) -> None:
    rows = [row("clean", 0.9, data=A), row("clean", 0.6, data=B), ATTACKED]
    assert clean_of(*(rows[place] for place in order)) == 0.6


@pytest.mark.parametrize("data", [A, FOLDER])
def test_there_is_none_where_other_data_were_measured(data: dict[str, Any]) -> None:
    assert clean_of(row("clean", 0.9, data=data), ATTACKED) is None


def test_another_kind_of_accuracy_is_not_put_beside_it() -> None:
    other = row("clean", 0.9, data=B).model_copy(update={"metrics": {"miou": metric(0.8)}})
    assert clean_of(other, ATTACKED) is None


def test_all_plots_of_a_job_read_its_attacks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    found = series._unattacked_accuracy

    def counted(one: EvaluationResult, clean: Iterable[EvaluationResult]) -> Metric | None:
        read.append(one.name)
        return found(one, clean)

    monkeypatch.setattr(series, "_unattacked_accuracy", counted)
    rows = [row(name, 0.3, params={"epsilon": "2/255"}, data=B) for name in ("pgd", "fgsm")]
    results = Results(job="j", complete=True, evaluations=[row("clean", 0.6, data=B), *rows], provenance=None)
    assert {"curve", "strength", "cost"} & set(plots_of([LabelledResults("a job", results)]))
    assert read == ["pgd", "fgsm"]
