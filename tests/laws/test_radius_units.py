"""A radius is in the unit of its data, wherever it is printed and compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.cli.markdown import markdown
from assay.service.cli.output import results_table
from assay.service.client.result_views import ResultsView
from assay.service.contract.results import EvaluationResult, Metric, Results
from assay.service.dashboard.result_rows import shown_results
from assay.service.leaderboard.entries import MeasuredJob, leaderboard_entries
from assay.service.metrics.compare.sanity_checks import cross_checks
from assay.service.plots.kinds import KINDS, LabelledResults
from assay.service.plots.series import ball_text
from assay.service.reports.comparisons import comparison_lines
from assay.service.reports.gate import judged, read_requirement
from assay.service.reports.page import results_rows
from assay.service.reports.run_record import run_metrics
from assay.service.reports.tables import pivot
from assay.service.reports.tidy import ReportedJob, tidy_rows

RADII = (0.2, 0.4, 0.8)
DATA = {name: load().find("data", name).tasks for name in load().names("data")}
UNITS = {"series": "sd", "control": "sd", "pixel": "pixel", "language": "", "sequence": ""}
SERIES = sorted(
    name
    for name, tasks in DATA.items()
    if any(load().task(t).row_protocol("pixel") == "series" for t in tasks)
)
IMAGES = sorted(name for name in DATA if load().radius_unit({"name": name}, "pixel") == "pixel")


def row(
    data: str, epsilon: Any, value: float = 0.7, protocol: str = "series", **params: Any
) -> EvaluationResult:
    metric = Metric(
        value=value,
        n=200,
        ci_low=value,
        ci_high=value,
        ci_method="wilson",
        higher_is_better=True,
        unit="proportion",
    )
    return EvaluationResult(
        name="pgd",
        params={"epsilon": epsilon, "norm": "Linf", "steps": 20} | params,
        data={"name": data, "params": {}},
        protocol=protocol,  # type: ignore[arg-type]
        backend="native",
        metrics={"top1": metric, "attack_success_rate": metric},
        seconds=1.0,
        forward_passes=1,
        backward_passes=1,
    )


def results(data: str, protocol: str) -> Results:
    rows = [row(data, epsilon, 0.9 - epsilon / 2, protocol) for epsilon in RADII]
    return Results(job="j", complete=True, evaluations=rows, provenance=None)


def spec(data: str) -> dict[str, Any]:
    named = [
        {"name": "pgd", "params": {"epsilon": epsilon, "norm": "Linf"}, "data": None} for epsilon in RADII
    ]
    model = {"name": "vit", "params": {}, "weights": None}
    return {
        "seed": 0,
        "name": "",
        "model": model,
        "data": {"name": data},
        "evaluations": named,
        "protocol": "pixel",
    }


def compared(data: str, protocol: str) -> dict[str, Any]:
    rows = [
        {
            **one.model_dump(include={"params", "data", "protocol"}),
            "evaluation": "pgd",
            "metric": "top1",
            "values": [{"job": job, "value": 0.5} for job in "jk"],
            "difference": 0.0,
            "unit": "proportion",
            "ci_low": None,
            "ci_high": None,
            "ci_method": None,
            "test": None,
        }
        for one in results(data, protocol).evaluations
    ]
    return {"jobs": ["j", "k"], "rows": rows, "warnings": [], "adjust": "holm", "tests": 0}


def leaderboard(data: str, protocol: str) -> str:
    rows = dict(enumerate(results(data, protocol).evaluations))
    job = MeasuredJob("j", "", "vit", 0, None, {}, {}, rows)
    return str([one.group.threat for one in leaderboard_entries(job, load().threat_of, load().radius_unit)])


def plots(data: str, protocol: str) -> str:
    jobs = [LabelledResults("a job", results(data, protocol))]
    return str([kind.build(jobs) for kind in KINDS.values()])


def told_apart(data: str, protocol: str) -> str:
    try:
        return str(judged(read_requirement("pgd top1 > 0"), results(data, protocol)))
    except ValueError as error:
        return str(error)


def table(data: str, protocol: str, *by: str) -> str:
    rows = tidy_rows([ReportedJob("j", "", spec(data), results(data, protocol))])
    return str(pivot(rows, by=by or ("attack", "model")))  # type: ignore[arg-type]


# Every place where a person reads a radius.
PLACES: Mapping[str, Callable[[str, str], str]] = {
    "terminal": lambda *given: results_table(results(*given)),
    "markdown": lambda *given: markdown({"a": results(*given)}),
    "notebook": lambda *given: ResultsView.model_validate(results(*given).model_dump())._repr_html_(),
    "page": lambda *given: str(
        [(one.params, one.radius) for one in shown_results(results(*given)).evaluations]
    ),
    "report": lambda data, word: str(results_rows(ReportedJob("j", "", spec(data), results(data, word)))),
    "table": table,
    "table by radius": lambda *given: table(*given, "epsilon", "model"),
    "comparison": lambda *given: str(comparison_lines(compared(*given))),
    "trackers": lambda data, word: str(list(run_metrics(spec(data), results(data, word)))),
    "leaderboard": leaderboard,
    "plots": plots,
    "heading": lambda *given: str([ball_text(one) for one in results(*given).evaluations]),
    "gate": told_apart,
}


@pytest.mark.sampled
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("protocol", ["series", "paper", "pixel"])
@pytest.mark.parametrize("data", SERIES)
def test_no_place_counts_standard_deviations_in_steps_of_pixels(data: str, protocol: str, place: str) -> None:
    """Rows of earlier versions state `pixel` for series, and attacks of released code `paper`."""
    text = PLACES[place](data, protocol)
    assert "/255" not in text
    assert "51" not in text
    assert "0.2" in text or "0_2" in text
    if place not in ("gate",):
        assert "sd" in text, "and it says the unit"


@pytest.mark.sampled
@pytest.mark.parametrize("place", sorted(set(PLACES) - {"plots", "trackers"}))
def test_steps_of_pixels_stay_as_they_are(place: str) -> None:
    text = PLACES[place]("digits", "pixel")
    assert "51/255" in text
    assert " sd" not in text


def test_a_radius_in_another_norm_is_no_number_of_steps() -> None:
    found = Results(job="j", complete=True, evaluations=[row("digits", 0.2, norm="L2")], provenance=None)
    assert "51/255" not in results_table(found)
    assert "epsilon=0.2" in results_table(found)


@pytest.mark.sampled
@pytest.mark.parametrize("data", sorted(DATA))
def test_every_data_set_has_the_unit_of_its_protocol(data: str) -> None:
    words = {load().task(task).row_protocol("pixel") for task in DATA[data]}
    assert len(words) == 1, "one unit"
    assert load().radius_unit({"name": data}, "pixel") == UNITS[words.pop()]


def test_a_data_set_that_the_catalog_lacks_has_the_unit_of_the_row() -> None:
    found = [load().radius_unit({"name": "of a package"}, word) for word in UNITS]
    assert found == list(UNITS.values())


@pytest.mark.sampled
@pytest.mark.parametrize("epsilon", [*RADII, 2.0, "64/255", "200/255"])
@pytest.mark.parametrize("data", SERIES)
def test_no_radius_on_series_is_large(data: str, epsilon: Any) -> None:
    for protocol in ("series", "pixel"):
        found = cross_checks([row(data, epsilon, 0.9, protocol)], load().threat_of, load().radius_unit)
        assert found == []


@pytest.mark.sampled
@pytest.mark.parametrize("data", IMAGES)
def test_a_large_radius_of_pixels_warns_on_every_set_of_images(data: str) -> None:
    def codes(epsilon: str) -> list[str]:
        rows = [row(data, epsilon, 0.9, "pixel")]
        return [one.code for one in cross_checks(rows, load().threat_of, load().radius_unit)]

    assert codes("64/255") == ["robust_at_large_epsilon"]
    assert codes("63/255") == []
