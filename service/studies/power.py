"""Power of a study: the difference that its seeds and examples can find, as numbers and in words."""

from __future__ import annotations

import math

from assay.service.contract.results import Unit
from assay.service.studies.result_wire import StudyPower
from assay.service.studies.significance import Components, resolved

FIRST_SEEDS = 3  # What a study with a single seed is told about
FEW_SEEDS = 6  # Below so many, the spread over seeds is itself uncertain by a third and more.


def power_of(
    components: Components, seeds: int, n: int | None, *, least_error: float | None = None
) -> StudyPower:
    """The power of a comparison, before its level is known: see `at_level`."""
    sds = [math.sqrt(part) for part in components[1:]]
    return StudyPower(
        seeds=seeds,
        n=n,
        level=0.0,
        resolves=None,
        with_twice=None,
        sd_seeds=sds[0],
        sd_examples=None if n is None else sds[1],
        sd_rest=None if n is None else sds[2],
        least_error=least_error,
        assumed=seeds == 1,
        text="",
    )


def at_level(power: StudyPower, level: float, unit: Unit | None, *, anytime: bool = False) -> StudyPower:
    """The power at the level of the study's tests, as numbers and in words, `anytime`: at this look."""
    n = power.n or 2
    sds = (power.sd_seeds or 0.0, power.sd_examples or 0.0, power.sd_rest or 0.0)
    components = Components(0.0, *(sd * sd for sd in sds))
    least = power.least_error or 0.0

    def found_by(seeds: int) -> float:
        return resolved(components, seeds, n, level, least_error=least, anytime=anytime)

    now = found_by(power.seeds) if power.seeds > 1 else None
    more = 2 * power.seeds if power.seeds > 1 else FIRST_SEEDS
    then = found_by(more)
    return power.model_copy(
        update={
            "level": level,
            "resolves": None if now == math.inf else now,
            "with_twice": None if then == math.inf else then,
            "text": _power_text(power, level, (now, then, more), unit),
        }
    )


def _power_text(
    power: StudyPower, level: float, found: tuple[float | None, float, int], unit: Unit | None
) -> str:
    now, then, more = found
    examples = "" if power.n is None else f" and {power.n} examples"
    at = f"80 % power at the level {level:.2g}"
    if now is None and then == math.inf:
        return "one seed says nothing of the spread over seeds"
    if now is None:
        return (
            "one seed says nothing of the spread over seeds; if that were as large as the sampling error of"
            f" these{examples.removeprefix(' and')}, {more} seeds would find a difference of"
            f" {amount(then, unit)} with {at}"
        )
    if now == math.inf:
        text = f"{power.seeds} seeds find no difference of any size at the level {level:.2g}"
    else:
        text = f"{power.seeds} seeds{examples} find a difference of {amount(now, unit)} with {at}"
    if then < math.inf:
        text += f", {more} seeds one of {amount(then, unit)}"
    if power.seeds < FEW_SEEDS:
        text += f"; the spread is estimated from {power.seeds} differences, and is itself uncertain"
    return text


def amount(value: float, unit: Unit | None) -> str:
    """A difference as people read it; of shares in points."""
    if unit == "proportion" and value > 1:
        return "more than 100 points (that is: none)"
    if unit not in ("proportion", "ratio"):
        return f"{value:.3g}"
    return "less than 0.05 points" if 0 < value < 0.0005 else f"{100 * value:.1f} points"
