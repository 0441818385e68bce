from __future__ import annotations

import re
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.cli import output
from assay.service.cli.markdown import comparison_markdown
from assay.service.contract.errors import ErrorDetail, InvalidSpec, NotFound
from assay.service.contract.problems import Problems
from assay.service.contract.results import Artifact, EvaluationResult, Job, JobError, Metric, Results, Warning
from assay.service.contract.warning_codes import SEVERITIES, warning_meanings
from assay.service.submission.validate import validate


def test_tables_align_numbers_right_and_texts_left() -> None:
    text = output.table(("NAME", "N", "ID"), [("a", "1", "01a"), ("long", "100", "b")])
    assert text.splitlines() == ["NAME    N  ID", "a       1  01a", "long  100  b"]


def test_a_table_without_rows_is_its_header() -> None:
    assert output.table(("A", "B"), []) == "A  B"


def test_errors_name_every_field() -> None:
    details = [
        ErrorDetail(loc=["evaluations", 0, "params", "stepss"], message="unknown parameter", given=3,
                    allowed=["steps"], nearest="steps"),
        ErrorDetail(loc=["seed"], message="must be an integer", given="\x1b", allowed="an integer"),
    ]  # fmt: skip
    assert output.error_text(InvalidSpec("2 are wrong", details)).splitlines() == [
        "error: 2 are wrong",
        "  evaluations[0].params.stepss: unknown parameter; did you mean 'steps'? given 3; allowed: steps",
        '  seed: must be an integer; given "\\u001b"; allowed: an integer',
    ]


def test_an_error_says_its_sentence_once() -> None:
    problems = Problems(max_details=2)
    problems.add(("seed",), "must be an integer", given="x", allowed="an integer")
    with pytest.raises(InvalidSpec) as one:
        problems.raise_if_any()
    assert output.error_text(one.value) == 'error: seed: must be an integer; given "x"; allowed: an integer'
    problems.add(("limit",), "must be an integer")
    with pytest.raises(InvalidSpec) as two:
        problems.raise_if_any()
    assert output.error_text(two.value).splitlines() == [
        'error: seed: must be an integer; given "x"; allowed: an integer',
        "  limit: must be an integer",
    ]
    problems.unlisted += 1
    with pytest.raises(InvalidSpec) as three:
        problems.raise_if_any()
    assert output.error_text(three.value).splitlines()[2:] == ["  (at least 2 more; 1 listed)"]
    assert output.error_text(NotFound("no such job")) == "error: no such job"


def test_long_lists_of_names_are_cut() -> None:
    detail = ErrorDetail(loc=["x"], message="m", allowed=[f"n{i}" for i in range(50)])
    assert output.detail_text(detail).endswith("n11, ...")


def results(**changes: Any) -> Results:
    interval: dict[str, Any] = {"ci_low": 0.1, "ci_high": 0.9, "ci_method": "wilson"}
    metric = Metric(value=0.5, n=4, **interval, higher_is_better=True, unit="proportion")
    part = EvaluationResult(
        name="pgd",
        params={"epsilon": "2/255", "steps": 3},
        data={},
        protocol="pixel",
        backend="native",
        metrics={"top1": metric},
        warnings=[Warning(code="subset", message="be careful")],
        seconds=1.0,
        forward_passes=1,
        backward_passes=1,
    )
    values: dict[str, Any] = {"job": "j", "complete": True, "evaluations": [part], "provenance": None}
    return Results(**values | changes)


def test_results_have_intervals_and_warnings() -> None:
    lines = output.results_table(results()).splitlines()
    cells = ["pgd", "epsilon=2/255", "top1", "50.0 %", "[10.0 %, 90.0 %]", "4", "subset"]
    assert re.split(r" {2,}", lines[1]) == cells
    assert lines[2:] == ["pgd: steps=3 protocol=pixel", "note subset (pgd epsilon=2/255): be careful"]


def test_the_arithmetic_of_rows_is_told_below_the_table() -> None:
    (part,) = results().evaluations
    rough = part.model_copy(update={"arithmetic": "bfloat16"})
    parts = [part, rough, rough.model_copy(update={"name": "fgsm"})]
    parts.append(part.model_copy(update={"name": "square", "arithmetic": "float32"}))
    lines = output.results_table(results(evaluations=parts)).splitlines()
    assert [line for line in lines if "computed" in line] == [
        "computed in bfloat16: pgd, fgsm",
        "computed in float32: square",
    ]


def test_a_short_table_has_the_main_metric_of_each_evaluation() -> None:
    (part,) = results().evaluations
    metrics = {"top1": part.metrics["top1"], "top5": part.metrics["top1"], "queries": part.metrics["top1"]}
    parts = [part.model_copy(update={"name": name, "metrics": metrics}) for name in ("fgsm", "pgd")]
    short = output.results_table(results(evaluations=parts), every=False).splitlines()
    assert [line.split()[:3] for line in short[1:3]] == [
        ["fgsm", "epsilon=2/255", "top1"],
        ["pgd", "epsilon=2/255", "top1"],
    ]
    assert short[3] == "4 more metrics: `assay results j --full` prints them."
    assert short[4].startswith("fgsm: steps=3")
    assert "more metrics" not in output.results_table(results(evaluations=parts))
    assert "more metrics" not in output.results_table(results(), every=False)


def test_warnings_of_several_evaluations_are_one_line() -> None:
    (part,) = results().evaluations
    parts = [part, part.model_copy(update={"name": "fgsm"}), part.model_copy(update={"warnings": []})]
    whole = Warning(code="incomplete", message="look at all")
    lines = output.results_table(results(evaluations=parts, warnings=[whole])).splitlines()
    assert [line.split()[-1] for line in lines[1:4]] == ["subset", "subset", "4"]
    where = "pgd epsilon=2/255, fgsm epsilon=2/255"
    assert lines[-2:] == ["note incomplete: look at all", f"note subset ({where}): be careful"]


def test_the_short_text_says_each_code_once_and_where() -> None:
    (part,) = results().evaluations
    metrics = {**part.metrics, "attack_success_rate": HALF}
    grave = Warning(code="below_chance", severity="invalid", message="by an attack")
    parts = [
        part.model_copy(
            update={
                "params": {"epsilon": f"{n}/255"}, "metrics": metrics, "data": {"name": "digits"},
                "warnings": [grave, Warning(code="unconverged", severity="caution", message=f"{n} of 4")],
            }
        )
        for n in range(1, 6)
    ]  # fmt: skip
    own = Warning(code="below_chance", severity="caution", message="without one")
    clean = {"name": "clean", "params": {}, "data": {"name": "digits"}, "warnings": [own]}
    found = output.results_text(results(evaluations=[part.model_copy(update=clean), *parts]), full=False)
    where = "(pgd epsilon=1/255, pgd epsilon=2/255, pgd epsilon=3/255 and 2 more)"
    lines = [line for line in found.replace("\n  ", " ").splitlines() if line.split()[0] in SEVERITIES]
    assert lines == [
        f"invalid below_chance {where}: by an attack",
        "caution below_chance (clean): without one",
        f"caution unconverged {where}: 1 of 4",
    ]


def test_comparisons_have_p_values() -> None:
    values = [{"job": job, "value": value} for job, value in (("x", 0.5), ("y", 0.75))]
    row = {
        "evaluation": "pgd",
        "params": {"epsilon": "2/255"},
        "protocol": "paper",
        "data": {"name": "digits"},
        "metric": "top1",
        "unit": "proportion",
        "values": values,
        "difference": 0.25,
        "ci_low": -0.1,
        "ci_high": 0.6,
        "test": {"name": "mcnemar", "p_value": 0.03125, "adjusted_p_value": 0.0625},
    }
    untested = {**row, "metric": "perplexity", "unit": "number", "ci_low": None, "ci_high": None}
    untested |= {"test": {"name": "price_bonett", "p_value": 0.5}}
    of_an_older_service = {key: value for key, value in row.items() if key != "unit"} | {"test": None}
    warning = {"code": "not_common", "message": "only one", "evidence": {}}
    rows = [row, untested, of_an_older_service]
    comparison = {"jobs": ["x", "y"], "adjust": "holm", "rows": rows, "warnings": [warning]}
    text = output.comparison_table(comparison)
    lines = text.splitlines()
    said = "pgd epsilon=2/255: top1 A 50.0 %, B 75.0 %; B - A +25.0 points [-10.0, +60.0 points], adjusted p "
    assert lines[:3] == ["A = job x", "B = job y", f"{said}0.0625"]
    assert re.split(r" {2,}", lines[4]) == [
        "pgd epsilon=2/255", "top1", "50.0 %", "75.0 %", "+25.0 points", "[-10.0, +60.0]",
        "0.0312", "0.0625", "McNemar",
    ]  # fmt: skip
    assert re.split(r" {2,}", lines[3]) == [
        "CONDITION", "METRIC", "A", "B", "B - A", "95 % INTERVAL", "P", "ADJ. P", "TEST",
    ]  # fmt: skip
    assert re.split(r" {2,}", lines[5])[2:4] == ["0.5", "0.75"]
    assert re.split(r" {2,}", lines[5])[-4:] == ["-", "0.5", "-", "Price-Bonett"]
    assert re.split(r" {2,}", lines[6])[2:4] == ["0.5", "0.75"]
    assert re.split(r" {2,}", lines[6])[-2:] == ["-", "-"]
    assert lines[7:] == [
        "p (McNemar, Price-Bonett), Adjusted p (Holm, 2 tests)",
        "pgd: protocol=paper data=digits",
        "caution not_common: only one",
    ]
    other = row | {"metric": "top5", "test": {"name": "mcnemar", "p_value": 1e-6, "adjusted_p_value": 1e-5}}
    short = output.comparison_table(comparison | {"rows": [row, other]}, full=False)
    assert f"{said.replace('top1', 'top5')}1e-05, the least of these" in short, (
        "no summary hides a difference"
    )
    assert "1 more metric, 1 with adjusted p < 0.05: `--full`" in short
    null = other | {"test": other["test"] | {"adjusted_p_value": None}}
    short = output.comparison_table(comparison | {"rows": [row, null]}, full=False)
    assert "1 more metric, 0 with adjusted p < 0.05: `--full`" in short
    named = output.comparison_table(comparison | {"names": {"y": "my \x1b[1m net"}}).splitlines()
    assert named[:2] == ["A = job x", "B = my \\x1b[1m net (job y)"]
    noted = output.comparison_table(comparison | {"note": "weights, not methods"}).splitlines()
    assert noted[-2:] == ["note: weights, not methods", "caution not_common: only one"]
    older = {key: value for key, value in comparison.items() if key != "adjust"}
    assert "p (McNemar, Price-Bonett), Adjusted p\n" in output.comparison_table(older)
    written = comparison_markdown(comparison).splitlines()
    assert written[0].startswith("| Evaluation | Parameters | Metric |")
    assert [line.count("|") for line in written[:5]] == [11] * 5
    assert written[2].endswith("| 0.0312 | 0.0625 | McNemar |")
    assert written[6:8] == ["- A = job x", "- B = job y"]


def test_partial_and_failed_results_say_so() -> None:
    text = output.results_table(results(complete=False, error=JobError(type="t", message="why")))
    assert "Not complete. The job failed: t: why" in text
    assert "missing" not in text
    assert "Not complete: evaluations are missing." in output.results_table(results(complete=False))


def test_components_list_their_parameters() -> None:
    component = {
        "kind": "model",
        "name": "vit",
        "summary": "A model.",
        "paper": "somebody",
        "rules": [{"expression": "a < b", "message": "a is small"}],
        "schema": {
            "required": ["depth"],
            "properties": {
                "depth": {"type": "integer", "minimum": 1},
                "attention": {"type": ["object", "string"], "component": "attention", "default": "rpc"},
            },
        },
    }
    text = output.component_text(component)
    assert "depth      required  an integer of at least 1" in text
    assert 'attention  "rpc"     the name of a component of kind attention' in text
    assert "rule: a is small\n" in f"{text}\n", "expressions are for programs"
    assert "paper: somebody" in text
    assert "no parameters" in output.component_text({**component, "schema": {}, "paper": None})


def test_files_that_have_expired_say_so() -> None:
    kept = Artifact(name="a", size=5, sha256="s", media_type="text/csv", created_at="", href="")
    text = output.artifacts_table([kept, kept.model_copy(update={"name": "b", "expired": True})])
    assert [line.split()[:2] for line in text.splitlines()[1:]] == [["a", "5"], ["b", "expired"]]


def test_the_short_text_has_doubts_and_a_count() -> None:
    attacked = results().evaluations[0]
    attacked = attacked.model_copy(
        update={"data": {"name": "digits"}, "metrics": {**attacked.metrics, "attack_success_rate": HALF}}
    )
    grave = Warning(code="repeated_differently", severity="invalid", message="use no number")
    found = results(
        complete=False, evaluations=[attacked], warnings=[grave],
        error=JobError(type="t", message="why"), headline="Not complete\x1b: 2 of 4.",
    )  # fmt: skip
    assert output.results_text(found, full=False).splitlines() == [
        "Not complete. The job failed: t: why",
        "invalid repeated_differently: use no number",
        "`assay results j --full` prints all 2 metrics of 1 evaluation and what each warning says",
        "CASE        EVALUATION  METRIC   VALUE  95 % INTERVAL     N",
        "worst case  pgd 2/255   top1    50.0 %  [10.0 %, 90.0 %]  4",
        "note subset (pgd epsilon=2/255): be careful",
        "Not complete\\x1b: 2 of 4.",
    ]
    full = output.results_text(found, full=True).splitlines()
    assert full[0].startswith("EVALUATION  PARAMS")
    assert full[-1] == "Not complete\\x1b: 2 of 4."


@pytest.mark.parametrize("full", [True, False])
def test_a_name_of_several_attacks_is_explained_once_below_the_table(full: bool) -> None:
    attacked = results().evaluations[0]
    names = (
        "pgd",
        *[one.name for one in load().list("attack") if one.threat and one.threat.search == "ensemble"],
    )
    found = results(evaluations=[attacked.model_copy(update={"name": name}) for name in names * 2])
    lines = output.results_text(found, full=full).splitlines()
    for name in names[1:]:
        assert lines.count(f"{name}: {load().find('attack', name).summary}") == 1
    custom = {"version": "custom", "stages": ["apgd_ce", "square"]}
    own = attacked.model_copy(update={"name": "autoattack", "params": attacked.params | custom})
    lines = output.results_text(results(evaluations=[own]), full=full).splitlines()
    assert lines.count("autoattack: its stages apgd_ce, square") == 1
    assert f"pgd: {load().find('attack', 'pgd').summary}" not in lines


def test_every_warning_has_a_sentence_that_is_whole() -> None:
    table = output.warnings_table(warning_meanings())
    assert "(Tramer et al. 2020" in table
    assert table.count("(") == table.count(")")


def test_without_an_attack_the_short_text_is_the_first_metric_of_each() -> None:
    clean = results().evaluations[0].model_copy(update={"name": "clean", "params": {}})
    found = results(evaluations=[clean], headline="2 of 4 are right; no attack was run.")
    lines = output.results_text(found, full=False).splitlines()
    assert lines[0].startswith("EVALUATION")
    assert lines[-1] == "2 of 4 are right; no attack was run."


HALF = Metric(
    value=0.5, n=4, ci_low=0.1, ci_high=0.9, ci_method="wilson", higher_is_better=False, unit="proportion"
)


def test_invalid_numbers_of_a_job_are_marked_in_lists() -> None:
    job = Job.model_validate(
        {
            "id": "j", "kind": "evaluate", "name": "mine", "tags": [], "state": "succeeded", "attempt": 1,
            "created_at": "2026-01-01T00:00:00Z", "started_at": None, "finished_at": None, "deadline": None,
            "progress": {"done": 4, "total": 4, "unit": "examples", "eta_seconds": None, "share": 1.0},
            "queue_position": None, "workers_online": 1, "message": "", "error": None,
            "spec": {"model": {"name": "vit"}},
            "links": dict.fromkeys(("self", "results", "events", "artifacts"), "/"),
            "summary": {
                "clean": {"metric": "top1", "value": 0.1, "n": 4},
                "worst": {"metric": "top1", "value": 0.1, "n": 4, "at": "2/255"},
            },
        }
    )  # fmt: skip
    assert "10.0 %  10.0 % at 2/255  vit" in output.jobs_table([job])
    assert job.summary is not None
    job.summary.invalid = ["constant_prediction"]
    assert "10.0 % invalid  10.0 % at 2/255 invalid  vit" in output.jobs_table([job])


@pytest.mark.parametrize(
    ("attack", "model", "said"),
    [
        ({"name": "pgd", "params": {"epsilon": 8}}, {}, "did you mean '8/255'? given 8"),
        ({"name": "autoattack", "params": {"version": "custom"}}, {}, "(stages is null, version is custom)"),
        ({"name": "clean"}, {"heads": 5, "width": 96}, "(heads is 5, width is 96)"),
    ],
)
def test_a_broken_rule_is_said_in_the_words_of_the_user(
    attack: dict[str, Any], model: dict[str, Any], said: str
) -> None:
    reference = {"name": "symvit", "params": model}
    body = {"kind": "evaluate", "model": reference, "data": {"name": "digits"}, "evaluations": [attack]}
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), body)
    text = output.error_text(caught.value)
    assert said in text
    assert not re.search(r"\b(params|data|model)\.\w+( is |\":)", text)
