"""Leaderboards: a job's accuracies, each in the group of those on the same examples under the same threat.

The accuracy under a threat (norm and epsilon) is the lowest that any one attack of the job leaves; noise is
no attack. It is an upper bound of the robust accuracy: without an ensemble of attacks it has a caution, with
one the note of the ensemble. Jobs on other examples, or under another protocol, are in another group, and are
never ranked together. `leaderboard_methods` joins the jobs of the same weights and ranks methods; numbers in
an arithmetic coarser than float32 are not joined with others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from assay.service.contract.corruption_cells import content_label
from assay.service.contract.fractions import PIXEL_STEPS, fraction_value, radius_text
from assay.service.contract.results import (
    EvaluationResult,
    Metric,
    Reference,
    StageBreakdown,
    Warning,
    data_label,
)
from assay.service.contract.row_protocols import RadiusUnit, RadiusUnitOf, protocol_unit
from assay.service.contract.threat import Knowledge, ThreatOf
from assay.service.contract.warning_codes import SEVERITIES, WarningCode
from assay.service.metrics.arithmetic import COARSE
from assay.service.metrics.compare.sanity_checks import ACCURACIES, cross_checks
from assay.service.plots.series import is_unattacked

UNATTACKED = "no attack"
PARAMETERS = "parameters"  # The metric that is the model's size.
# Of every ensemble: on the leaderboard it is the note of the row, in place of each job's.
ENSEMBLE_CODE: WarningCode = "adaptive_attack_needed"
# Said in another place of a row: the note of its attacks, and the arithmetic of its numbers.
SAID_APART: tuple[WarningCode, ...] = (ENSEMBLE_CODE, "other_dtype")


class LeaderboardGroup(NamedTuple):
    """What jobs have in common that are ranked together.

    `data` names the data set with its parameters, `sha256` is the hash of its content, empty where it is not
    known; `n` of its `available` examples were used (0: not known). `norm` is empty without attack, `unit` is
    the unit of `epsilon`.
    """

    data: str
    sha256: str
    n: int
    available: int
    protocol: str
    norm: str
    epsilon: float
    metric: str
    unit: RadiusUnit = "pixel"

    @property
    def threat(self) -> str:
        """Norm and epsilon as `Linf 8/255`, `L2 0.5` or `Linf 0.2 sd`, or `UNATTACKED`."""
        if not self.norm:
            return UNATTACKED
        steps = PIXEL_STEPS * self.epsilon
        in_steps = (self.norm, self.unit) == ("Linf", "pixel") and self.epsilon <= 1 and round(steps) > 0
        if in_steps and abs(steps - round(steps)) < 1e-6:
            return f"{self.norm} {round(steps)}/{PIXEL_STEPS}"
        return f"{self.norm} {radius_text(f'{self.epsilon:.4g}', self.unit)}"

    @property
    def whole(self) -> bool:
        """Whether all examples of the data set were used."""
        return self.available == self.n


class Method(NamedTuple):
    """What made a set of weights: a model with its parameters, and its training.

    `key` is equal for equal methods, `weights` for equal weights of a method: both are the job's id where its
    weights are not known. `recipe` names the training, `seed` is its seed; `params` are the parameters of
    model and training.
    """

    key: str
    weights: str
    recipe: str = ""
    seed: int | None = None
    params: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class MeasuredJob:
    """A job with its results."""

    job: str
    name: str  # given by its user; may be empty
    model: str
    seed: int
    weights_sha256: str | None  # hash of the weights' content; None where it is not known
    data_sha256: Mapping[str, str]  # content hash of each data set by `content_label`
    available: Mapping[int, int]  # examples of the data of the evaluation at a position
    evaluations: Mapping[int, EvaluationResult]
    parameters: int | None = None  # Of the model; None where an early plan did not count them.
    method: Method | None = None  # that made its weights; None where it is not known
    dtype: str = "float32"  # of its passes, as computed


@dataclass(frozen=True)
class LeaderboardEntry:
    """A job in a group, or all jobs of the same weights in it (`jobs`)."""

    group: LeaderboardGroup
    job: str  # that measured the ranked accuracy
    name: str
    model: str
    seed: int
    weights_sha256: str | None
    metric: Metric  # the ranked accuracy
    attack: str  # that left it; empty without attack
    attacks: tuple[str, ...]  # all attacks under the threat
    ensemble: bool  # whether an ensemble of attacks is among them
    clean: Metric | None  # accuracy without attack on the same data; None where it was not measured
    parameters: float | None  # of the model, where they were counted
    passes: int  # forward and backward, of all attacks under the threat
    seconds: float  # of the same
    references: tuple[Reference, ...]  # published numbers for the ranked metric, and those for `clean`
    clean_references: tuple[Reference, ...]
    warnings: tuple[Warning, ...]  # Of the ranked evaluation and the checks across the job, gravest first.
    strength: Warning | None  # what the attacks say of the accuracy: the note of an ensemble, or a caution
    method: Method
    jobs: tuple[str, ...]
    arithmetic: str = ""  # Coarser than float32, of its numbers and its attacks' screening; else empty

    @cached_property
    def invalid(self) -> bool:
        """Whether a warning says that the number is not what its name says."""
        return any(warning.severity == SEVERITIES[0] for warning in self.warnings)

    @cached_property
    def unranked(self) -> bool:
        """Whether it is `invalid`, or left by attacks with a loss that saturates on probabilities."""
        saturated = bool(self.group.norm) and any(one.code == "probabilities" for one in self.warnings)
        return self.invalid or saturated


def leaderboard_entries(
    job: MeasuredJob, threat_of: ThreatOf, unit_of: RadiusUnitOf = protocol_unit
) -> list[LeaderboardEntry]:
    """A job's entries: one for each data set, protocol and threat that it was measured with."""
    found: dict[LeaderboardGroup, list[EvaluationResult]] = {}
    for position, one in job.evaluations.items():
        metric = _accuracy_name(one)
        threat = None if metric is None else _threat(one, threat_of)
        if metric is not None and threat is not None:
            unit = unit_of(one.data, one.protocol)
            found.setdefault(_group(job, position, one, threat, metric, unit), []).append(one)
    if not found:
        return []
    across = cross_checks(list(job.evaluations.values()), threat_of, unit_of)
    sizes: list[float | None] = [job.parameters]
    sizes += [one.metrics[PARAMETERS].value for one in job.evaluations.values() if PARAMETERS in one.metrics]
    clean = {
        (group.data, group.n, group.protocol): _unattacked(same)
        for group, same in found.items()
        if not group.norm
    }
    entries = []
    for group, same in found.items():
        unattacked = clean.get((group.data, group.n, group.protocol))
        lowest = _lowest(same, group.metric, threat_of) if group.norm else unattacked
        assert lowest is not None
        entries.append(_entry(job, group, same, lowest, unattacked, across, sizes, threat_of))
    return entries


def _accuracy_name(one: EvaluationResult) -> str | None:
    known = (name for name in ACCURACIES if name in one.metrics and one.metrics[name].value is not None)
    return next(known, None)


def _threat(one: EvaluationResult, threat_of: ThreatOf) -> tuple[str, float] | None:
    """Norm and epsilon, empty and 0 without attack; None for noise and for what has no epsilon."""
    threat = threat_of(one.name)
    if threat is not None:
        epsilon = one.params.get("epsilon")
        if epsilon is None or threat.knowledge is Knowledge.NOISE:
            return None
        return str(one.params.get("norm") or threat.norm), fraction_value(epsilon)
    return ("", 0.0) if is_unattacked(one) and not one.backward_passes else None


def _group(
    job: MeasuredJob,
    position: int,
    one: EvaluationResult,
    threat: tuple[str, float],
    metric: str,
    unit: RadiusUnit,
) -> LeaderboardGroup:
    label = data_label(one.data)
    return LeaderboardGroup(
        data=label,
        sha256=job.data_sha256.get(content_label(label, one.params), ""),
        n=one.metrics[metric].n,
        available=job.available.get(position, 0),
        protocol=one.protocol,
        norm=threat[0],
        epsilon=threat[1],
        metric=metric,
        unit=unit,
    )


def _unattacked(same: Sequence[EvaluationResult]) -> EvaluationResult:
    """The evaluation with the fewest parameters: others may have changed the inputs."""
    return min(same, key=lambda one: sum(value is not None for value in one.params.values()))


def _lowest(same: Sequence[EvaluationResult], metric: str, threat_of: ThreatOf) -> EvaluationResult:
    """The evaluation with the lowest value; of equal ones, an ensemble."""
    return min(same, key=lambda one: (value_of(one.metrics[metric]), not _is_ensemble(one, threat_of)))


def _is_ensemble(one: EvaluationResult, threat_of: ThreatOf) -> bool:
    """Whether several attacks ran: a custom ensemble may have one stage alone."""
    threat = threat_of(one.name)
    stages = {stage.stage for stage in one.breakdown if isinstance(stage, StageBreakdown)}
    return threat is not None and threat.search == "ensemble" and len(stages) != 1


def _strength(
    run: Sequence[EvaluationResult], lowest: Metric, attack: str, threat_of: ThreatOf
) -> Warning | None:
    """What the attacks say of the lowest accuracy: the note of an ensemble, else a caution unless it is 0."""
    for one in run:
        threat = threat_of(one.name)
        if threat is not None and threat.upper_bound is not None and _is_ensemble(one, threat_of):
            return Warning(code=ENSEMBLE_CODE, message=threat.upper_bound)
    threat = threat_of(attack)
    if threat is None or lowest.value == 0 or any(_is_ensemble(one, threat_of) for one in run):
        return None
    search = "a single step" if threat.search == "single_step" else "one search with one loss"
    return Warning(
        code="single_attack",
        message=f"{attack} left this accuracy by {search}, and no ensemble of attacks ran under this threat:"
        " an ensemble may leave much less, so that the row may stand above models that are more robust",
        evidence={"attack": attack, "search": threat.search},
    )


def _entry(
    job: MeasuredJob,
    group: LeaderboardGroup,
    same: Sequence[EvaluationResult],
    lowest: EvaluationResult,
    unattacked: EvaluationResult | None,
    across: Sequence[Warning],
    sizes: Sequence[float | None],
    threat_of: ThreatOf,
) -> LeaderboardEntry:
    attacked = bool(group.norm)
    run = same if attacked else [lowest]
    own = [warning for one in run for warning in one.warnings if warning.code not in SAID_APART]
    metric = lowest.metrics[group.metric]
    clean = None if unattacked is None else unattacked.metrics.get(group.metric)
    clean_references = () if unattacked is None else _references(unattacked, group.metric)
    return LeaderboardEntry(
        group=group,
        job=job.job,
        name=job.name,
        model=job.model,
        seed=job.seed,
        weights_sha256=job.weights_sha256,
        metric=metric,
        attack=lowest.name if attacked else "",
        attacks=tuple(dict.fromkeys(one.name for one in run)) if attacked else (),
        ensemble=any(_is_ensemble(one, threat_of) for one in run),
        clean=clean,
        parameters=next((size for size in sizes if size is not None), None),
        passes=sum(one.forward_passes + one.backward_passes for one in run),
        seconds=sum(one.seconds for one in run),
        references=_references(lowest, group.metric),
        clean_references=clean_references,
        warnings=gravest_first([*own, *(across if attacked else ())]),
        strength=_strength(run, metric, lowest.name, threat_of) if attacked else None,
        method=job.method or Method(job.job, job.job),
        jobs=(job.job,),
        arithmetic=_arithmetic(job.dtype, group, run, threat_of),
    )


def _arithmetic(
    dtype: str, group: LeaderboardGroup, run: Sequence[EvaluationResult], threat_of: ThreatOf
) -> str:
    """The coarse arithmetic of these rows, as text."""
    # Expected accuracies are computed without bfloat16. Earlier versions said of attacks without gradients
    # that they were screened.
    expected = dtype == "bfloat16" and group.metric == "expected_top1"
    if dtype in COARSE and not expected:
        return dtype
    threats = ((one, threat_of(one.name)) for one in run)
    differentiating = [one for one, threat in threats if threat is None or not threat.without_gradients]
    screened = {
        warning.evidence.get("screening")
        for one in differentiating
        for warning in one.warnings
        if warning.code == "screened"
    }
    return ", ".join(f"screening {screening}" for screening in sorted(map(str, screened)))


def gravest_first(warnings: Iterable[Warning]) -> tuple[Warning, ...]:
    """Each warning once."""
    distinct = {(warning.code, warning.message): warning for warning in warnings}
    return tuple(sorted(distinct.values(), key=lambda one: SEVERITIES.index(one.severity)))


def _references(one: EvaluationResult, metric: str) -> tuple[Reference, ...]:
    return tuple(reference for reference in one.reference if reference.metric == metric)


def value_of(metric: Metric) -> float:
    """The value of a ranked accuracy, which has one."""
    assert metric.value is not None, "only accuracies with a value are ranked"
    return metric.value
