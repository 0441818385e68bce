"""Results in Python: rows by name and radius, metrics as attributes, a table in notebooks."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.client.result_views import ResultsView


def metric(value: float | None) -> dict[str, Any]:
    end = None if value is None else value
    return {
        "value": value,
        "n": 4,
        "ci_low": end,
        "ci_high": end,
        "ci_method": "wilson" if value is not None else "none",
        "higher_is_better": True,
        "unit": "proportion",
    }


def row(name: str, value: float | None, **params: Any) -> dict[str, Any]:
    return {
        "name": name,
        "params": params,
        "data": {"name": "digits", "params": {}},
        "protocol": "pixel",
        "backend": "native",
        "metrics": {"top1": metric(value), "queries": metric(None)},
        "warnings": [{"code": "subset", "message": f"<b>{name}</b>"}],
        "seconds": 1.0,
        "forward_passes": 1,
        "backward_passes": 0,
    }


@pytest.fixture
def results() -> ResultsView:
    rows = [
        row("clean", 0.9),
        row("pgd", 0.5, epsilon="2/255", steps=20),
        row("pgd", 0.2, epsilon="8/255", steps=20),
        row("pgd", 0.3, epsilon="8/255", steps=5),
    ]
    leak = [{"code": "leaks_future", "message": "it leaks"}]
    return ResultsView.model_validate(
        {"job": "x", "complete": False, "evaluations": rows, "warnings": leak, "provenance": None}
    )


def test_rows_are_found_by_name_radius_and_parameters(results: ResultsView) -> None:
    assert results["clean"].top1.value == 0.9
    for radius in ("2/255", 2 / 255, 0.00784):
        assert results["pgd", radius].top1.value == 0.5
    assert results["pgd", {"epsilon": 8 / 255, "steps": 5}].top1.value == 0.3
    assert len(results) == 4
    assert "top1" in dir(results["clean"])


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("pdg", "did you mean 'pgd'"),
        (("pgd", "4/255"), "no row of 'pgd' fits epsilon=4/255"),
        (("pgd", "8/255"), "2 rows of 'pgd' fit epsilon=8/255"),
        ("pgd", "3 rows of 'pgd' fit"),
        (("pgd", "x/0"), "no row"),
        (("pgd", True), "no row"),
    ],
)
def test_a_key_that_fits_no_row_or_several_is_told(results: ResultsView, key: Any, said: str) -> None:
    with pytest.raises(KeyError) as error:
        results[key]
    assert said in str(error.value)


def test_a_missing_metric_names_the_nearest(results: ResultsView) -> None:
    with pytest.raises(AttributeError, match="did you mean 'top1'"):
        results["clean"].top2  # noqa: B018
    with pytest.raises(AttributeError):
        results["clean"]._secret  # noqa: B018


def test_the_table_of_a_notebook_is_escaped_and_shows_invalid_first(results: ResultsView) -> None:
    html = results._repr_html_()
    assert "&lt;b&gt;clean&lt;/b&gt;" in html
    assert "<b>clean" not in html
    assert html.index("leaks_future") < html.index("subset")
    assert "90.0 %" in html
    assert "Not complete" in html
    assert html.count("<tr>") == 9


def test_views_are_the_answers_of_the_contract(results: ResultsView) -> None:
    assert ResultsView.model_validate(results.model_dump(mode="json")) == results
