"""Every kind of plot from results that have, lack or distort what it draws."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from typing import Any

import pytest

from assay.service.contract.results import EvaluationResult, Warning
from assay.service.plots.kinds import KINDS, LabelledResults, plots_of
from assay.service.plots.series import norm_of
from assay.service.plots.theme import MAX_LABEL
from tests.support.plot_specs import only, parts, values

OF_SEVERAL = ("cost", "curve", "heatmap", "security_curve", "stages", "tradeoff", "training")
ODD_NAMES = (
    "<script>alert(1)</script>",
    "x" * 10_000,
    "\u05e9\u05dc\u05d5\u05dd \u202e\u05e2\u05d5\u05dc\u05dd\u202c",
    "😀 \x00\x1b[31m\ud800",
    "datum.value']); alert(1); ([\"",
    "",
)


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


def test_confusion_is_shown_without_an_attack_and_under_the_strongest(job: LabelledResults) -> None:
    spec = plots_of([job])["confusion"]
    assert [panel["title"]["text"] for panel in spec["hconcat"]] == ["clean", "pgd, ε = 2/255"]
    shares = [row for row in spec["hconcat"][1]["data"]["values"] if row["label"] == "0"]
    assert sum(row["share"] for row in shares) == pytest.approx(1)
    assert "class" in plots_of([job])["classes"]["description"]
    alone = plots_of([replace(job, tallies={0: job.tallies[0]})])["confusion"]
    assert alone["title"] == {"text": KINDS["confusion"].title, "subtitle": "a job: clean"}


def test_classes_have_the_names_of_the_data(job: LabelledResults) -> None:
    names = ["cat", "dog", "cat", "hippopotamus amphibius", ""]
    named = replace(job, tallies={place: {**one, "names": names} for place, one in job.tallies.items()})
    plots, plain = plots_of([named]), plots_of([job])
    shown = {"0: cat", "dog", "2: cat", "hippopotamus amphib\N{HORIZONTAL ELLIPSIS}", "4"}
    for panel in plots["confusion"]["hconcat"]:
        assert {row["label"] for row in panel["data"]["values"]} == shown
        assert {row["prediction"] for row in panel["data"]["values"]} == shown
        assert panel["layer"][0]["encoding"]["x"]["axis"]["labelAngle"] == -45
    assert {row["class"] for row in plots["classes"]["data"]["values"]} == shown
    assert "0: cat is taken for dog" in plots["confusion"]["description"]
    assert plain["confusion"]["hconcat"][0]["layer"][0]["encoding"]["x"]["axis"]["labelAngle"] == 0
    few = replace(job, tallies={place: {**one, "names": ["cat"]} for place, one in job.tallies.items()})
    rows = plots_of([few])["classes"]["data"]["values"]
    assert {row["class"] for row in rows} == {"cat", "1", "2", "3", "4"}


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
