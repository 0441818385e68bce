"""Comparisons of language models: paired by document."""

from __future__ import annotations

from assay.service.contract.results import EvaluationResult, Metric, data_label
from assay.service.metrics.compare.comparison import JobResults, compare
from assay.service.metrics.paired import LinearisedTest
from assay.service.metrics.registry import TABLES
from assay.service.metrics.tables.perplexity import perplexity_of

DATA = {"name": "pydoc", "params": {}}


def job(name: str, loss: float, documents: list[int], value: float | None = None) -> JobResults:
    """A job that measured these documents, in this order; `value` replaces the reported perplexity."""
    rows = [(10 * (loss + number % 7 / 5), 10) for number in documents]
    metric = Metric(
        value=value or perplexity_of(rows),
        n=len(rows),
        ci_low=1,
        ci_high=1e3,
        ci_method="bootstrap",
        higher_is_better=False,
    )
    result = EvaluationResult(
        name="perplexity",
        params={"window": "blocks"},
        data=DATA,
        protocol="pixel",
        backend="native",
        metrics={"perplexity": metric},
        seconds=1.0,
        forward_passes=1,
        backward_passes=0,
    )
    nll, tokens = (list(part) for part in zip(*rows, strict=True))
    columns = {"id": [f"{number:03d}" for number in documents], "nll": nll, "tokens": tokens}
    return JobResults(
        name, True, {0: result}, lambda _: columns, {0: TABLES["perplexity"]}, {data_label(DATA): "d"}
    )


def test_the_difference_is_over_the_documents_that_both_measured() -> None:
    documents = list(range(30))
    [row] = compare([job("a", 4.0, documents), job("b", 3.9, documents[::-1])]).rows
    first, second = (value.value for value in row.values)
    assert first is not None
    assert second is not None
    assert row.difference == second - first
    assert row.ci_low is not None
    assert row.ci_high is not None
    assert row.ci_low < row.difference < row.ci_high < 0
    assert isinstance(row.test, LinearisedTest)
    assert (row.test.n, row.test.moved, row.ci_method) == (30, 30, "studentised")
    [part] = compare([job("a", 4.0, documents), job("b", 3.9, documents[:20])]).rows
    assert isinstance(part.test, LinearisedTest)
    assert part.test.n == 20


def test_a_perplexity_that_is_not_that_of_the_documents_is_not_paired() -> None:
    [row] = compare([job("a", 4.0, [1, 2, 3]), job("b", 3.9, [1, 2, 3], value=5.0)]).rows
    assert row.test is None
    assert row.ci_low is None
