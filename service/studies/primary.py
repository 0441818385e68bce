"""The primary question of a study: its check, its answer, and the seeds that are added until it is precise.

`difference` is the two-sided test of the comparison. `not_worse` and `equivalent` shift the same t by the
margin: one test at 2.5 %, as the 95 % interval's end (Piaggio et al. 2012, "Reporting of Noninferiority and
Equivalence Randomized Trials"), and two at 5 % (Schuirmann 1987, "A Comparison of the Two One-Sided Tests
Procedure"). With one question there is one test, which no adjustment touches.

With `until` the spread is anytime-valid, and so is each claim: a look at a true difference of the margin ends
with the claim in at most 2.5 or 5 % of the studies, as half of the looks that ever leave a symmetric interval
leave it at one end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count as count_up
from itertools import islice
from typing import Any

from assay.service.contract.fractions import canonical
from assay.service.contract.problems import Problems, nearest
from assay.service.contract.results import Unit
from assay.service.metrics.statistics.anytime_t import FIRST
from assay.service.metrics.statistics.student_t import MIN_P
from assay.service.studies.power import amount
from assay.service.studies.result_wire import StudyCell, StudyComparison, StudyPrimary
from assay.service.studies.runs import job_count
from assay.service.studies.significance import Spread
from assay.service.studies.wire import MAX_JOBS, Claim, ExtensionState, StudyLook

PERCENT: tuple[Unit | None, ...] = ("proportion", "ratio")
LEVELS: dict[Claim, float] = {"difference": 0.05, "not_worse": 0.025, "equivalent": 0.05}


@dataclass(frozen=True)
class Primary:
    """A checked primary question; `position` of the evaluation in the specs of the arms' jobs."""

    position: int
    metric: str | None  # None: the first of the evaluation
    arm: str
    claim: Claim = "difference"
    margin: float | None = None
    fixed_at: str | None = None


def check_primary(
    given: Mapping[str, Any] | None,
    evaluations: Sequence[Mapping[str, Any]],
    arms: Sequence[str],
    baseline: str,
    problems: Problems,
) -> Primary | None:
    """The primary question of a study with evaluations as of `evaluations_of`; reports what is wrong."""
    if given is None:
        return None
    before = len(problems)
    name, params = given["evaluation"], given["params"]
    named = [place for place, one in enumerate(evaluations) if one["name"] == name]
    alike = [place for place in named if _has(evaluations[place]["params"], params)]
    fit = [place for place in alike if _is_on(evaluations[place]["data"], given.get("data"))]
    if not named:
        known = list(dict.fromkeys(str(one["name"]) for one in evaluations))
        message = "the study has no evaluation of this name"
        problems.add(
            ("primary", "evaluation"), message, given=name, allowed=known, nearest=nearest(name, known)
        )
    elif len(fit) > 1 and len({json.dumps(evaluations[place], sort_keys=True) for place in fit}) == 1:
        message = f"the study has the evaluation {name!r} {len(fit)} times, alike in all"
        problems.add(("evaluations", fit[1]), message, given=name, allowed="each evaluation once")
    elif len(alike) > 1 and len({json.dumps(evaluations[place]["params"]) for place in alike}) == 1 != len(
        fit
    ):
        listed = [evaluations[place]["data"] for place in alike]
        many = f"{len(fit) or 'no'} evaluations of the name {name!r}"
        message = f"{many} are on this data set" if given.get("data") else f"{many} differ in their data set"
        problems.add(("primary", "data"), message, given=given.get("data"), allowed=listed)
    elif len(fit) != 1:
        each = [evaluations[place]["params"] for place in named]
        apart = [key for key in each[0] if any(one.get(key) != each[0][key] for one in each)]
        listed = [json.dumps({key: one.get(key) for key in apart or each[0]}) for one in each]
        message = f"{len(fit) or 'no'} evaluations of the name {name!r} have these parameters; name one"
        problems.add(("primary", "params"), message, given=params, allowed=listed)
    others = [arm for arm in arms if arm != baseline]
    arm = given["arm"] if given["arm"] is not None else others[0] if len(others) == 1 else None
    if arm not in others:
        message = "must be an arm that is compared with the baseline"
        problems.add(("primary", "arm"), message, given=given["arm"], allowed=others)
    if (given["margin"] is None) != (given["claim"] == "difference"):
        said = "has no margin" if given["claim"] == "difference" else "needs a margin"
        message = f"the claim {given['claim']!r} {said}"
        problems.add(("primary", "margin"), message, given=given["margin"])
    if len(problems) > before or arm is None:
        return None
    return Primary(fit[0], given["metric"], arm, given["claim"], given["margin"])


def check_metric(
    given: Mapping[str, Any],
    until: Mapping[str, Any] | None,
    units: Mapping[str, Unit],
    problems: Problems,
) -> None:
    """Reports a metric that is none of the evaluation's, and bounds of a share that no difference exceeds.

    `units`: of the evaluation's metrics, its first first; empty where they are not known.
    """
    metric = given["metric"]
    if metric is not None and units and metric not in units:
        message, known = "the evaluation has no such metric", sorted(units)
        near = nearest(metric, known)
        problems.add(("primary", "metric"), message, given=metric, allowed=known, nearest=near)
    if units.get(metric or next(iter(units), ""), "number") != "proportion":
        return
    for field, value in (("primary.margin", given["margin"]), ("until.width", (until or {}).get("width"))):
        if isinstance(value, int | float) and value >= 1:
            message = "is of a share, in which 0.02 are 2 points; no difference is as large"
            problems.add(tuple(field.split(".")), message, given=value, allowed="above 0 and below 1")


def check_until(
    until: Mapping[str, Any] | None,
    primary: Mapping[str, Any] | None,
    seeds: Sequence[int],
    arms: Mapping[str, bool],
    baseline: str,
    problems: Problems,
) -> None:
    """Reports what is wrong with the extension of a study; `arms`: whether each is trained."""
    if until is None:
        return
    if primary is None:
        message = "needs a primary question, with the interval that is to become narrow"
        problems.add(("primary",), message, allowed="a primary question, or no `until`")
        return
    if len(seeds) < 2:
        message = "a study that is extended begins with 2 seeds or more: one has no spread over seeds"
        problems.add(("seeds",), message, given=len(seeds), allowed="2 or more")
    if until["max_seeds"] <= len(seeds):
        message = f"must be above the {len(seeds)} seeds that the study begins with"
        problems.add(("until", "max_seeds"), message, given=until["max_seeds"])
    count = job_count([*arms.values()], until["max_seeds"])
    if count > MAX_JOBS:
        message = f"so many seeds are up to {count} jobs; at most {MAX_JOBS} are allowed"
        most = MAX_JOBS * until["max_seeds"] // count
        problems.add(("until", "max_seeds"), message, given=until["max_seeds"], allowed=f"at most {most}")
    still = [name for name in (primary["arm"], baseline) if arms.get(name) is False]
    if still:
        message = f"arm {still[0]!r} is not trained: more seeds do not tell more of its method"
        problems.add(("until",), message, allowed="a primary question of trained arms, or no `until`")


def look_at(
    until: Mapping[str, Any], seeds: Sequence[int], found: StudyComparison | None
) -> tuple[StudyLook, ExtensionState, str, list[int]]:
    """A look at the primary comparison: the extension's state after it, why it failed, and seeds to add."""
    low, high = (None, None) if found is None else (found.ci_low, found.ci_high)
    count = 0 if found is None else len(found.seeds)
    look = StudyLook(seeds=count, ci_low=low, ci_high=high)
    if low is not None and high is not None and high - low <= until["width"]:
        return look, "precise", "", []
    if low is None and len(seeds) >= FIRST:
        note = None if found is None else found.note
        return look, "failed", f"no interval: {note or 'the primary question was not measured'}", []
    room = until["max_seeds"] - len(seeds)
    if room <= 0:
        return look, "max_seeds", "", []
    unused = (seed for seed in count_up() if seed not in seeds)
    return look, "open", "", list(islice(unused, min(room, until["step"])))


def answer(primary: Primary, cell: StudyCell, found: StudyComparison, spread: Spread | None) -> StudyPrimary:
    """The answer of a measured comparison; `spread` is None where it has no test."""
    p = None
    if found.test is not None and found.difference is not None and spread is not None:
        p = _p_value(primary, cell, found, spread)
    level = LEVELS[primary.claim]
    holds = None if p is None else p < level
    return StudyPrimary(
        evaluation=cell.evaluation,
        params=cell.params,
        metric=cell.metric,
        arm=found.arm,
        baseline=found.baseline,
        claim=primary.claim,
        margin=primary.margin,
        level=level,
        p_value=p,
        holds=holds,
        fixed_at=primary.fixed_at,
        text=_text(primary, cell, found, spread, p),
    )


def _p_value(primary: Primary, cell: StudyCell, found: StudyComparison, spread: Spread) -> float:
    assert found.test is not None
    assert found.difference is not None
    if primary.margin is None:
        return found.test.p_value
    better = found.difference if cell.higher_is_better else -found.difference
    above = _one_sided((better + primary.margin) / spread.error, spread)
    if primary.claim == "not_worse":
        return above
    return max(above, _one_sided((primary.margin - better) / spread.error, spread))


def _one_sided(t: float, spread: Spread) -> float:
    half = spread.p_value(abs(t)) / 2
    return max(MIN_P, half if t > 0 else 1 - half)


def _text(
    primary: Primary, cell: StudyCell, found: StudyComparison, spread: Spread | None, p: float | None
) -> str:
    if found.difference is None or spread is None or p is None:
        return f"no answer yet: {found.note or 'the runs gave no test'}"
    size, unit = amount(abs(found.difference), cell.unit), cell.unit
    better = (found.difference > 0) == cell.higher_is_better
    of = "" if found.compares == "methods" else " (these weights, not methods)"
    kind = "anytime-valid p" if found.test is not None and found.test.name == "anytime_t" else "p"
    level = LEVELS[primary.claim]
    tail, holds = f", {kind} = {p:.2g}, one test at the level {level:g}{of}", p < level
    margin = "" if primary.margin is None else amount(primary.margin, unit)
    word = "better" if better else "worse"
    measured = f"measured {size} {word}" if found.difference else "measured no difference"
    if primary.claim == "difference":
        said = f"{found.arm} is {word} than {found.baseline} by {size}"
        apart = f"{found.arm} is not told apart from {found.baseline}: {size} {word}"
        return (said if holds else apart) + tail
    if primary.claim == "not_worse":
        said = f"{found.arm} is not worse than {found.baseline} by {margin} or more"
    else:
        said = f"{found.arm} and {found.baseline} differ by less than {margin}"
    ends = [found.difference + sign * spread.critical(2 * level) * spread.error for sign in (-1, 1)]
    low, high = (f"{100 * end:+.1f}" if unit in PERCENT else f"{end:+.3g}" for end in ends)
    within = f"{100 * (1 - 2 * level):g} % interval of this test {low} to {high}"
    return f"{said if holds else f'not shown that {said}'}: {measured}, {within}{tail}"


def evaluations_of(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The evaluations of an arm's job, each with its data set."""
    return [{**one, "data": one.get("data") or spec["data"]} for one in spec["evaluations"]]


def _is_on(data: Mapping[str, Any], asked: Mapping[str, Any] | None) -> bool:
    if asked is None:
        return True
    return data["name"] == asked["name"] and _has(data.get("params") or {}, asked.get("params") or {})


def _has(params: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    return all(
        name in params and canonical(params[name]) == canonical(value) for name, value in asked.items()
    )
