"""Laws of the paired tests of every outcome table: alike models do not differ, a clearly worse one does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from assay.attacks.corruptions.imaging.imagenet_c import FIFTEEN
from assay.service.contract.corruption_cells import SEVERITIES, cells_of
from assay.service.contract.results import EvaluationResult
from assay.service.metrics.paired import Pair
from assay.service.metrics.registry import TABLES
from assay.service.metrics.statistics import estimates, intervals
from assay.service.metrics.statistics.corrupted_pixel_counts import write
from assay.service.metrics.table import Context, Summary
from assay.service.metrics.tables.eigenvector_check import CONTROLS
from assay.service.metrics.tables.spectral_error import COLUMNS

N = 60
IDS = [f"{place:03d}" for place in range(N)]
# In [0, 1), in an order that has nothing to do with that of the ids.
RANKS = [place * 37 % N / N for place in range(N)]
OTHER = [place * 23 % N / N for place in range(N)]
FULL = {"corruptions": list(FIFTEEN), "severities": list(SEVERITIES)}
TWO_CELLS = {"corruptions": ["fog"], "severities": [1, 2]}
# Rows are repeats or steps of one machine or training, not examples: pairing them would claim too much.
NOT_BY_EXAMPLE = {"efficiency", "attention_cost", "instability"}
# Its own test pairs it.
ELSEWHERE = {"pursuit_check"}

Rows = dict[str, list[Any]]


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "MAX_RESAMPLES", 200)
    monkeypatch.setattr(intervals, "STUDENTISED_RESAMPLES", 200)


@dataclass(frozen=True)
class Case:
    """How to make the rows of a table; `worse` shifts every number so that every metric changes."""

    table: str
    make: Callable[[bool], Rows]
    params: dict[str, Any] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)
    baseline: dict[str, float] | None = None


def common(**columns: list[Any]) -> Rows:
    return {"id": IDS, "label": [0] * N, "forward": [1] * N, "backward": [0] * N, **columns}


def right(share: float, ranks: list[float] = RANKS) -> list[bool]:
    return [rank < share for rank in ranks]


def classified(worse: bool) -> Rows:
    return common(correct=right(0.3 if worse else 0.9), correct5=right(0.5 if worse else 0.97))


def attacked(worse: bool) -> Rows:
    shift = 1.0 if worse else 0.0
    return classified(worse) | common(
        correct=right(0.1 if worse else 0.6),
        clean_correct=right(0.95),
        correct8=right(0.15 if worse else 0.65),
        hit=[not one for one in right(0.3 if worse else 0.8)],
        queries=[round(100 + 40 * rank - 60 * shift) for rank in OTHER],
        linf=[0.05 + 0.02 * rank - 0.03 * shift for rank in OTHER],
        l2=[2 + rank - shift for rank in OTHER],
    )


def drawn(worse: bool) -> Rows:
    """An attack on a model that answers at random."""
    ranks, lowest = (OTHER, (0.0, 0.55)) if worse else (RANKS, (0.4, 0.75))
    columns = [[low + 0.2 * rank for rank in ranks] for low in lowest]
    return attacked(worse) | dict(zip(("expected", "clean_expected"), columns, strict=True))


def anomalous(worse: bool) -> Rows:
    anomaly = [place % 4 == 0 for place in range(N)]
    gap = 0.0 if worse else 0.6
    confidence = [0.3 * rank + gap * (not one) for rank, one in zip(RANKS, anomaly, strict=True)]
    return common(anomaly=anomaly, confidence=confidence)


def calibrated(worse: bool) -> Rows:
    confidence = [0.5 + 0.5 * rank for rank in RANKS]
    # The worse one is right where it is least confident only.
    correct = [one < 0.6 if worse else rank < one for rank, one in zip(OTHER, confidence, strict=True)]
    return classified(worse) | {"confidence": confidence, "correct": [int(one) for one in correct]}


def flags(worse: bool, cells: int) -> list[str]:
    share = 0.2 if worse else 0.7
    return ["".join("01"[(rank + cell * 0.37) % 1 < share] for cell in range(cells)) for rank in RANKS]


def corrupted(worse: bool) -> Rows:
    return classified(worse) | {"corrupted": flags(worse, 75)}


def counts(share: float, ranks: Sequence[float] = RANKS) -> Rows:
    """Pixels of images; other ranks, or the difference of two models would be the same in every image."""
    found = [[round(60 * share + 20 * rank), round(20 * share + 10 * (1 - rank))] for rank in ranks]
    target = [[100, 40]] * N
    predicted = [[one + 15, other + 25] for one, other in found]
    return {"intersection": found, "target": target, "predicted": predicted}


def segmented(worse: bool) -> Rows:
    return common(**(counts(0.3, OTHER) if worse else counts(0.9)))


def corrupted_pixels(worse: bool) -> Rows:
    rows = segmented(worse)
    pairs = zip(rows["intersection"], rows["predicted"], strict=True)
    texts = [write([[(c, f[c], p[c]) for c in (0, 1)]] * 2) for f, p in pairs]
    return rows | {"corrupted_pixels": texts}


def attacked_pixels(worse: bool) -> Rows:
    rows = common(worst=[0] * N, **counts(0.9))
    for name, share in (("clean", 0.9), ("ce", 0.3 if worse else 0.7), ("js", 0.35 if worse else 0.75)):
        part = counts(share, OTHER if worse else RANKS)
        rows |= {f"{name}_intersection": part["intersection"], f"{name}_predicted": part["predicted"]}
    return rows


def documents(worse: bool) -> Rows:
    tokens = [20 + round(50 * rank) for rank in OTHER]
    nll = [count * (3 + rank + 0.5 * worse) for count, rank in zip(tokens, RANKS, strict=True)]
    return common(nll=nll, tokens=tokens, unknown=[1] * N)


def swapped(worse: bool) -> Rows:
    rows = documents(worse)
    moved = [round(count * (0.4 if worse else 0.1)) for count in rows["tokens"]]
    left = [count - gone for count, gone in zip(rows["tokens"], moved, strict=True)]
    kept = [count * (3 + rank + 0.5 * worse) for count, rank in zip(left, RANKS, strict=True)]
    few = [1 + 3 * worse + place % 2 for place in range(N)]
    return rows | {"swapped": moved, "kept_nll": kept, "kept_nll_before": [0.9 * one for one in kept],
                   "unknown": few, "unknown_before": few, "eligible": rows["tokens"]}  # fmt: skip


def continued(worse: bool) -> Rows:
    tokens = [4] * N
    before = [count * (5 + rank - worse) for count, rank in zip(tokens, RANKS, strict=True)]
    return common(
        tokens=tokens, nll_before=before, nll=[0.5 * one for one in before],
        hit=right(0.7 if worse else 0.2), hit_before=right(0.5 if worse else 0.05),
        words=[30] * N, eligible=[20] * N, swapped=[2 + round(2 * rank) + 4 * worse for rank in OTHER],
        queries=[round(50 + 20 * rank + 40 * worse) for rank in OTHER],
    )  # fmt: skip


def verified(worse: bool) -> Rows:
    return common(
        clean_correct=right(0.6 if worse else 0.95),
        verified=right(0.2 if worse else 0.7),
        lower_margin=[1 + rank - 2 * worse for rank in OTHER],
    )


def smoothed(worse: bool) -> Rows:
    hits = right(0.3 if worse else 0.9)
    # Half of the others are wrong; the rest abstains, in the worse case a third of all.
    first = [
        0 if hit else (-1 if rank > (0.6 if worse else 0.97) else 1)
        for hit, rank in zip(hits, RANKS, strict=True)
    ]
    return common(
        smoothed_correct=hits,
        prediction=[[one, one] for one in first],
        radius=[[(0.3 + rank) * (one >= 0), 0.1] for one, rank in zip(first, OTHER, strict=True)],
        votes=[[90, 80]] * N,
        draws=[100] * N,
    )


def regressed(worse: bool) -> Rows:
    squares = [(rank + 0.2 + 0.7 * worse) ** 2 for rank in RANKS]
    return common(target=[0.0] * N, prediction=RANKS, squared_error=squares, clean_squared_error=squares)


def played(worse: bool) -> Rows:
    values = [rank - 0.5 * worse for rank in RANKS]
    return common(**{"return": values, "normalized": values, "length": values, "action_change": values})


def texts(worse: bool) -> Rows:
    most, least = (0.6, 0.05) if worse else (0.95, 0.55)
    kinds = {rank: "failed" if rank < least else "succeeded" if rank < most else "skipped" for rank in RANKS}
    status = [kinds[rank] for rank in RANKS]
    before = [one != "skipped" for one in status]
    return common(
        status=status, correct=[one == "failed" for one in status], clean_correct=before,
        queries=[round(50 + 20 * rank + 40 * worse) for rank in OTHER], words=[20] * N,
        changed=[2 + round(3 * rank) + 4 * worse for rank in OTHER],
    )  # fmt: skip


def drawn_texts(worse: bool) -> Rows:
    """An attack on a model that answers at random."""
    before = [(0.45 if worse else 0.8) + 0.1 * rank for rank in (OTHER if worse else RANKS)]
    after = [(0.05 if worse else 0.45) + 0.3 * rank for rank in (OTHER if worse else RANKS)]
    pairs = zip(before, after, strict=True)
    status = ["skipped" if was <= 0.5 else "succeeded" if now <= 0.5 else "failed" for was, now in pairs]
    return texts(worse) | {"status": status, "expected": after, "clean_expected": before}


def layered(low: float, worse: bool, by: float = 0.3) -> list[list[float]]:
    return [[low + 0.2 * rank + by * worse, low + 0.1 * rank + by * worse] for rank in RANKS]


def spectrum(worse: bool) -> Rows:
    return common(
        curve=[[0.2, 1.0, 0.3, 1.0]] * N, largest=layered(0.2, worse), rank_90=layered(4, worse, 2),
        effective_rank=layered(3, worse, 2), tokens=[[16, 16]] * N,
    )  # fmt: skip


def eigenvectors(worse: bool) -> Rows:
    of_controls = ("cosine", "offset", "difference_mean", "difference_std")
    names = (*of_controls[1:], "largest", "smallest", "average", "middle", "trace")
    rows = common(cosine=layered(0.3, worse), **{name: layered(1, worse) for name in names})
    extra: Rows = {"skipped": [0] * N, "elements": [8] * N, "undefined": [0] * N,
                   "cosines": [[1, 2]] * N, "spreads": [[2, 1]] * N}  # fmt: skip
    for control in CONTROLS:
        extra |= {f"{control}_{name}": RANKS for name in of_controls}
        extra |= {f"{control}_cosines": [[1, 2]] * N, f"{control}_spreads": [[2, 1]] * N}
    return rows | extra


def heads(worse: bool) -> Rows:
    spread = 0.5 + 2.0 * worse
    distance = [[1 + 0.3 * worse + spread * (rank - 0.5), 2 + 0.5 * worse] for rank in RANKS]
    squares = [[one**2 + 0.1, other**2 + spread] for one, other in distance]
    return common(distance=distance, squared_distance=squares)


def projections(worse: bool) -> Rows:
    return common(
        log_phi=layered(1.0, worse), output=layered(0.5, False),
        negative=[[1 + 3 * worse, 2 + 3 * worse]] * N, terms=[[10, 10]] * N,
    )  # fmt: skip


def approximations(worse: bool) -> Rows:
    values = [[*row, *row] for row in layered(0.3, worse)]
    tokens = [16 + round(10 * rank) + 9 * worse for rank in RANKS]
    return common(tokens=tokens, **dict.fromkeys(COLUMNS, values))


LAYERS = {"layers": [0, 1]}
CASES = [
    Case("classification", classified),
    Case("attack", attacked),
    Case("attack", drawn),
    Case("anomaly", anomalous),
    Case("calibration", calibrated, {"ece_bins": 5, "rms_bin_size": 10, "rms_bins": "all"}),
    Case("corrupted_classification", corrupted, FULL, baseline=dict.fromkeys(FIFTEEN, 0.8)),
    Case("stored_corruptions", corrupted, FULL, baseline=dict.fromkeys(FIFTEEN, 0.8)),
    Case("segmentation", segmented),
    Case("corrupted_segmentation", corrupted_pixels, TWO_CELLS),
    Case("attacked_segmentation", attacked_pixels, evidence={"stages": []}),
    Case("perplexity", documents),
    Case("word_swap", swapped),
    Case("forced_continuation", continued),
    Case("verified", verified),
    Case("smoothed", smoothed, {"sigmas": [0.25, 0.5], "radii": [0.0, 0.5]}),
    Case("regression", regressed),
    Case("returns", played),
    Case("text_attack", texts),
    Case("text_attack", drawn_texts),
    Case("attention_spectrum", spectrum, evidence=LAYERS),
    Case("eigenvector_check", eigenvectors, evidence=LAYERS),
    Case("head_distance", heads, evidence=LAYERS),
    Case("projection_loss", projections, {"form": "paper"}, LAYERS),
    Case("projection_loss", projections, {"form": "released"}, LAYERS),
    Case("spectral_error", approximations, {"features": [4, 8]}, LAYERS),
]


def summarised(case: Case, rows: Rows) -> Summary:
    context = Context(params=case.params, evidence=[case.evidence], baseline_errors=case.baseline)  # type: ignore[list-item]
    return TABLES[case.table].summarise(rows, context)


def result(case: Case, summary: Summary) -> EvaluationResult:
    return EvaluationResult(
        name=case.table, params=case.params, data={"name": "digits", "params": {}}, protocol="pixel",
        backend="native", metrics=summary.metrics, breakdown=list(summary.breakdown), seconds=0.0,
        forward_passes=0, backward_passes=0,
    )  # fmt: skip


def test_every_table_of_examples_is_here() -> None:
    assert {case.table for case in CASES} == TABLES.keys() - NOT_BY_EXAMPLE - ELSEWHERE
    assert len(cells_of(FULL)) == 75


@pytest.mark.costly
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.table}-{case.params.get('form', '')}")
def test_a_model_does_not_differ_from_itself_and_does_from_a_clearly_worse_one(case: Case) -> None:
    table = TABLES[case.table]
    rows = [case.make(False), case.make(True)]
    found = [summarised(case, side) for side in rows]
    results = [result(case, summary) for summary in found]
    same = table.paired(Pair(case.table, rows[0], rows[0], (results[0], results[0])))
    other = table.paired(Pair(case.table, rows[0], rows[1], (results[0], results[1])))
    turned = [{name: column[::-1] for name, column in side.items()} for side in rows]
    again = table.paired(Pair(case.table, turned[0], turned[1], (results[0], results[1])))
    assert same is not None
    assert other is not None
    assert again is not None
    assert found[0].metrics
    for name, metric in found[0].metrics.items():
        assert metric.value is not None, name
        value = found[1].metrics[name].value
        assert value is not None, name
        none = same.difference(name, (metric.value, metric.value))
        assert none is not None, name
        assert (none.value, none.test.p_value) == (0, 1), name
        assert none.low is None or none.low < 0, name
        assert none.high is None or none.high > 0, name
        clear = other.difference(name, (metric.value, value))
        assert clear is not None, name
        assert clear.value == pytest.approx(value - metric.value), name
        assert clear.test.p_value < 0.01, name
        assert clear.test.n == N
        if clear.low is not None and clear.high is not None:
            assert clear.low <= clear.value <= clear.high, name
            assert clear.low < clear.high, name
            assert not clear.low <= 0 <= clear.high, name
        assert again.difference(name, (metric.value, value)) == clear, name
        assert other.difference(name, (metric.value, value + 0.5)) is None, name


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.table}-{case.params.get('form', '')}")
@pytest.mark.parametrize("common", [1, 2, 3, 9, 10, 11])
def test_few_common_examples_are_no_fault(case: Case, common: int) -> None:
    """The metrics are those of all examples of each job: the jobs share a few."""
    table = TABLES[case.table]
    parts = (range(common + 15), [*range(common), *range(40, N)])
    rows = [
        {name: [column[place] for place in places] for name, column in case.make(worse).items()}
        for worse, places in zip((False, True), parts, strict=True)
    ]
    found = [summarised(case, side) for side in rows]
    results = [result(case, summary) for summary in found]
    paired = table.paired(Pair(case.table, rows[0], rows[1], (results[0], results[1])))
    assert paired is not None
    for name, metric in found[0].metrics.items():
        difference = paired.difference(name, (metric.value, found[1].metrics[name].value))
        if difference is None:
            continue
        assert (difference.low is None) == (difference.high is None), name
        assert difference.test is None or 0 <= difference.test.p_value <= 1, name
        assert difference.test is None or difference.test.n == common, name
