"""Differences between the arms of a study: tests, intervals and power, with seeds and examples both random.

The difference d_si of two arms with seed s on example i (a per-example value of the metric, `examples`)
is taken apart as in a two-way layout without replicates, seeds x examples:

    d_si = D + seed_s + example_i + rest_si        MS_S, MS_E, MS_R: mean squares, S seeds, n examples
    Var(D) = V_S + V_E,  V_S = max(MS_S, MS_R) / (S n),  V_E = max(0, MS_E - MS_R) / (S n)

A claim about methods must hold for other seeds and other examples, so both are random (Clark 1973, "The
Language-as-Fixed-Effect Fallacy"). D / sqrt(V_S + V_E) is compared with Student's t. The critical value is
the mean of the critical values for S - 1 and n - 1 degrees of freedom, weighted by V_S and V_E (Cochran and
Cox 1957, "Experimental Designs", section 4.14). Simulated in `benchmarks/studies.py`: with 2 to 10 seeds
this keeps its size, where a paired t-test over seeds alone rejects too often when arms differ by example,
and an exact sign-flip test cannot get below p = 2 / 2^S, which no adjustment for many tests survives with 6
seeds. Metrics without values of examples have the paired t-test over seeds: they hold for these examples.

An `anytime` spread holds at every number of seeds at once: the critical value for the seeds is of
`anytime_t`, at p, and for the examples, which are the same at every look, t at OF_EXAMPLES p. With t at p a
study that is looked at after every seed rejects in up to 7 %, since the seeds and then the examples can each
err; at 0.4 p the greatest share in `benchmarks/sequential.py` is below 5 % (2 to 100 seeds).

Intervals come from a hierarchical bootstrap: seeds and examples are drawn with replacement, arms together
(Owen 2007, "The Pigeonhole Bootstrap"), from the linearised metric. With few seeds its percentiles are far
too near to D, so they are expanded around D to the width of the t interval (Hesterberg 2015, "What Teachers
Should Know about the Bootstrap", section 5.1).
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from statistics import variance
from typing import NamedTuple

from assay.service.metrics.statistics import anytime_t
from assay.service.metrics.statistics.distributions import normal_tail
from assay.service.metrics.statistics.estimates import Interval, percentiles
from assay.service.metrics.statistics.student_t import MIN_P, quantile, root, two_sided_p

RESAMPLES = 1000
BLOCKS = 64  # Examples are drawn in so many blocks of about equal size, chosen by chance.
POWER = 0.8
# Of the distribution of an estimated error: half its width in sd, steps at 1 degree of freedom, and least.
REACH, MOST_PARTS, PARTS = 4.5, 600, 60
OF_EXAMPLES = 0.4  # Part of p at which an anytime spread takes the critical value of examples
Z_SQUARE = 3.841458820694124  # Squared 97.5 % quantile of the normal distribution.

Pick = Callable[[Sequence[float]], tuple[float, ...]]
Differences = Sequence[Sequence[float]]
"""d_si: a row for each seed, (S, n)."""


class Components(NamedTuple):
    """Variances of the differences of two arms: over seeds, over examples, and of the rest."""

    mean: float
    seeds: float
    examples: float
    rest: float


class Spread(NamedTuple):
    """Var(D) in its two parts, each with the degrees of freedom of its t distribution."""

    of_seeds: float
    of_examples: float
    df_seeds: float
    df_examples: float
    anytime: bool = False

    @property
    def error(self) -> float:
        """Standard error of D."""
        return math.sqrt(self.of_seeds + self.of_examples)

    def critical(self, p: float) -> float:
        """The t that has this two-sided p; infinite where an anytime spread has too few seeds for it."""
        whole = self.of_seeds + self.of_examples
        share = self.of_seeds / whole if whole else 1.0
        at_seeds = share * self._critical_of_seeds(p) if share else 0.0
        at_examples = max(MIN_P, OF_EXAMPLES * p) if self.anytime else p
        return at_seeds + ((1 - share) * quantile(at_examples, self.df_examples) if share < 1 else 0.0)

    def p_value(self, t: float) -> float:
        """The two-sided p of a t; at least 1e-12."""
        if self.of_examples == 0:
            p = anytime_t.p_value(t, self.df_seeds + 1) if self.anytime else two_sided_p(t, self.df_seeds)
            return max(MIN_P, p)
        if self.critical(MIN_P) <= t:
            return MIN_P
        if self.critical(1.0) >= t:  # above 0 in an anytime spread
            return 1.0
        # Reciprocals, as few seeds have infinite critical values.
        wanted = 1 / (1 + t)
        return math.exp(
            -root(lambda u: 1 / (1 + self.critical(math.exp(-u))) - wanted, 0.0, -math.log(MIN_P))
        )

    def _critical_of_seeds(self, p: float) -> float:
        return anytime_t.critical(p, self.df_seeds + 1) if self.anytime else quantile(p, self.df_seeds)


def two_way(differences: Differences) -> tuple[Components, Spread]:
    """The components of variance, and the variance of the mean difference; S and n are at least 2."""
    s, n = len(differences), len(differences[0])
    rows = [math.fsum(row) / n for row in differences]
    columns = [math.fsum(column) / s for column in zip(*differences, strict=True)]
    mean = math.fsum(rows) / s
    of_seeds = n * math.fsum((row - mean) ** 2 for row in rows)
    of_examples = s * math.fsum((column - mean) ** 2 for column in columns)
    rest = math.fsum(
        (value - row - column + mean) ** 2
        for values, row in zip(differences, rows, strict=True)
        for value, column in zip(values, columns, strict=True)
    )
    ms_seeds, ms_examples = of_seeds / (s - 1), of_examples / (n - 1)
    ms_rest = rest / ((s - 1) * (n - 1))
    spread = Spread(
        max(ms_seeds, ms_rest) / (s * n), max(0.0, ms_examples - ms_rest) / (s * n), s - 1.0, n - 1.0
    )
    components = Components(
        mean, max(0.0, ms_seeds - ms_rest) / n, max(0.0, ms_examples - ms_rest) / s, ms_rest
    )
    return components, spread


def over_seeds(differences: Sequence[float]) -> tuple[float, Spread]:
    """Mean and spread of the differences of at least 2 seeds, one for each seed."""
    s = len(differences)
    return math.fsum(differences) / s, Spread(variance(differences) / s, 0.0, s - 1.0, 1.0)


def over_examples(differences: Sequence[float]) -> tuple[float, Spread]:
    """Mean and spread of the differences of at least 2 examples, with one seed."""
    n = len(differences)
    return math.fsum(differences) / n, Spread(0.0, variance(differences) / n, 1.0, n - 1.0)


def least(spread: Spread, n: int) -> Spread:
    """The spread of shares of n examples, never below the spread of n pairs without any disagreement.

    Tango 1998, "Equivalence test and confidence interval for the difference in proportions for the
    paired-sample design": without disagreement the 95 % score interval is +- z^2 / (n + z^2).
    """
    floor = least_error_of_shares(n) ** 2
    whole = spread.of_seeds + spread.of_examples
    if whole >= floor:
        return spread
    return spread._replace(of_examples=spread.of_examples + floor - whole)


def least_error_of_shares(n: int) -> float:
    """The least standard error that a test of shares of n examples takes: see `least`."""
    return math.sqrt(Z_SQUARE) / (n + Z_SQUARE)


def interval(differences: Differences, mean: float, spread: Spread) -> Interval:
    """The 95 % interval: percentiles of the bootstrap, expanded to the width of the t interval."""
    half = spread.critical(0.05) * spread.error
    low, high = percentiles(_resampled(differences)) if half else (mean, mean)
    below, above = mean - low, high - mean
    if below <= 0 or above <= 0:
        return mean - half, mean + half
    factor = 2 * half / (below + above)
    return mean - factor * below, mean + factor * above


def _resampled(differences: Differences) -> list[float]:
    """The mean difference of each resample of seeds and blocks of examples."""
    s, n = len(differences), len(differences[0])
    sizes = [len(range(block, n, BLOCKS)) for block in range(min(n, BLOCKS))]
    order = list(range(n))
    random.Random(f"assay/study/blocks/{n}").shuffle(order)
    sums = [
        [math.fsum(row[example] for example in order[block::BLOCKS]) for block in range(len(sizes))]
        for row in differences
    ]
    sampled = []
    for counts, pick in _draws(s, len(sizes)):
        whole = sum(count * sum(pick(sums[seed])) for seed, count in counts)
        sampled.append(whole / (s * sum(pick(sizes))))
    return sampled


@lru_cache(maxsize=8)
def _draws(s: int, blocks: int) -> list[tuple[list[tuple[int, int]], Pick]]:
    """How often each seed is drawn, and the blocks, of every resample: the same for all cells of a study."""
    rng = random.Random(f"assay/study/draws/{s}/{blocks}")
    return [
        (
            sorted(Counter(rng.choices(range(s), k=s)).items()),
            itemgetter(*rng.choices(range(blocks), k=blocks)),
        )
        for _ in range(RESAMPLES)
    ]


def resolved(
    components: Components,
    seeds: int,
    n: int,
    level: float,
    *,
    least_error: float = 0.0,
    anytime: bool = False,
) -> float:
    """The difference that is found with 80 % power by so many seeds and examples, tested at a level.

    The components are the true ones; the test estimates V_S with S - 1 degrees of freedom, and V_E, of
    many examples, exactly. Over seeds alone this is the noncentral t. D spreads by `least_error` at least, as
    no spread that is seen below it is sure. Infinite where an anytime test of so many seeds does not reach
    the level.
    """
    spread = Spread(
        components.seeds / seeds + components.rest / (seeds * n), components.examples / n,
        seeds - 1.0, n - 1.0, anytime,
    )  # fmt: skip
    needed = _needed(spread, max(level, MIN_P), least_error * least_error)
    largest = max(size for _, size in needed)
    error = max(spread.error, least_error)
    if largest == math.inf or not error:
        return largest

    def missed(difference: float) -> float:
        return POWER - math.fsum(weight * normal_tail((size - difference) / error) for weight, size in needed)

    return root(missed, 0.0, largest + 2 * error)


def _needed(spread: Spread, level: float, floor: float) -> list[tuple[float, float]]:
    """Differences that are significant at a level, by the estimate of V_S, each with its probability."""
    df = spread.df_seeds
    ends = max(0.0, 1 - REACH / math.sqrt(df)), 1 + REACH / math.sqrt(df)
    found, parts = [], max(PARTS, round(MOST_PARTS / df))
    for step in range(parts):
        ratio = ends[0] + (ends[1] - ends[0]) * (step + 0.5) / parts  # of the estimated error to the true one
        density = math.exp((df - 1) * math.log(ratio) - df * (ratio * ratio - 1) / 2)
        seen = spread._replace(of_seeds=spread.of_seeds * ratio * ratio)
        missing = max(0.0, floor - seen.of_seeds - seen.of_examples)
        seen = seen._replace(of_examples=seen.of_examples + missing)
        found.append((density, seen.critical(level) * seen.error))
    whole = math.fsum(weight for weight, _ in found)
    return [(weight / whole, size) for weight, size in found]
