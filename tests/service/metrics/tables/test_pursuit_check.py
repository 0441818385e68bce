"""From measured pursuits to metrics, intervals, parts and the plot."""

from __future__ import annotations

import random
import statistics
from typing import Any
from xml.etree import ElementTree

import pytest

from assay.service.contract.results import EvaluationResult, PursuitBreakdown
from assay.service.metrics.paired import Pair
from assay.service.metrics.statistics.intervals import wilson
from assay.service.metrics.table import Context, Summary, joined
from assay.service.metrics.tables.pursuit_check import PursuitCheck

N = 40
FACTS = {"layers": [0, 3], "iterations": [2, 1], "arms": ["no_sparse", "threshold_paper"]}
SVG = "{http://www.w3.org/2000/svg}"


def rows(n: int = N) -> dict[str, list[Any]]:
    """Two layers, the first of two iterations: lists of three values."""
    source = random.Random(0)

    def drawn(count: int, low: float = 0.0, high: float = 1.0) -> list[list[float]]:
        return [[source.uniform(low, high) for _ in range(count)] for _ in range(n)]

    found: dict[str, list[Any]] = {
        "id": [f"{row:03d}" for row in range(n)],
        "nonzero": [[0.0, *row] for row in drawn(2)],
        "sparse_norm": drawn(3),
        "residual": drawn(3, 1.0, 2.0),
        "effective_rank": drawn(3, 5.0, 9.0),
        "keys_effective_rank": drawn(2, 8.0, 9.0),
        "curve": [[point / 16 for _ in range(2) for point in range(17)] for _ in range(n)],
        "nonzero_noise": drawn(3),
        "forward": [1] * n,
        "backward": [0] * n,
    }
    for tag in ("unplanted", "noise"):
        found |= {f"auroc_{tag}": drawn(3), f"keys_auroc_{tag}": drawn(2)}
    for arm in ("model", "no_sparse", "threshold_paper"):
        for kind in ("clean", "noise"):
            found[f"correct_{arm}_{kind}"] = [source.random() < 0.8 for _ in range(n)]
    return found


def summary(given: dict[str, list[Any]]) -> Summary:
    return PursuitCheck().summarise(given, Context(evidence=[FACTS]))


def parts(found: Summary) -> dict[str, PursuitBreakdown]:
    return {part.label: part for part in found.breakdown if isinstance(part, PursuitBreakdown)}


def test_the_model_s_metrics_are_of_each_layer_s_last_iteration() -> None:
    given = rows()
    found = summary(given)
    assert next(iter(found.metrics)) == "nonzero_share"
    for name, column in {
        "nonzero_share": "nonzero",
        "residual": "residual",
        "auroc_noise": "auroc_noise",
    }.items():
        expected = statistics.fmean((row[1] + row[2]) / 2 for row in given[column])
        assert found.metrics[name].value == pytest.approx(expected)
    ranks = [statistics.fmean(row) for row in given["keys_effective_rank"]]
    assert found.metrics["keys_effective_rank"].value == pytest.approx(statistics.fmean(ranks))
    assert found.metrics["top1"].value == statistics.fmean(given["correct_model_clean"])
    assert found.metrics["top1_no_sparse"].value == statistics.fmean(given["correct_no_sparse_clean"])
    assert found.metrics["top1"].ci_method == "wilson"
    assert not {"auroc_occlusion", "nonzero_share_occlusion", "top1_dual_sign_plus"} & found.metrics.keys()


def test_parts_are_layers_with_their_iterations_and_arms_with_their_corruptions() -> None:
    given = rows()
    found = parts(summary(given))
    assert [*found] == [
        "layer 0/iteration 1", "layer 0/iteration 2", "layer 0", "layer 3/iteration 1", "layer 3",
        "noise", "no_sparse", "no_sparse/noise", "threshold_paper", "threshold_paper/noise",
    ]  # fmt: skip
    assert found["layer 3/iteration 1"].metrics["residual"].value == pytest.approx(
        statistics.fmean(row[2] for row in given["residual"])
    )
    assert found["layer 3"].metrics["keys_auroc_noise"].value == pytest.approx(
        statistics.fmean(row[1] for row in given["keys_auroc_noise"])
    )
    noisy = found["threshold_paper/noise"].metrics["top1"]
    assert noisy.value == statistics.fmean(given["correct_threshold_paper_noise"])


@pytest.mark.parametrize("n", [2, 10, 600])
def test_no_interval_of_a_share_is_without_width(n: int) -> None:
    given = rows(n)
    given["auroc_noise"] = [[0.5] * 3] * n
    given["nonzero"] = [[0.0, 0.0, 0.0] for _ in range(n)]
    found = summary(given)
    empty, even = (found.metrics[name] for name in ("nonzero_share", "auroc_noise"))
    assert (empty.value, empty.ci_low) == (0.0, 0.0)
    assert empty.ci_high == pytest.approx(wilson(0, n)[1])
    assert even.ci_low < 0.5 < even.ci_high  # type: ignore[operator]
    every = [*found.metrics.values(), *(m for part in found.breakdown for m in part.metrics.values())]
    assert all(metric.ci_low < metric.ci_high for metric in every)  # type: ignore[operator]


def test_the_order_of_shards_does_not_matter() -> None:
    given = rows()
    halves = [{name: values[part] for name, values in given.items()} for part in (slice(15), slice(15, None))]
    columns = PursuitCheck().columns
    one, other = (summary(joined(columns, order)) for order in (halves, halves[::-1]))
    assert one == other
    assert one.plot is not None


def test_a_result_is_read_as_it_was_written() -> None:
    found = summary(rows())
    result = EvaluationResult(
        name="pursuit_check", params={}, data={"name": "digits"}, protocol="pixel", backend="native",
        metrics=found.metrics, breakdown=list(found.breakdown),
        seconds=1, forward_passes=1, backward_passes=0,
    )  # fmt: skip
    again = EvaluationResult.model_validate_json(result.model_dump_json())
    assert again == result
    assert {type(part) for part in again.breakdown} == {PursuitBreakdown}


def test_the_plot_has_both_layers_and_all_panels() -> None:
    drawn = ElementTree.fromstring(summary(rows()).plot or "")
    labels = [text.text for text in drawn.iter(f"{SVG}text")]
    assert labels.count("layer 0") == labels.count("layer 3") == 4
    assert {"S that is not 0", "unplanted", "noise", "keys"} <= {*labels}


def test_an_example_without_keys_takes_the_value_and_the_warning_says_so() -> None:
    given = rows()
    given["residual"][7] = [None] * 3
    found = summary(given)
    assert found.metrics["residual"].value is None
    assert found.metrics["effective_rank"].value is not None
    (warning,) = found.warnings
    assert (warning.code, warning.evidence) == ("undefined_metric", {"metrics": ["residual"]})


def test_two_models_are_compared_by_their_answers() -> None:
    first, second = rows(), rows()
    second["correct_no_sparse_clean"] = [False] * N
    paired = PursuitCheck().paired(Pair("pursuit_check", first, second))
    share = statistics.fmean(first["correct_no_sparse_clean"])
    found = paired.difference("top1_no_sparse", (share, 0.0))
    assert found is not None
    assert found.value == pytest.approx(-share)
    assert found.test.p_value < 1e-6
    same = paired.difference("top1", (summary(first).metrics["top1"].value,) * 2)
    assert same is not None
    assert same.test.p_value == 1


def test_means_over_layers_are_compared_example_by_example() -> None:
    first = {
        name: [row[: {"curve": 17}.get(name, 1)] for row in values]
        if name == "curve" or name.startswith("keys_")
        else values
        for name, values in rows().items()
    }  # one layer of three iterations
    second = {**first, "residual": [[*row[:2], row[2] - 0.1] for row in first["residual"]]}
    facts = {**FACTS, "layers": [3], "iterations": [3]}
    reported = [PursuitCheck().summarise(side, Context(evidence=[facts])).metrics for side in (first, second)]
    paired = PursuitCheck().paired(Pair("pursuit_check", first, second))
    found = {
        name: paired.difference(name, (reported[0][name].value, reported[1][name].value))
        for name in ("residual", "keys_auroc_noise", "nonzero_share")
    }
    assert all(one is not None for one in found.values())
    assert found["residual"].value == pytest.approx(-0.1)  # type: ignore[union-attr]
    assert found["residual"].test.p_value < 1e-6  # type: ignore[union-attr]
    assert found["keys_auroc_noise"].test.p_value == found["nonzero_share"].test.p_value == 1  # type: ignore[union-attr]
    # A value that the rows do not give is not compared by them.
    assert paired.difference("residual", (reported[0]["residual"].value, 1.0)) is None
