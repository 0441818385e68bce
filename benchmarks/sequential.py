"""Level, power, number of seeds and coverage of studies that are looked at after every seed.

    nice python -m benchmarks.sequential [--draws 10000] > docs/measurements/sequential.csv

Three parts. `layout`: seeds x examples without a difference, by the rule of `studies.significance`; looks
after 2 to 30 seeds, and to 100 in the model with many examples. `seeds`: one difference for each seed, beside
the t-test for a fixed number, the normal mixture of Howard et al. 2021 ("Time-uniform, nonparametric,
nonasymptotic confidence sequences", equation 14) with the known and the estimated sd, and the hedged betting
capital of Waudby-Smith and Ramdas 2024 ("Estimating means of bounded random variables by betting", section
4.4, c = 1/2) on differences in [-1, 1]. `claims`: not_worse and equivalent, beside the same tests (TOST) at a
fixed number of seeds.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from assay.service.metrics.statistics.anytime_t import G, critical
from assay.service.studies.significance import OF_EXAMPLES, least_error_of_shares

LOOKS = 30
LEVEL = 0.05
Array = NDArray[Any]
Draw = Callable[[np.random.Generator, int, int, int], Array]
"""Differences of two arms, (draws, seeds, examples), with mean 0."""


def crossed(values: Array, ends: Array) -> float:
    """Percent of the draws, (draws, looks), above their ends at a look."""
    return 100 * float((values > ends).any(1).mean())


def criticals(p: float, looks: int) -> tuple[Array, Array]:
    """Critical values after 2 to `looks` seeds: anytime-valid, and of t for a fixed number."""
    counts = np.arange(2, looks + 1)
    return np.array([critical(p, int(n)) for n in counts]), stats.t.isf(p / 2, counts - 1)


def two_way(table: Array, *, shares: bool) -> tuple[Array, Array, Array]:
    """D, V_S and V_E after 2 to S seeds, each (draws, S - 1), as in `studies.significance`."""
    _, s, n = table.shape
    counts = np.arange(1, s + 1)
    rows = table.mean(2)
    mean = rows.cumsum(1) / counts
    whole = (table**2).sum(2).cumsum(1) - counts * n * mean**2
    of_seeds = n * ((rows**2).cumsum(1) - counts * mean**2)
    of_examples = (table.cumsum(1) ** 2).sum(2) / counts - counts * n * mean**2
    rest = np.maximum(whole - of_seeds - of_examples, 0)[:, 1:]
    counts, mean = counts[1:], mean[:, 1:]
    ms_rest = rest / ((counts - 1) * (n - 1))
    v_seeds = np.maximum(of_seeds[:, 1:] / (counts - 1), ms_rest) / (counts * n)
    v_examples = np.maximum(0, of_examples[:, 1:] / (n - 1) - ms_rest) / (counts * n)
    if shares:
        v_examples += np.maximum(0, least_error_of_shares(n) ** 2 - v_seeds - v_examples)
    return mean, v_seeds, v_examples


def half_widths(v_seeds: Array, v_examples: Array, at_seeds: Array, at_examples: float) -> Array:
    """Half the interval by Cochran and Cox: infinite where the seeds have no critical value."""
    with np.errstate(invalid="ignore", divide="ignore"):
        seeds = np.where(v_seeds > 0, v_seeds * at_seeds, 0.0)
        half: Array = (seeds + v_examples * at_examples) / np.sqrt(v_seeds + v_examples)
    return half


def numbers(seed_sd: float, example_sd: float, rest_sd: float, df: float = math.inf) -> Draw:
    """Normal parts, or Student's t with these degrees of freedom."""

    def draw(rng: np.random.Generator, draws: int, s: int, n: int) -> Array:
        def noise(*shape: int) -> Array:
            return rng.standard_normal(shape) if math.isinf(df) else rng.standard_t(df, shape)

        parts = seed_sd * noise(draws, s, 1) + example_sd * noise(draws, 1, n)
        table: Array = parts + rest_sd * noise(draws, s, n)
        return table

    return draw


def answers(accuracy: float, seed_sd: float, own: float, shared: float = 0.6) -> Draw:
    """Differences of right and wrong answers: thresholds on normal parts, as in `tests/support/studies`."""
    centre = stats.norm.ppf(accuracy) * math.sqrt(1 + seed_sd**2 + own**2)

    def draw(rng: np.random.Generator, draws: int, s: int, n: int) -> Array:
        example = math.sqrt(shared) * rng.standard_normal((draws, 1, n)) + centre
        arms = [
            example
            + own * rng.standard_normal((draws, 1, n))
            + seed_sd * rng.standard_normal((draws, s, 1))
            + math.sqrt(1 - shared) * rng.standard_normal((draws, s, n))
            > 0
            for _ in range(2)
        ]
        table: Array = arms[1].astype(float) - arms[0]
        return table

    return draw


def scenes() -> Iterator[tuple[str, Draw, int, bool]]:
    """Name, draws, number of examples, and whether differences are of shares."""
    for n in (10, 50, 300):
        root = math.sqrt(n)
        for name, sds in {
            "seeds alone": (1, 0, 1e-4),
            "rest alone": (0, 0, 1),
            "examples alone": (0, 1, 0.01),
            "no spread over seeds": (0, 1, 1),
            "small spread over seeds": (0.3 / root, 1, 0.5),
            "seeds as examples": (1 / root, 1, 0.1),
            "seeds 2 x examples": (2 / root, 1, 0.5),
            "seeds 4 x examples": (4 / root, 1, 0.5),
        }.items():
            yield f"normal, {name}", numbers(*sds), n, False
        yield "t(3), seeds 2 x examples", numbers(2 / root, 1, 0.5, 3), n, False
    for n in (30, 300):
        for accuracy in (0.02, 0.5, 0.97):
            for seed_sd, own in ((0, 0), (0.3, 0), (0, 0.7), (0.1, 0.7), (0.3, 0.7)):
                name = f"shares of {accuracy}, sd of seeds {seed_sd}, of own examples {own}"
                yield name, answers(accuracy, seed_sd, own), n, True


def layout(draws: int) -> Iterator[list[object]]:
    """Rejections at any look, in percent of the draws without a difference."""
    anytime, fixed = criticals(LEVEL, LOOKS)
    for name, draw, n, shares in scenes():
        rng = np.random.default_rng([41, n, *name.encode()])
        of_examples, of_examples_fixed = stats.t.isf([OF_EXAMPLES * LEVEL / 2, LEVEL / 2], n - 1)
        size = max(10, min(draws, 1_500_000 // (LOOKS * n)))
        found = []
        for start in range(0, draws, size):
            table = draw(rng, min(size, draws - start), LOOKS, n)
            mean, v_seeds, v_examples = two_way(table, shares=shares)
            ours = half_widths(v_seeds, v_examples, anytime, of_examples)
            theirs = half_widths(v_seeds, v_examples, fixed, of_examples_fixed)
            naive = half_widths(v_seeds, v_examples, anytime, of_examples_fixed)
            found.append([(abs(mean) > ends).any(1) for ends in (ours, theirs, naive)])
        shares_of = 100 * np.concatenate(found, axis=1).mean(1)
        for method, share in zip(("anytime-valid t", "fixed-n t", "t(n - 1) at p"), shares_of, strict=True):
            yield ["layout", f"{name}, {n} examples", LOOKS, method, "level", round(float(share), 2)]


def known_examples(draws: int) -> Iterator[list[object]]:
    """The same with many examples, where V_E is known, to 100 seeds; by the ratio of both variances."""
    looks = 100
    counts = np.arange(2, looks + 1)
    of_seeds, _ = criticals(LEVEL, looks)
    of_examples = float(stats.norm.isf(OF_EXAMPLES * LEVEL / 2))
    for ratio in (0.25, 1, 4, 8, 16, 32, 64, 256, 1e9):
        rng = np.random.default_rng([41, int(4 * ratio)])
        mean, variance = moments(rng.standard_normal((draws, looks)))
        error = mean + rng.standard_normal((draws, 1)) / math.sqrt(ratio)
        ends = half_widths(variance / counts, np.full(1, 1 / ratio), of_seeds, of_examples)
        for end, share in (("two ends", crossed(abs(error), ends)), ("one end", crossed(error, ends))):
            scene = f"many examples, one seed varies {ratio:g} x as much as they, {end}"
            yield ["layout", scene, looks, "anytime-valid t", "level", round(share, 2)]


def moments(values: Array) -> tuple[Array, Array]:
    """Mean and unbiased variance after 2 to S values, each (draws, S - 1)."""
    counts = np.arange(1, values.shape[1] + 1)
    mean = values.cumsum(1) / counts
    squares = (values**2).cumsum(1) - counts * mean**2
    return mean[:, 1:], squares[:, 1:] / (counts[1:] - 1)


def mixture(looks: int) -> Array:
    """Half the normal mixture's interval for a known sd of 1, with the prior of `anytime_t`."""
    counts = np.arange(2, looks + 1)
    half: Array = np.sqrt((counts + 1 / G) * np.log((counts + 1 / G) * G / LEVEL**2)) / counts
    return half


def betting(values: Array) -> Array:
    """Whether the hedged capital against mean 0 has reached 1 / level, (draws, looks); values in [-1, 1]."""
    x = (values + 1) / 2
    draws, looks = x.shape
    squares, total = np.full(draws, 0.25), np.full(draws, 0.5)
    up, down = np.ones(draws), np.ones(draws)
    reached: list[Array] = []
    for place in range(looks):
        t = place + 1
        stake = np.sqrt(2 * math.log(2 / LEVEL) / (squares * math.log(1 + t)))
        stake = np.minimum(stake, 1.0)  # c / m
        up, down = up * (1 + stake * (x[:, place] - 0.5)), down * (1 - stake * (x[:, place] - 0.5))
        total = total + x[:, place]
        squares = squares + (x[:, place] - total / (t + 1)) ** 2
        reached.append(np.maximum(up, down) / 2 >= 1 / LEVEL)
    by_look: Array = np.stack(reached, 1)
    return by_look[:, 1:]


def first(reached: Array) -> Array:
    """The seeds at the first look that has ended it, or at the last look."""
    seeds: Array = np.where(reached.any(1), reached.argmax(1) + 2, reached.shape[1] + 1)
    return seeds


def seeds_alone(draws: int) -> Iterator[list[object]]:
    """A difference for each seed with sd 1; power and seeds for effects, coverage at a stated width."""
    anytime, fixed = criticals(LEVEL, LOOKS)
    roots = np.sqrt(np.arange(2, LOOKS + 1))
    for effect in (0.0, 0.5, 1.0, 1.5, 3.0):
        values = np.random.default_rng([41, int(10 * effect)]).standard_normal((draws, LOOKS)) + effect
        mean, variance = moments(values)
        sd = np.sqrt(variance)
        halves = {
            "anytime-valid t": anytime * sd / roots,
            "fixed-n t": fixed * sd / roots,
            "normal mixture, known sd": np.broadcast_to(mixture(LOOKS), mean.shape),
            "normal mixture, estimated sd": mixture(LOOKS) * sd,
        }
        decided = {name: abs(mean) > half for name, half in halves.items()}
        decided["betting, sd 0.05"] = betting(np.clip(0.05 * values, -1, 1))
        decided["betting, sd 0.3"] = betting(np.clip(0.3 * values, -1, 1))
        for name, reached in decided.items():
            scene, share = f"difference of {effect:g} sd", 100 * float(reached.any(1).mean())
            yield ["seeds", scene, LOOKS, name, "power" if effect else "level", round(share, 2)]
            if effect:
                yield ["seeds", scene, LOOKS, name, "mean seeds", round(float(first(reached).mean()), 2)]
        if effect:
            continue
        for width in (4.0, 2.0, 1.5):
            for name, half in halves.items():
                stopped = first(2 * half <= width)
                at = (np.arange(draws), stopped - 2)
                covered = 100 * float((abs(mean[at]) <= half[at]).mean())
                scene = f"until {width:g} sd wide"
                yield ["seeds", scene, LOOKS, name, "coverage", round(covered, 2)]
                yield ["seeds", scene, LOOKS, name, "mean seeds", round(float(stopped.mean()), 2)]


def claims(draws: int) -> Iterator[list[object]]:
    """not_worse and equivalent with a margin of 1.5 sd: level at the margin, power without a difference."""
    margin, counts = 1.5, np.arange(2, LOOKS + 1)
    roots = np.sqrt(counts)
    for claim, level, truths in (
        ("not_worse", 0.025, (-margin, 0.0)),
        ("equivalent", 0.05, (-margin, margin, 0.0)),
    ):
        anytime, fixed = criticals(2 * level, LOOKS)
        for truth in truths:
            rng = np.random.default_rng([41, int(10 * abs(truth)), int(truth > 0), len(claim)])
            mean, variance = moments(rng.standard_normal((draws, LOOKS)) + truth)
            error = np.sqrt(variance) / roots
            above, below = (mean + margin) / error, (margin - mean) / error
            t = above if claim == "not_worse" else np.minimum(above, below)
            methods = {"anytime-valid t": t > anytime, "fixed-n t at each look": t > fixed}
            for n in (6, 12):
                methods[f"fixed-n t, {n} seeds"] = (t > fixed)[:, n - 2 : n - 1]
            for name, reached in methods.items():
                measure, share = "power" if truth == 0 else "level", 100 * float(reached.any(1).mean())
                scene = f"{claim}, margin {margin} sd, truth {truth:g} sd"
                yield ["claims", scene, LOOKS, name, measure, round(share, 2)]
                if truth == 0 and reached.shape[1] > 1:
                    seeds = round(float(first(reached).mean()), 2)
                    yield ["claims", scene, LOOKS, name, "mean seeds", seeds]


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--draws", type=int, default=10_000, help="simulated studies of each scene")
    draws = parser.parse_args().draws
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["part", "scene", "looks_to", "method", "measure", "value"])
    for part in (seeds_alone, claims, known_examples, layout):
        for row in part(draws):
            writer.writerow(row)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
