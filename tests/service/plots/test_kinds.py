"""Every kind of plot from results that have, lack or distort what it draws."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from assay.service.contract.results import EvaluationResult, Results, Warning
from assay.service.plots.kinds import KINDS, LabelledResults, plots_of
from assay.service.plots.series import norm_of
from assay.service.plots.theme import INK, MAX_LABEL, PALETTES, SHAPES, cycled, themed, unique_labels

OF_SEVERAL = ("cost", "curve", "heatmap", "security_curve", "stages", "tradeoff", "training")
ODD_NAMES = (
    "<script>alert(1)</script>",
    "x" * 10_000,
    "\u05e9\u05dc\u05d5\u05dd \u202e\u05e2\u05d5\u05dc\u05dd\u202c",
    "😀 \x00\x1b[31m\ud800",
    "datum.value']); alert(1); ([\"",
    "",
)


def parts(spec: Any) -> Iterator[dict[str, Any]]:
    """Every object of a spec."""
    if isinstance(spec, dict):
        yield spec
        for value in spec.values():
            yield from parts(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from parts(value)


def values(spec: Any) -> list[dict[str, Any]]:
    return [row for part in parts(spec) if "values" in part for row in part["values"]]


def only(results: Results, *evaluations: EvaluationResult) -> LabelledResults:
    changed = {"evaluations": list(evaluations), "bracket": []}
    return LabelledResults("a job", results.model_copy(update=changed))


def test_a_whole_job_has_every_kind(job: LabelledResults) -> None:
    assert list(plots_of([job])) == list(KINDS)


def test_several_jobs_have_the_kinds_that_can_be_overlaid(
    job: LabelledResults, other_job: LabelledResults
) -> None:
    assert tuple(sorted(plots_of([job, other_job]))) == OF_SEVERAL


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_spec_is_plain_json_with_title_words_and_inline_data(job: LabelledResults, kind: str) -> None:
    spec = KINDS[kind].build([job])
    assert spec is not None
    assert json.loads(json.dumps(spec, allow_nan=False)) == spec
    assert spec["usermeta"]["assay"]["kind"] == kind
    assert spec["title"]["text"] == KINDS[kind].title
    assert any(char.isdigit() for char in spec["description"]), "the main numbers are in words"
    assert len(spec["description"]) <= 2000
    assert values(spec)
    assert not any("url" in part or "params" in part for part in parts(spec))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_without_what_it_needs_there_is_no_plot(job: LabelledResults, kind: str) -> None:
    assert KINDS[kind].build([only(job.results)]) is None
    assert KINDS[kind].needs
    assert plots_of([]) == {}


def test_a_plot_of_doubted_results_says_so_in_its_caption_and_in_words(job: LabelledResults) -> None:
    warnings = [Warning(code="repeated_differently", message="m"), Warning(code="left_out", message="m")]
    doubted = replace(job, results=job.results.model_copy(update={"warnings": warnings}))
    plain, found = plots_of([job]), plots_of([doubted])
    assert plain.keys() == found.keys()
    for kind, spec in found.items():
        assert spec["title"]["subtitle"].startswith("invalid: repeated_differently"), kind
        assert spec["description"] == f"invalid: repeated_differently. {plain[kind]['description']}"


def test_a_security_curve_is_a_staircase_with_its_median_in_words(job: LabelledResults) -> None:
    (row,) = [one for one in job.results.evaluations if one.name == "fmn"]
    median = {"median_distance": row.metrics["top1"].model_copy(update={"value": 0.25})}
    known = row.model_copy(update={"metrics": median | row.metrics})
    spec = KINDS["security_curve"].build([only(job.results, known)])
    assert spec is not None
    assert [(point["x"], point["value"]) for point in spec["data"]["values"]] == [
        (0.0, 0.95), (0.1, pytest.approx(0.85)), (0.4, pytest.approx(0.55)), (0.8, pytest.approx(0.15))
    ]  # fmt: skip
    assert "fmn, L2: median 0.25" in spec["description"]
    marks = [layer["mark"] for layer in spec["layer"]]
    assert all(mark["interpolate"] == "step-after" for mark in marks if mark["type"] in ("line", "area"))
    endless = {"median_distance": row.metrics["top1"].model_copy(update={"value": None})}
    spec = KINDS["security_curve"].build([only(job.results, row.model_copy(update={"metrics": endless}))])
    assert spec is not None
    assert "median above all distances found" in spec["description"]


def test_a_curve_begins_with_the_accuracy_without_an_attack(job: LabelledResults) -> None:
    spec = plots_of([job])["curve"]
    line = [row for row in spec["data"]["values"] if row["attack"] == "pgd"]
    assert [(row["x"], row["value"]) for row in line] == [(0.0, 0.95), (2.0, 0.7), (4.0, 0.3)]
    assert (line[1]["low"], line[1]["high"]) == (0.7 - 0.04, 0.7 + 0.04)
    published = [row for row in values(spec) if row.get("source") == "Table 1"]
    assert [(row["x"], row["value"]) for row in published] == [(2.0, 0.5)]


def test_norms_have_panels_of_their_own(job: LabelledResults) -> None:
    rows = job.results.evaluations
    other = rows[1].model_copy(update={"params": {"epsilon": 0.5, "norm": "L2"}})
    spec = plots_of([only(job.results, *rows, other)])["curve"]
    assert [panel["layer"][0]["encoding"]["x"]["title"] for panel in spec["vconcat"]] == [
        "ε in 1/255 (L∞)",
        "ε (L2)",
    ]


def test_attacks_of_one_name_are_told_apart_by_what_differs(job: LabelledResults) -> None:
    first, second = (
        job.results.evaluations[1].model_copy(update={"params": {"epsilon": "2/255", "steps": steps}})
        for steps in (10, 100)
    )
    spec = plots_of([only(job.results, first, second)])["curve"]
    assert [row["attack"] for row in spec["data"]["values"]] == ["pgd, steps=10", "pgd, steps=100"]


def test_null_values_and_single_points_are_drawn_or_left_out(job: LabelledResults) -> None:
    attack = job.results.evaluations[2]
    empty = attack.model_copy(
        update={"metrics": {"top1": attack.metrics["top1"].model_copy(update={"value": None})}}
    )
    assert "curve" not in plots_of([only(job.results, empty)])
    unbounded = attack.metrics["top1"].model_copy(update={"ci_low": None, "ci_high": None})
    spec = plots_of([only(job.results, attack.model_copy(update={"metrics": {"top1": unbounded}}))])["curve"]
    (point,) = spec["data"]["values"]
    assert (point["low"], point["value"], point["high"], point["interval"]) == (0.3, 0.3, 0.3, "none")


def test_stages_fall_from_the_accuracy_without_an_attack(job: LabelledResults) -> None:
    found = plots_of([job])["stages"]["data"]["values"]
    assert [(row["stage"], row["value"]) for row in found] == [
        ("no attack", 0.95),
        ("1. apgd_ce", 0.65),
        ("2. square", 0.6),
    ]
    assert (found[1]["entered"], found[1]["broken"], found[1]["passes"]) == (190, 60, 150)


def test_a_heatmap_has_a_number_in_each_cell(job: LabelledResults) -> None:
    spec = plots_of([job])["heatmap"]
    assert [(row["corruption"], row["severity"]) for row in spec["data"]["values"]] == [
        (name, severity) for name in ("fog", "frost") for severity in ("1", "3", "5")
    ]
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["rect", "text"]


def test_a_tradeoff_compares_what_all_jobs_have(job: LabelledResults, other_job: LabelledResults) -> None:
    def with_rows(count: int) -> LabelledResults:
        chosen = other_job.results.evaluations[:count]
        return replace(other_job, results=other_job.results.model_copy(update={"evaluations": chosen}))

    found = plots_of([job, with_rows(2)])["tradeoff"]["data"]["values"]
    assert {row["setting"] for row in found} == {"pgd, ε = 2/255"}
    assert [(row["job"], row["clean"]) for row in found] == [("a job", 0.95), ("another job", 0.85)]
    # A job without an attack is left out.
    alone = plots_of([job, with_rows(1)])["tradeoff"]["data"]["values"]
    assert {row["job"] for row in alone} == {"a job"}


def test_confusion_is_shown_without_an_attack_and_under_the_strongest(job: LabelledResults) -> None:
    spec = plots_of([job])["confusion"]
    assert [panel["title"]["text"] for panel in spec["hconcat"]] == ["clean", "pgd, ε = 2/255"]
    shares = [row for row in spec["hconcat"][1]["data"]["values"] if row["label"] == "0"]
    assert sum(row["share"] for row in shares) == pytest.approx(1)
    assert "class" in plots_of([job])["classes"]["description"]


@pytest.mark.parametrize("place", range(len(ODD_NAMES)))
def test_odd_names_are_values_and_short(job: LabelledResults, place: int) -> None:
    name = ODD_NAMES[place]
    pair = [replace(job, label=name), replace(job, label=name)]
    for jobs in (pair[:1], pair):
        for spec in plots_of(jobs).values():
            text = json.dumps(spec, ensure_ascii=False)
            assert "x" * (MAX_LABEL + 31) not in text
            assert not any(unicodedata.category(char) in ("Cc", "Cs", "Cf") for char in text)
            for part in parts(spec):
                # Names occur where Vega-Lite looks for text only, never for an expression.
                for key in ("test", "expr", "calculate", "filter", "labelExpr", "signal"):
                    assert "alert" not in json.dumps(part.get(key, ""))
    drawn = plots_of(pair)["curve"]["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert len(set(drawn)) == 2, "jobs of one name are told apart"


def test_labels_are_short_and_unique() -> None:
    labels = unique_labels(["a" * 100, "a" * 100, "", "b"])
    assert len(set(labels)) == 4
    assert max(map(len, labels)) == MAX_LABEL


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_a_scheme_changes_the_colours_alone(job: LabelledResults, scheme: Any) -> None:
    spec = plots_of([job])["curve"]
    other = themed(spec, scheme)
    assert {key: value for key, value in other.items() if key != "config"} == {
        key: value for key, value in spec.items() if key != "config"
    }
    assert other["config"]["title"]["color"] == INK[scheme]
    assert len(PALETTES[scheme]) == len(set(PALETTES[scheme])) == len(SHAPES)


@pytest.mark.parametrize(
    ("name", "params", "norm"),
    [
        ("sparse_l1_descent", {"epsilon": 2}, "L1"),
        ("pgd", {"epsilon": "8/255", "norm": "L2"}, "L2"),
        ("pgd", {"epsilon": "8/255"}, "Linf"),
        ("of_old", {"epsilon": 0.1}, "Linf"),
    ],
)
def test_the_norm_is_that_of_the_threat_where_no_parameter_says_it(
    name: str, params: dict[str, Any], norm: str
) -> None:
    row = EvaluationResult(
        name=name, params=params, metrics={}, data={"name": "digits", "params": {}}, protocol="pixel",
        backend="native", seconds=1.0, forward_passes=1, backward_passes=1,
    )  # fmt: skip
    assert norm_of(row) == norm


def test_two_values_of_many_never_have_colour_and_shape_in_common() -> None:
    order = [f"value {place}" for place in range(40)]
    shapes = cycled("field", order, title="Field")["shape"]["scale"]["range"]
    looks = [(place % len(PALETTES["light"]), shape) for place, shape in enumerate(shapes)]
    assert len(set(looks)) == len(order)
