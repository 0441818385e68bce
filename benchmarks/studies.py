"""Size and power of the tests of a study, coverage of its intervals, and a study of a model against itself.

    python -m benchmarks.studies [--draws 500] [--intervals 200] [--repetitions 100]

Outcome tables are simulated (`tests/support/studies.py`): two arms, S seeds, n examples. The test that a
study uses (two-way t) is beside a paired t-test over seeds and an exact sign-flip test over seeds, on the
same draws. "Against itself" runs the whole of `study_results`, with Holm's adjustment over seven cells.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Callable, Sequence

from assay.service.studies.results import StudyPlan, study_results
from assay.service.studies.significance import interval, least, over_seeds, two_way
from tests.support.studies import Method, answers, study_arms

N = 355
SEEDS = (2, 3, 6, 10)
# Of clean images and under attacks of rising strength; one SymViT under PGD 8/255 had 2.5 to 10.1 %.
ACCURACIES = (0.97, 0.9, 0.7, 0.45, 0.2, 0.06, 0.02)
SCENES: dict[str, tuple[Method, Method]] = {
    "same method, 6 %": (Method(0.06), Method(0.06)),
    "same method, no spread over seeds, 6 %": (Method(0.06, 0.0), Method(0.06, 0.0)),
    "same accuracy, other examples, 50 %": (Method(0.5, 0.1, 0.7), Method(0.5, 0.1, 0.7)),
    "same accuracy, other examples, seeds vary, 50 %": (Method(0.5, 0.3, 0.7), Method(0.5, 0.3, 0.7)),
    "10 points better, 50 %": (Method(0.45, 0.1), Method(0.55, 0.1)),
    "10 points better, seeds vary, 50 %": (Method(0.45), Method(0.55)),
}
LEVELS = (0.05, 0.01)


def sign_flip(differences: Sequence[float]) -> float:
    """Exact two-sided p over all signs of the seeds' differences."""
    found = abs(math.fsum(differences))
    flips = itertools.product((-1, 1), repeat=len(differences))
    sums = [abs(math.fsum(map(float.__mul__, differences, map(float, signs)))) for signs in flips]
    return sum(one >= found - 1e-12 for one in sums) / len(sums)


def draw(methods: Sequence[Method], seeds: int, key: str) -> tuple[list[bool], Callable[[], bool]]:
    """One simulated study: what each test rejects at each level, and whether the interval holds the truth."""
    first, second = answers(methods, seeds, N, key)
    table = [
        [float(b - a) for a, b in zip(one, other, strict=True)]
        for one, other in zip(first, second, strict=True)
    ]
    components, spread = two_way(table)
    spread = least(spread, N)
    of_seeds = [math.fsum(row) / N for row in table]
    mean, alone = over_seeds(of_seeds)
    flip = sign_flip(of_seeds)
    rejected = [abs(components.mean) > spread.critical(level) * spread.error for level in LEVELS]
    rejected += [abs(mean) > alone.critical(level) * alone.error for level in LEVELS]
    rejected += [flip < level for level in LEVELS]

    def covered() -> bool:
        low, high = interval(table, components.mean, spread)
        return low <= methods[1].accuracy - methods[0].accuracy <= high

    return rejected, covered


def itself(repetitions: int, seeds: int = 6) -> tuple[int, int, int]:
    """Repetitions without an adjusted p under 5 %, those without a raw one, and all tests with a raw one."""
    cells = [(Method(accuracy), Method(accuracy)) for accuracy in ACCURACIES]
    plan = StudyPlan("0" * 26, "one", "holm", list(range(seeds)))
    kept, kept_raw, raw = 0, 0, 0
    for number in range(repetitions):
        found = study_results(plan, study_arms(cells, seeds, N, f"itself/{number}"))
        tests = [one.test for cell in found.cells for one in cell.comparisons if one.test is not None]
        kept += not any(test.adjusted_p_value < 0.05 for test in tests)
        kept_raw += not any(test.p_value < 0.05 for test in tests)
        raw += sum(test.p_value < 0.05 for test in tests)
    return kept, kept_raw, raw


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--draws", type=int, default=500, help="simulated studies of each scene")
    parser.add_argument("--repetitions", type=int, default=100, help="of the study of a model against itself")
    parser.add_argument("--intervals", type=int, default=200, help="draws whose interval is looked at")
    options = parser.parse_args()
    begun = time.process_time()
    kept, kept_raw, raw = itself(options.repetitions)
    sys.stdout.write(
        f"itself, 6 seeds, {len(ACCURACIES)} cells: no adjusted p < 0.05 in {kept} of {options.repetitions};"
        f" no raw p < 0.05 in {kept_raw} ({raw} of {options.repetitions * len(ACCURACIES)} tests)\n\n"
    )
    names = ("two-way t", "paired t", "sign flip")
    heads = [f"{name}, {level:.0%}" for name in names for level in LEVELS]
    lines = [["scene", "seeds", *heads, "coverage"], ["---"] * (3 + len(heads))]
    for scene, methods in SCENES.items():
        for seeds in SEEDS:
            drawn = [draw(methods, seeds, f"{scene}/{seeds}/{number}") for number in range(options.draws)]
            shares = [
                sum(row) / options.draws for row in zip(*(rejected for rejected, _ in drawn), strict=True)
            ]
            some = drawn[: options.intervals]
            inside = sum(covered() for _, covered in some) / len(some)
            lines.append(
                [scene, str(seeds), *(f"{100 * share:.1f}" for share in shares), f"{100 * inside:.1f}"]
            )
            sys.stderr.write(".")
            sys.stderr.flush()
    sys.stderr.write("\n")
    sys.stdout.write("\n".join(f"| {' | '.join(line)} |" for line in lines))
    seconds = time.process_time() - begun
    sizes = f"{options.draws} draws, {options.intervals} intervals, n = {N}"
    sys.stdout.write(f"\n\n{sizes}, {seconds:.0f} s of processor time\n")


if __name__ == "__main__":
    main()
