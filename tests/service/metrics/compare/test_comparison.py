from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from assay.service.contract.corruption_cells import content_label
from assay.service.contract.results import EvaluationResult, JobError, Metric, Warning, data_label
from assay.service.metrics.compare.comparison import Comparison, JobResults, _names, compare
from assay.service.metrics.paired import PairedTest
from assay.service.metrics.registry import TABLES
from assay.service.metrics.statistics.paired_tests import mcnemar
from assay.service.metrics.statistics.tango import tango


def metric(value: float | None, n: int) -> Metric:
    return Metric(value=value, n=n, ci_low=0.0, ci_high=1.0, ci_method="wilson", higher_is_better=True)


def evaluation(correct: Sequence[int], **changes: Any) -> EvaluationResult:
    n = len(correct)
    found = EvaluationResult(
        name="pgd",
        params={"epsilon": "2/255"},
        data={"name": "digits", "params": {}},
        protocol="pixel",
        backend="native",
        metrics={"top1": metric(sum(correct) / n, n)},
        seconds=1.0,
        forward_passes=1,
        backward_passes=0,
    )
    return found.model_copy(update=changes)


def job(
    job_id: str,
    correct: Sequence[int],
    *,
    ids: Sequence[str] | None = None,
    complete: bool = True,
    sha256: str = "d",
    **changes: Any,
) -> JobResults:
    columns = {"id": list(ids or [f"x{i}" for i in range(len(correct))]), "correct": list(correct)}
    found = {0: evaluation(correct, **changes)}
    hashes = {data_label(found[0].data): sha256}
    return JobResults(job_id, complete, found, lambda position: columns, {0: TABLES["attack"]}, hashes)


def codes(comparison: Comparison) -> list[str]:
    return [warning.code for warning in comparison.warnings]


def test_names_that_tell_jobs_apart() -> None:
    jobs = [replace(job(one, [1, 0]), name=name) for one, name in (("a", "net"), ("b", "net"), ("c", "mine"))]
    assert compare(jobs).names == {"c": "mine"}


def test_paired_numbers() -> None:
    first = [1, 1, 1, 1, 0, 0, 1, 0]
    second = [1, 0, 0, 0, 0, 1, 1, 0]
    comparison = compare([job("a", first), job("b", second)])
    (row,) = comparison.rows
    assert (row.evaluation, row.metric, row.params) == ("pgd", "top1", {"epsilon": "2/255"})
    assert [(value.job, value.value, value.n) for value in row.values] == [("a", 5 / 8, 8), ("b", 3 / 8, 8)]
    assert row.difference == pytest.approx(-2 / 8)
    assert row.test is not None
    assert (row.test.b, row.test.c, row.test.n) == (3, 1, 8)
    assert row.test.p_value == mcnemar(3, 1)
    assert (row.ci_low, row.ci_high, row.ci_method) == (*tango(1, 3, 8), "tango")
    assert comparison.warnings == []


@pytest.mark.parametrize("stated", ["language", "sequence", "series", "control"])
def test_rows_without_pixels_compare_with_those_that_earlier_versions_called_pixel(stated: Any) -> None:
    comparison = compare([job("a", [1, 0], protocol="pixel"), job("b", [1, 1], protocol=stated)])
    assert [(row.protocol, row.difference) for row in comparison.rows] == [("pixel", 0.5)]
    assert compare([job("a", [1, 0], protocol="paper"), job("b", [1, 1], protocol=stated)]).rows == []


def test_examples_are_paired_by_id_not_by_place() -> None:
    rng = random.Random(0)
    correct = {f"x{i}": rng.randint(0, 1) for i in range(50)}
    shuffled = rng.sample(sorted(correct), 50)
    here = job("a", list(correct.values()), ids=list(correct))
    there = job("b", [correct[i] for i in shuffled], ids=shuffled)
    (row,) = compare([here, there]).rows
    assert row.test is not None
    assert (row.test.b, row.test.c, row.difference) == (0, 0, 0.0)
    assert (row.ci_low, row.ci_high) == tango(0, 0, 50)
    assert row.ci_high == pytest.approx(1.96**2 / (50 + 1.96**2), rel=1e-3)  # no interval of zero width


def test_only_common_examples_are_tested() -> None:
    here = job("a", [1, 1, 0, 0], ids=["a", "b", "c", "d"])
    there = job("b", [0, 1, 1], ids=["b", "c", "e"])
    comparison = compare([here, there])
    (row,) = comparison.rows
    assert row.test is not None
    assert (row.test.b, row.test.c, row.test.n, row.difference) == (1, 1, 2, 0.0)
    assert row.common == 2
    assert codes(comparison) == ["partial_overlap"]


def test_norms_are_named_where_a_name_has_several() -> None:
    balls = (("4/255", "Linf"), (0.5, "L2"), ("8/255", "Linf"))
    rows = [evaluation([1], params={"epsilon": epsilon, "norm": norm}) for epsilon, norm in balls]
    assert _names(rows) == "pgd Linf (epsilon 4/255, 8/255), pgd L2 (epsilon 0.5)"
    assert _names(rows[:1]) == "pgd (epsilon 4/255)"


def test_a_warning_of_several_evaluations_is_one_with_a_list() -> None:
    def attacked(job_id: str, n: int, *radii: str) -> JobResults:
        rows = {place: evaluation([1] * n, params={"epsilon": radius}) for place, radius in enumerate(radii)}
        columns = {"id": [f"x{i}" for i in range(n)], "correct": [1] * n}
        return replace(
            job(job_id, [1] * n),
            evaluations=rows,
            columns=lambda place: columns,
            tables={0: TABLES["attack"]},
        )

    found = compare(
        [attacked("a", 4, "1/255", "2/255", "3/255", "4/255"), attacked("b", 3, "1/255", "2/255")]
    )
    overlap, lonely = found.warnings
    assert overlap.message.startswith("pgd (epsilon 1/255, 2/255): job a and job b share 3 examples;")
    assert {key: overlap.evidence[key] for key in ("n", "common")} == {"n": [4, 3], "common": 3}
    assert lonely.message == (
        "job a has pgd (epsilon 3/255, 4/255), and job b has none with the same parameters, data and protocol"
    )
    assert lonely.evidence == {
        "job": "a",
        "evaluations": [
            {"evaluation": "pgd", "params": {"epsilon": radius}} for radius in ("3/255", "4/255")
        ],
    }


def test_no_common_examples_give_no_test() -> None:
    comparison = compare([job("a", [1, 1], ids=["a", "b"]), job("b", [0, 1], ids=["c", "d"])])
    (row,) = comparison.rows
    assert (row.test, row.ci_low, row.difference) == (None, None, -0.5)
    assert codes(comparison) == ["partial_overlap"]


def test_other_data_under_the_same_name_gives_no_test() -> None:
    comparison = compare([job("a", [1, 1]), job("b", [0, 1], sha256="e")])
    assert comparison.rows[0].test is None
    assert codes(comparison) == ["different_data"]


def test_other_content_of_the_same_folder_gives_no_test() -> None:
    data = {"name": "image_folder", "params": {"folder": "birds", "splits": "auto"}}
    first, same = job("a", [1, 1], data=data), job("b", [0, 1], data=data)
    assert codes(compare([first, same])) == []
    changed = compare([first, job("c", [0, 1], sha256="e", data=data)])
    assert changed.rows[0].test is None
    assert codes(changed) == ["different_data"]


def corrupted(job_id: str, source: str, sha256: str = "d", severities: Sequence[int] = (1,)) -> JobResults:
    params = {"corruptions": ["fog"], "severities": [*severities], "source": source}
    name = "imagenet" if source == "generated" else "imagenet_c"
    data: dict[str, Any] = {"name": name, "params": {}}
    found = job(job_id, [1, 0, 1], name="corruptions", params=params, data=data)
    label = content_label(data_label(data), params)
    return replace(found, data_sha256={"imagenet_c fog/5": "other", label: sha256})


def test_stored_and_generated_images_are_not_compared() -> None:
    comparison = compare([corrupted("a", "stored"), corrupted("b", "generated")])
    assert comparison.rows == []
    assert codes(comparison) == ["not_common"] * 2


def test_stored_images_are_the_same_where_what_was_read_of_them_is() -> None:
    (row,) = compare([corrupted("a", "stored"), corrupted("b", "stored")]).rows
    assert row.test is not None
    comparison = compare([corrupted("a", "stored"), corrupted("b", "stored", "e")])
    assert codes(comparison) == ["different_data"]
    assert comparison.rows[0].test is None


@pytest.mark.parametrize(
    "changes",
    [{"name": "fgsm"}, {"params": {"epsilon": "3/255"}}, {"protocol": "paper"}, {"backend": "cleverhans"},
     {"data": {"name": "other", "params": {}}}],
)  # fmt: skip
def test_different_evaluations_are_not_compared(changes: dict[str, Any]) -> None:
    comparison = compare([job("a", [1, 1]), job("b", [0, 1], **changes)])
    assert comparison.rows == []
    assert codes(comparison) == ["not_common", "not_common"]


def test_a_fraction_and_its_value_are_the_same_parameter() -> None:
    assert len(compare([job("a", [1, 1]), job("b", [0, 1], params={"epsilon": 2 / 255})]).rows) == 1


def test_a_metric_that_is_not_the_mean_of_the_column_is_not_paired() -> None:
    odd = {"top1": metric(0.9, 2)}
    (row,) = compare([job("a", [1, 0], metrics=odd), job("b", [0, 1])]).rows
    assert row.test is None
    assert row.difference == pytest.approx(0.5 - 0.9)


def test_accuracy_on_rounded_images_is_paired_by_its_own_column() -> None:
    def rounded(job_id: str, correct8: list[int]) -> JobResults:
        metrics = {"top1": metric(0.5, 4), "top1_8bit": metric(sum(correct8) / 4, 4)}
        plain = job(job_id, [1, 1, 0, 0], metrics=metrics)
        columns = {**plain.columns(0), "correct8": correct8}
        return replace(plain, columns=lambda position: columns)

    rows = {row.metric: row for row in compare([rounded("a", [1, 1, 1, 0]), rounded("b", [0, 1, 0, 1])]).rows}
    test = rows["top1_8bit"].test
    assert test is not None
    assert (test.b, test.c, test.p_value) == (2, 1, mcnemar(2, 1))
    assert (rows["top1_8bit"].ci_low, rows["top1_8bit"].ci_high) == tango(1, 2, 4)
    assert rows["top1"].test is not None
    assert rows["top1"].test.p_value == 1


def test_metrics_without_column_or_value_have_no_test() -> None:
    here = job(
        "a", [1, 0], metrics={"perplexity": metric(2.0, 2), "ece": metric(None, 2), "only": metric(1.0, 2)}
    )
    there = job("b", [1, 0], metrics={"perplexity": metric(3.0, 2), "ece": metric(0.5, 2)})
    rows = {row.metric: row for row in compare([here, there]).rows}
    assert set(rows) == {"perplexity", "ece"}
    assert (rows["perplexity"].difference, rows["perplexity"].test) == (1.0, None)
    assert (rows["ece"].difference, rows["ece"].test) == (None, None)


def test_seconds_of_two_machines_are_compared_with_a_warning() -> None:
    def on(name: str, batch_size: int) -> list[Warning]:
        evidence = {"device": {"name": name}, "batch_size": batch_size}
        return [Warning(code="measures_the_machine", message="m", evidence=evidence)]

    first = job("a", [1, 0], warnings=on("one", 4))
    found = compare([first, job("b", [1, 0], warnings=on("one", 4))])
    assert codes(found) == []
    assert found.result_warnings == {"a": [on("one", 4)[0].code], "b": [on("one", 4)[0].code]}
    for other in (on("two", 4), on("one", 8)):
        found = compare([first, job("b", [1, 0], warnings=other)])
        assert codes(found) == ["measures_the_machine"]
        assert len(found.rows) == 1


def test_more_jobs_are_compared_with_the_first() -> None:
    comparison = compare([job("a", [1, 1]), job("b", [0, 1]), job("c", [0, 0], complete=False)])
    assert comparison.jobs == ["a", "b", "c"]
    assert [[value.job for value in row.values] for row in comparison.rows] == [["a", "b"], ["a", "c"]]
    assert codes(comparison) == ["incomplete"]


def test_a_job_that_failed_and_one_with_doubted_results_say_so() -> None:
    doubted = Warning(code="repeated_differently", message="use none", evidence={"error": "why"})
    noted = Warning(code="left_out", message="m")
    failed = replace(
        job("b", [0, 1], complete=False),
        error=JobError(type="invalid", message="m"),
        warnings=[doubted, noted],
    )
    comparison = compare([job("a", [1, 1]), failed])
    assert [(one.message, one.severity) for one in comparison.warnings] == [
        ("job b has failed (invalid)", "note"),
        ("job b: use none", "invalid"),
    ]
    assert comparison.warnings[1].evidence == {"error": "why", "job": "b"}
    assert comparison.result_warnings == {"b": ["left_out", "repeated_differently"]}


def test_accuracies_before_and_under_an_attack_on_text_are_paired() -> None:
    def attacked(job_id: str, before: list[int], after: list[int]) -> JobResults:
        shares = {"accuracy": before, "accuracy_under_attack": after}
        metrics = {name: metric(sum(column) / 4, 4) for name, column in shares.items()}
        plain = job(job_id, after, name="pwws", params={"wordnet": "wordnet"}, metrics=metrics)
        columns = {**plain.columns(0), "clean_correct": before}
        return replace(plain, columns=lambda position: columns, tables={0: TABLES["text_attack"]})

    first, second = attacked("a", [1, 1, 1, 0], [1, 1, 0, 0]), attacked("b", [1, 1, 1, 1], [0, 0, 0, 1])
    tests = {row.metric: row.test for row in compare([first, second]).rows}
    assert [(test.b, test.c) for test in tests.values() if isinstance(test, PairedTest)] == [(0, 1), (2, 1)]


def played(job_id: str, seed: int, shift: float) -> JobResults:
    """A policy's episodes: 20 of them, each better by so much than in the job without a shift."""
    ids = [f"episode-{number:04d}" for number in range(20)]
    normalized = [number % 5 / 5 + shift for number in range(20)]
    columns = {"id": ids, "normalized": normalized, "return": normalized, "length": [5] * 20}
    value = sum(normalized) / 20
    found = evaluation([1], name="returns", params={}, metrics={"normalized_return": metric(value, 20)})
    return JobResults(
        job_id, True, {0: found}, lambda position: columns, {0: TABLES["returns"]}, {}, seed=seed
    )


def test_episodes_of_one_seed_are_paired_by_id() -> None:
    comparison = compare([played("a", 0, 0.0), played("b", 0, 0.25)])
    (row,) = comparison.rows
    assert row.test is not None
    assert row.test.n == 20
    assert row.difference == pytest.approx(0.25)
    assert (row.ci_low, row.ci_method) == (None, "no_spread")  # every episode differs by as much
    assert codes(comparison) == []


def test_episodes_of_another_seed_begin_elsewhere_and_are_not_paired() -> None:
    comparison = compare([played("a", 0, 0.0), played("b", 1, 0.25)])
    (row,) = comparison.rows
    assert (row.test, row.ci_low) == (None, None)
    assert row.difference == pytest.approx(0.25)
    (warning,) = comparison.warnings
    assert (warning.code, warning.evidence) == (
        "different_seeds",
        {"seeds": [0, 1], "evaluations": [{"evaluation": "returns", "params": {}}]},
    )


def test_jobs_of_other_code_are_compared_with_a_caution() -> None:
    old, new = ({"version": "1.0", "commit": sha * 5, "source_sha256": sha * 16} for sha in ("aaaa", "bbbb"))
    first, second = (replace(job(name, [1, 0, 1]), code=old) for name in "ab")
    assert codes(compare([first, second])) == []
    assert codes(compare([first, replace(second, code={})])) == []
    (warning,) = compare([first, replace(second, code=new)]).warnings
    assert (warning.code, warning.severity) == ("different_code", "caution")
    assert warning.evidence["sha256"] == ["aaaa" * 16, "bbbb" * 16]
    assert warning.evidence["releases"][1] == {"version": "1.0", "commit": "bbbb" * 5}


def test_jobs_of_other_arithmetic_are_compared_with_a_caution_that_names_it() -> None:
    exact, rough = {"dtype": "float32"}, {"dtype": "tf32", "channels_last": "true"}
    first, second = (replace(job(name, [1, 0, 1]), arithmetic=exact) for name in "ab")
    assert codes(compare([first, second])) == []
    assert codes(compare([first, replace(second, arithmetic={})])) == [], "unknown"
    (warning,) = compare([first, replace(second, arithmetic=rough)]).warnings
    assert (warning.code, warning.severity) == ("different_arithmetic", "caution")
    assert "job a was computed with channels_last off, dtype float32, job b with channels_last true" in (
        warning.message
    )
    assert warning.evidence == {"arithmetic": [exact, rough]}


@pytest.mark.parametrize(
    ("one", "other", "severity"),
    [
        ({"channels_last": "true"}, {}, "note"),
        ({"compile": "g++"}, {}, "note"),
        ({"dtype": "float64"}, {}, "note"),
        ({"dtype": "bfloat16", "compile": "g++"}, {"dtype": "bfloat16"}, "note"),
        ({"dtype": "bfloat16"}, {}, "caution"),
        ({"screening": "bfloat16_gradients"}, {}, "caution"),
        ({"dtype": "bfloat16"}, {"dtype": "tf32"}, "caution"),
    ],
)
def test_an_arithmetic_that_differs_by_rounding_is_a_note(
    one: dict[str, str], other: dict[str, str], severity: str
) -> None:
    sides = [
        replace(job(name, [1, 0, 1]), arithmetic={"dtype": "float32", **changes}, name=named)
        for name, changes, named in (("a", one, "quick"), ("b", other, "slow"))
    ]
    (warning,) = compare(sides).warnings
    assert (warning.code, warning.severity) == ("different_arithmetic", severity)
    assert "by rounding" in warning.message if severity == "note" else "the arithmetic's" in warning.message
    assert warning.message.startswith("job 'quick' was computed with ")
    assert ", job 'slow' with " in warning.message
    (warning,) = compare([replace(side, name="alike") for side in sides]).warnings
    assert warning.message.startswith("job a was computed with "), "ids tell jobs of one name apart"


def test_images_are_paired_with_any_seeds() -> None:
    here, there = job("a", [1, 0, 1]), job("b", [1, 1, 1])
    (row,) = compare([replace(here, seed=0), replace(there, seed=1)]).rows
    assert row.test is not None
