"""How often the 95 % intervals hold the true value, and how often tests reject a true null hypothesis.

`python -m benchmarks.coverage [--draws 2000] [--jobs 1] [--only SECTION ...]`; the tables are in
`docs/statistics.md`. The intervals are the product's own (`service/metrics`), over synthetic outcomes with a
known truth. The error of a simulated coverage is 0.5 points (one standard deviation) at 2,000 draws. Where
outcomes are discrete, the exact coverage stands beside it: a sum of binomial or trinomial probabilities.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from assay.service.metrics.paired import Pair
from assay.service.metrics.registry import TABLES
from assay.service.metrics.statistics import intervals
from assay.service.metrics.statistics.corrupted_pixel_counts import COLUMN, write
from assay.service.metrics.statistics.intervals import mean_bounds, median_bounds, wilson
from assay.service.metrics.statistics.paired_tests import mcnemar, sign_flip
from assay.service.metrics.statistics.score_intervals import effective_wilson, paired_score
from assay.service.metrics.statistics.tango import tango
from assay.service.metrics.tables.corrupted_segmentation import corrupted_segmentation_metrics
from assay.service.metrics.tables.corruption import corruption_metrics
from benchmarks.coverage_rare import METRICS as RARE
from benchmarks.coverage_rare import THRICE, differences, means
from benchmarks.coverage_replays import resampled, studentised
from benchmarks.coverage_together import CHECKED, METRICS, null_differences, same, simulated, truth

SIZES = (50, 355, 1000)
Z = stats.norm.ppf(0.975)
# Bootstraps shown beside the chosen interval take long: they have fewer draws.
SLOW_DRAWS = 400
RARE_DRAWS = 500
RARE_SHARES = (0.001, 0.003, 0.01, 0.02)
Row = tuple[Any, ...]
Ends = tuple[float | None, float | None]


class Cell(NamedTuple):
    """A row of a table: its labels, and the function that measures the rest from a number of draws."""

    labels: Row
    measure: Callable[[int], Row]


def shares(n: int) -> list[tuple[str, float]]:
    """The true proportions: middling, high, and one expected failure."""
    return [("0.5", 0.5), ("0.95", 0.95), ("1 - 1/n", 1 - 1 / n)]


def covered(ends: Sequence[Ends], truth: float) -> tuple[float, float]:
    """The share of the intervals that hold the truth, and the share of samples without an interval."""
    known = [(low, high) for low, high in ends if low is not None and high is not None]
    held = sum(low <= truth + 1e-12 and truth <= high + 1e-12 for low, high in known)
    return (held / len(known) if known else math.nan), 1 - len(known) / len(ends)


def percent(value: float) -> str:
    """One digit, a dash for a number that there is not."""
    return "-" if math.isnan(value) else f"{100 * value:.1f}"


# One proportion ---------------------------------------------------------------------------------------------


def proportion(n: int, p: float, draws: int) -> Row:
    """Wilson's coverage, simulated and exact, and that of the mid-P interval for comparison."""
    counts = np.arange(n + 1)
    weights = stats.binom.pmf(counts, n, p)
    held = np.array([low <= p <= high for low, high in (wilson(int(k), n) for k in counts)])
    middle = stats.binom.pmf(counts, n, p) / 2
    tails = np.minimum(stats.binom.cdf(counts, n, p) - middle, stats.binom.sf(counts, n, p) + middle)
    sample = np.random.default_rng([n, int(1e6 * p)]).binomial(n, p, draws)
    return percent(held[sample].mean()), percent(weights[held].sum()), percent(weights[tails > 0.025].sum())


def proportions() -> Iterator[Cell]:
    """One proportion of independent examples."""
    for n in SIZES:
        for label, p in shares(n):
            yield Cell((n, label), partial(proportion, n, p))


# A mean of shares -------------------------------------------------------------------------------------------


def answers(rng: np.random.Generator, n: int, p: float, size: int, together: float = 0.5) -> Any:
    """(size, n) shares of five answers that are right; the five of an example agree by this correlation."""
    a, b = p * (1 - together) / together, (1 - p) * (1 - together) / together
    return rng.binomial(5, rng.beta(a, b, (size, n))) / 5


def mean_of_shares(n: int, p: float, draws: int) -> Row:
    """The effective score interval beside the studentised bootstrap and Student's."""
    samples = answers(np.random.default_rng([n, int(1e6 * p), 1]), n, p, draws)
    score = covered([effective_wilson(row.tolist()) for row in samples], p)[0]
    boot, none = covered([mean_bounds(row.tolist(), seed=0)[:2] for row in samples[:SLOW_DRAWS]], p)
    return percent(score), percent(boot), percent(none)


def means_of_shares() -> Iterator[Cell]:
    """`corrupted_top1`, mCE and other means of values in a known range."""
    for n in (10, *SIZES):
        for label, p in shares(n):
            yield Cell((n, label), partial(mean_of_shares, n, p))


# Paired differences -----------------------------------------------------------------------------------------


def pair_of_models(rng: np.random.Generator, n: int, p: float, q: float, size: int) -> Any:
    """(size, 4) counts: both right, the second only, the first only, neither: more alike than by chance."""
    low = min(p, q)
    both = low - (low - p * q) / 2
    return rng.multinomial(n, [both, q - both, p - both, 1 - p - q + both], size=size)


def newcombe(both: int, more: int, fewer: int, neither: int) -> Ends:
    """Method 10 of Newcombe 1998, "Improved confidence intervals for the difference ... on paired data"."""
    n = both + more + fewer + neither
    p, q = (both + fewer) / n, (both + more) / n
    (p_low, p_high), (q_low, q_high) = wilson(both + fewer, n), wilson(both + more, n)
    product = both * neither - more * fewer
    corrected = max(0.0, product - n / 2) if product > 0 else product
    spread = math.sqrt((both + fewer) * (more + neither) * (both + more) * (fewer + neither))
    phi = corrected / spread if spread else 0.0
    down, up = (q - q_low, p_high - p), (q_high - q, p - p_low)
    low, high = (math.sqrt(max(0.0, a * a - 2 * phi * a * b + b * b)) for a, b in (down, up))
    return q - p - low, q - p + high


def exact_tango(n: int, p: float, q: float) -> float:
    """The trinomial probability of the counts whose interval holds q - p."""
    low = min(p, q)
    both = low - (low - p * q) / 2
    gain, loss = q - both, p - both
    most = [int(stats.binom.ppf(1 - 1e-9, n, share)) + 1 for share in (gain, loss)]
    total = 0.0
    for more in range(min(most[0], n) + 1):
        first = stats.binom.pmf(more, n, gain)
        rest = stats.binom.pmf(np.arange(min(most[1], n - more) + 1), n - more, loss / (1 - gain))
        held = [
            one[0] <= q - p + 1e-12 <= one[1] + 2e-12 for one in (tango(more, k, n) for k in range(len(rest)))
        ]
        total += first * float(rest[np.array(held)].sum())
    return total


def paired_proportion(n: int, p: float, q: float, draws: int) -> Row:
    """Tango simulated and exact, and Newcombe's method 10."""
    counts = pair_of_models(np.random.default_rng([n, int(1e6 * p), int(1e6 * q)]), n, p, q, draws).tolist()
    found = covered([tango(more, fewer, n) for _, more, fewer, _ in counts], q - p)[0]
    other = covered([newcombe(*row) for row in counts], q - p)[0]
    return percent(found), percent(exact_tango(n, p, q)), percent(other)


def paired_proportions() -> Iterator[Cell]:
    """Two models on the same examples."""
    for n in SIZES:
        for label, p in shares(n):
            for gap in (0.0, 0.05) if p < 0.96 else (0.0,):
                yield Cell((n, label, f"{gap:g}"), partial(paired_proportion, n, p, p - gap))


def paired_share(n: int, p: float, gap: float, draws: int) -> Row:
    """The effective score interval, and the studentised bootstrap of the same differences."""
    rng = np.random.default_rng([n, int(1e6 * p), 7])
    first = answers(rng, n, p, draws)
    fresh = answers(rng, n, p - gap / 0.3, draws) if gap else answers(rng, n, p, draws)
    # 30 % of the examples get answers of their own, the others those of the first model.
    second = np.where(rng.random((draws, n)) < 0.3, fresh, first)
    differences = [row.tolist() for row in second - first]
    score = covered([paired_score(row) for row in differences], -gap)[0]
    boot, none = covered([mean_bounds(row, seed=0)[:2] for row in differences[:SLOW_DRAWS]], -gap)
    return percent(score), percent(boot), percent(none)


def paired_shares() -> Iterator[Cell]:
    """Paired differences of means of shares."""
    for n in SIZES:
        for label, p in shares(n):
            for gap in (0.0, 0.05) if p < 0.96 else (0.0,):
                yield Cell((n, label, f"{gap:g}"), partial(paired_share, n, p, gap))


# Means and medians without limits ---------------------------------------------------------------------------

DISTRIBUTIONS: dict[str, tuple[Callable[[np.random.Generator, tuple[int, int]], Any], float, float]] = {
    "normal": (lambda rng, size: rng.normal(size=size), 0.0, 0.0),
    "exponential": (lambda rng, size: rng.exponential(size=size), 1.0, math.log(2)),
    "log-normal, sigma 1": (lambda rng, size: rng.lognormal(size=size), math.exp(0.5), 1.0),
}


def unbounded(name: str, n: int, draws: int) -> Row:
    """The mean's interval, beside Student's and the percentiles', and the median's."""
    draw, mean, middle = DISTRIBUTIONS[name]
    rng = np.random.default_rng([n, len(name)])
    samples = draw(rng, (draws, n))
    half = stats.t.ppf(0.975, n - 1) * samples.std(1, ddof=1) / math.sqrt(n)
    student = float((abs(samples.mean(1) - mean) <= half).mean())
    counts = resampled("percentiles", (n,), 1000).counts
    low, high = np.quantile(samples @ counts.T / n, [0.025, 0.975], axis=1)
    percentiles = float(((low <= mean) & (mean <= high)).mean())
    found = covered(chosen(samples), mean)[0]
    median = covered([median_bounds(row.tolist())[:2] for row in samples], middle)[0]
    return tuple(map(percent, (found, student, percentiles, median)))


def chosen(samples: Any) -> list[Ends]:
    """The ends of `mean_bounds`; the studentised ones are replayed."""
    n = samples.shape[1]
    if not intervals.MIN_EXAMPLES <= n <= intervals.MAX_STUDENTISED:
        return [mean_bounds(row.tolist(), seed=0)[:2] for row in samples]
    ends = list(zip(*studentised("0", samples, intervals.STUDENTISED_RESAMPLES), strict=True))
    for place in range(CHECKED):
        same(ends[place], mean_bounds(samples[place].tolist(), seed=0)[:2])
    return ends


def unbounded_means() -> Iterator[Cell]:
    """Queries, returns, squared errors: values without known limits."""
    for name in DISTRIBUTIONS:
        for n in (5, 10, *SIZES):
            yield Cell((name, n), partial(unbounded, name, n))


# Metrics of all examples together ---------------------------------------------------------------------------


def together(name: str, kind: str, n: int, draws: int) -> Row:
    """The metric's interval over two independent sets of samples."""
    shares, missing = [], 0.0
    excess = 0.0 if kind == "calibrated" else 0.1
    for seed in (0, 1):
        found = [one[name] for one in simulated(kind, n, draws, seed)]
        held, none = covered([(one.ci_low, one.ci_high) for one in found], truth(name, n, excess))
        shares.append(held)
        missing += none / 2
    return found[0].ci_method, *map(percent, (*shares, missing))


def metrics_together() -> Iterator[Cell]:
    """Metrics that are no means over examples; a single bin has no RMS calibration error."""
    for name, kind in METRICS:
        for n in SIZES:
            if name != "rms_calibration_error" or n > 199:
                yield Cell((name, kind, n), partial(together, name, kind, n))


def paired_jackknife(name: str, kind: str, n: int, draws: int) -> Row:
    """The interval of the difference of two models that are alike, and the share of p at most 0.05."""
    found = null_differences(name, kind, n, draws)
    held, none = covered([(one.low, one.high) for one in found], 0.0)
    alarms = sum(one.p_value is not None and one.p_value <= 0.05 for one in found) / draws
    return tuple(map(percent, (held, none, alarms)))


def paired_together() -> Iterator[Cell]:
    """Differences of metrics that are no means over examples."""
    for name, kind in METRICS:
        if kind in ("anomalies", "overconfident", "images"):
            for n in SIZES:
                if name != "rms_calibration_error" or n > 199:
                    yield Cell((name, n), partial(paired_jackknife, name, kind, n))


def paired_median(n: int, share: float, correlation: float, draws: int) -> Row:
    """The difference of two medians that are alike, each of a share of the examples."""
    rng, found = np.random.default_rng([n, int(100 * share), int(100 * correlation), 6]), []
    ids = [f"{place:06d}" for place in range(n)]
    for _ in range(draws):
        shared, *own = rng.normal(size=(3, n))
        values = (np.exp(math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * one) for one in own)
        broken = rng.random((2, n)) < share
        first, second = (
            {one: value for one, value, counts in zip(ids, side.tolist(), row, strict=True) if counts}
            for side, row in zip(values, broken, strict=True)
        )
        found.append(intervals.median_difference(first, second))
    held, none = covered([(one.bounds.low, one.bounds.high) for one in found], 0.0)
    alarms = sum(one.p_value is not None and one.p_value <= 0.05 for one in found) / draws
    return tuple(map(percent, (held, none, alarms)))


def paired_medians() -> Iterator[Cell]:
    """Log-normal norms of the examples that two attacks broke."""
    for n in SIZES:
        for share in (1.0, 0.5):
            for correlation in (0.0, 0.5, 0.9):
                yield Cell((n, share, correlation), partial(paired_median, n, share, correlation))


# Rare events ------------------------------------------------------------------------------------------------


def widths(ends: Sequence[Ends]) -> tuple[float, float]:
    """The median width of the intervals that there are, and the width that 5 % exceed."""
    known = [high - low for low, high in ends if low is not None and high is not None]
    return (float(np.median(known)), float(np.quantile(known, 0.95))) if known else (math.nan, math.nan)


def rare_difference(metric: str, n: int, share: float, draws: int) -> Row:
    """Coverage, widths, and the share of p at most 0.05 of paired differences."""
    found = differences(metric, n, share, min(draws, RARE_DRAWS))
    ends = [(one.low, one.high) for one in found]
    held, none = covered(ends, 2 * share if metric == THRICE else 0.0)
    alarms = sum(one.test is not None and one.test.p_value <= 0.05 for one in found) / len(found)
    return percent(held), *(f"{width:.3g}" for width in widths(ends)), percent(none), percent(alarms)


def rare_differences() -> Iterator[Cell]:
    """Paired differences of metrics of which rare examples alone differ."""
    for metric in RARE:
        for n in (100, 355, 1000) if metric.startswith("attack") else (355,):
            for share in RARE_SHARES:
                yield Cell((metric, n, f"{100 * share:g}"), partial(rare_difference, metric, n, share))


def rare_mean(sides: str, n: int, share: float, draws: int) -> Row:
    """Coverage of the mean, and widths."""
    ends, mean = means(sides, n, share, min(draws, RARE_DRAWS))
    return percent(covered(ends, mean)[0]), *(f"{width:.3g}" for width in widths(ends))


def rare_means() -> Iterator[Cell]:
    """Means of which rare values alone are away from the others."""
    for sides in ("both", "one"):
        for n in (50, 355):
            for share in RARE_SHARES:
                yield Cell((sides, n, f"{100 * share:g}"), partial(rare_mean, sides, n, share))


# Tests ------------------------------------------------------------------------------------------------------


def false_alarms(n: int, p: float, draws: int) -> Row:
    """The share of p at most 0.05 between models that are alike."""
    rng = np.random.default_rng([n, int(1e6 * p), 3])
    counts = pair_of_models(rng, n, p, p, draws).tolist()
    exact = np.mean([mcnemar(fewer, more) <= 0.05 for _, more, fewer, _ in counts])
    first, fresh = answers(rng, n, p, draws), answers(rng, n, p, draws)
    second = np.where(rng.random((draws, n)) < 0.3, fresh, first)
    flips = np.mean([sign_flip(row.tolist()) <= 0.05 for row in second - first])
    # The interval beside the p is not looked at.
    resamples, intervals.STUDENTISED_RESAMPLES = intervals.STUDENTISED_RESAMPLES, 1
    linear = np.mean([linearised(rng, n) <= 0.05 for _ in range(draws)])
    intervals.STUDENTISED_RESAMPLES = resamples
    return percent(float(exact)), percent(float(flips)), percent(float(linear))


def linearised(rng: np.random.Generator, n: int) -> float:
    """p of the perplexities of two language models that are alike."""
    tokens = rng.geometric(1 / 200, n) + 20
    ids = [f"{place:06d}" for place in range(n)]
    sides = [
        {"id": ids, "nll": (tokens * rng.gamma(16, 0.25, n)).tolist(), "tokens": tokens.tolist()}
        for _ in "ab"
    ]
    values = [math.exp(math.fsum(side["nll"]) / int(tokens.sum())) for side in sides]
    paired = TABLES["perplexity"].paired(Pair("perplexity", sides[0], sides[1]))
    found = paired.difference("perplexity", (values[0], values[1])) if paired else None
    assert found is not None
    assert found.test is not None
    return found.test.p_value


def tests() -> Iterator[Cell]:
    """Paired tests of models that are alike."""
    for n in SIZES:
        for label, p in shares(n):
            yield Cell((n, label), partial(false_alarms, n, p))


# Speed ------------------------------------------------------------------------------------------------------


def seconds_of(call: Callable[[], object]) -> str:
    """Wall time of one call."""
    begun = time.perf_counter()
    call()
    return f"{time.perf_counter() - begun:.2f}"


def merged(n: int, draws: int) -> Row:
    """Seconds of a merge, and of a comparison of two such jobs, of 15 corruptions at 5 severities."""
    del draws
    rng = np.random.default_rng(n)
    flags = ["".join(row) for row in rng.choice(["0", "1"], (n, 75), p=[0.4, 0.6])]
    cells = [(f"corruption {place}", level) for place in range(15) for level in range(1, 6)]
    baseline = {f"corruption {place}": 0.8 for place in range(15)}
    rows = {"id": [f"{place:06d}" for place in range(n)], "corrupted": flags}
    other = {**rows, "corrupted": flags[::-1]}
    mean = math.fsum(one.count("1") for one in flags) / (75 * n)
    paired = TABLES["stored_corruptions"].paired(Pair("corruptions", rows, other))
    assert paired is not None
    return (
        seconds_of(lambda: corruption_metrics(flags, cells, baseline)),
        seconds_of(lambda: paired.difference("corrupted_top1", (mean, mean))),
    )


def merged_pixels(n: int, draws: int) -> Row:
    """The same of a segmentation of 150 classes, eight of them in an image."""
    del draws
    cells = [(f"corruption {place}", level) for place in range(15) for level in range(1, 6)]
    chosen = [random.Random(place).sample(range(150), 8) for place in range(n)]
    target = [[1000 * (c in classes) for c in range(150)] for classes in chosen]
    sides: list[dict[str, Any]] = []
    for seed in "ab":
        chance = random.Random(seed)
        texts = [write([[(c, chance.randrange(1000), 1000) for c in one]] * 75) for one in chosen]
        sides.append({"id": [f"{place:06d}" for place in range(n)], "target": target, COLUMN: texts})
    metrics = [corrupted_segmentation_metrics(side, cells)[0]["corrupted_miou"].value for side in sides]
    paired = TABLES["corrupted_segmentation"].paired(Pair("corruptions", sides[0], sides[1]))
    assert paired is not None
    return (
        seconds_of(lambda: corrupted_segmentation_metrics(sides[0], cells)),
        seconds_of(lambda: paired.difference("corrupted_miou", (metrics[0], metrics[1]))),
    )


def speed() -> Iterator[Cell]:
    """The largest merges: ImageNet-C, and the fifteen corruptions of ADE20K."""
    for n in (5_000, 50_000):
        yield Cell(("classification", n), partial(merged, n))
    yield Cell(("segmentation", 2_000), partial(merged_pixels, 2_000))


SECTIONS: dict[str, tuple[Callable[[], Iterator[Cell]], str]] = {
    "proportion": (proportions, "n, p, Wilson, Wilson exact, mid-P exact"),
    "mean_of_shares": (means_of_shares, "n, p, effective Wilson, studentised or t, without one"),
    "paired_proportion": (paired_proportions, "n, p, difference, Tango, Tango exact, Newcombe 10"),
    "paired_shares": (paired_shares, "n, p, difference, effective Tango, studentised or t, without one"),
    "mean": (unbounded_means, "values, n, mean, Student's t, percentiles, median"),
    "together": (metrics_together, "metric, samples, n, method, coverage, on other draws, without one"),
    "paired_together": (paired_together, "metric, n, coverage of 0, without one, p at most 0.05"),
    "paired_medians": (paired_medians, "n, broken, correlation, coverage of 0, without one, p at most 0.05"),
    "rare": (
        rare_differences,
        "metric, n, rare %, coverage, width, 95 % of widths, without, p at most 0.05",
    ),
    "rare_means": (rare_means, "sides, n, rare %, coverage, width, 95 % of widths"),
    "tests": (tests, "n, p, McNemar, sign flip, linearised"),
    "speed": (speed, "task, n, seconds to merge, seconds to compare"),
}


def measured(section: str, place: int, draws: int) -> Row:
    """One row; a process of the pool finds it again by its place."""
    cell = list(SECTIONS[section][0]())[place]
    return (*cell.labels, *cell.measure(draws))


def say(line: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Prints the tables in Markdown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=[*SECTIONS], default=[*SECTIONS])
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool:
        for name in options.only:
            cells, header = SECTIONS[name]
            titles = header.split(", ")
            say(f"\n{name}\n\n| {' | '.join(titles)} |\n|{' --- |' * len(titles)}")
            work = [pool.submit(measured, name, place, options.draws) for place in range(len(list(cells())))]
            for one in work:
                say(f"| {' | '.join(map(str, one.result()))} |")


if __name__ == "__main__":
    main()
