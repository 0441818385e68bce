"""Answer types: the results of a study."""

from __future__ import annotations

from typing import Any, Literal

from assay.service.contract.results import Answer, Unit, Warning
from assay.service.metrics.statistics.multiple_tests import Adjustment
from assay.service.studies.designs.wire import StudyFixing
from assay.service.studies.wire import Claim, StudyUntil


class SeedValue(Answer):
    """A metric with one seed, of `n` examples."""

    seed: int
    value: float | None
    n: int | None = None


class ArmValue(Answer):
    """A metric of an arm: mean and standard deviation over seeds (null with a single seed).

    `n` examples each; null where seeds differ, as the examples that an attack could break do.
    """

    arm: str
    mean: float | None
    sd: float | None
    n: int | None
    seeds: list[SeedValue]


class StudyTest(Answer):
    """The test of "no difference between the arms".

    `two_way_t`: seeds and examples are random. `paired_t`: seeds alone, for metrics without values of
    examples. `anytime_t`: either, in a study with `until`, valid at every number of seeds; the others hold
    for a number of seeds that was fixed before. `adjusted_p_value` is for all tests of the study.
    """

    name: Literal["two_way_t", "paired_t", "anytime_t"]
    p_value: float
    adjusted_p_value: float
    statistic: float
    seeds: int


class StudyPower(Answer):
    """The difference that so many seeds and examples find with 80 % power, after adjustment.

    `level` is 0.05 over the number of tests, as of the smallest p under Holm's adjustment. `with_twice` is
    for twice the seeds. The standard deviations are of differences: over seeds, over examples, and of the
    rest; null where not estimated. `assumed`: the spread over seeds is an assumption. `least_error` is the
    least standard error of a test of shares: of n pairs without any disagreement.
    """

    seeds: int
    n: int | None
    level: float
    resolves: float | None
    with_twice: float | None
    sd_seeds: float | None
    sd_examples: float | None
    sd_rest: float | None
    least_error: float | None = None
    assumed: bool
    text: str


class StudyComparison(Answer):
    """An arm less the baseline arm, over the seeds of both and the `n` common examples.

    `n` is null for metrics without values of examples. `ci_low` and `ci_high` are the ends of the 95 %
    interval, null without an interval; `note` then says why. `primary`: it answers the primary question.
    """

    arm: str
    baseline: str
    compares: Literal["methods", "weights"]
    difference: float | None
    ci_low: float | None = None
    ci_high: float | None = None
    ci_method: (
        Literal["hierarchical_bootstrap", "t_over_seeds", "bootstrap_over_examples", "anytime_t"] | None
    ) = None
    seeds: list[int]
    n: int | None = None
    test: StudyTest | None = None
    primary: bool = False
    power: StudyPower | None = None
    note: str | None = None


class StudyCell(Answer):
    """A metric of an evaluation in all arms; the comparisons of a `tested` metric have p-values.

    `warnings` counts the runs with a warning of their evaluation, by its code.
    """

    evaluation: str
    params: dict[str, Any]
    data: dict[str, Any]
    protocol: str
    metric: str
    higher_is_better: bool
    unit: Unit | None
    tested: bool
    arms: list[ArmValue]
    comparisons: list[StudyComparison]
    warnings: dict[str, int] = {}  # noqa: RUF012


class StudyPrimary(Answer):
    """The answer to the study's primary question.

    `p_value` is of the claim, not adjusted, and compared with `level`; both `p_value` and `holds` are null
    without a test. `fixed_at`: when the question was stored, with the study or with its registered design.
    """

    evaluation: str
    params: dict[str, Any]
    metric: str
    arm: str
    baseline: str
    claim: Claim
    margin: float | None
    level: float
    p_value: float | None
    holds: bool | None
    fixed_at: str | None
    text: str


class MissingRun(Answer):
    """An arm and a seed with evaluations that have not finished."""

    arm: str
    seed: int
    state: str


class StudyResults(Answer):
    """The results of a study, not `complete` while runs are missing; `adjust` acts on `tests` p-values.

    `primary` answers the primary question, if the study has one; its test is not among `tests`. `fixing` says
    when the design was fixed; null for studies of earlier versions. With `until` intervals and tests are
    anytime-valid.
    `warning_messages` has the message of the first run with a warning of its evaluation, by its code.
    """

    study: str
    complete: bool
    arms: list[str]
    seeds: list[int]
    baseline: str
    adjust: Adjustment
    tests: int
    cells: list[StudyCell]
    missing: list[MissingRun]
    notes: list[str]
    warnings: list[Warning]
    warning_messages: dict[str, str] = {}  # noqa: RUF012
    primary: StudyPrimary | None = None
    fixing: StudyFixing | None = None
    until: StudyUntil | None = None
