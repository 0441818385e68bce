"""Leaderboards: jobs ranked by accuracy, among those measured on the same examples under the same threat.

The accuracy under a threat (norm and epsilon) is the lowest that any one attack of the job leaves; noise is
no attack. It is an upper bound of the robust accuracy, and a job that was attacked by an ensemble has been
tried harder than one with a single attack. Jobs on other examples, or under another protocol, are in another
group, and are never ranked together. A number whose warnings say that it is invalid has no rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from assay.service.contract.corruption_cells import content_label
from assay.service.contract.fractions import fraction_value
from assay.service.contract.results import EvaluationResult, Metric, Reference, Warning, data_label
from assay.service.contract.threat import Knowledge, ThreatOf
from assay.service.contract.warning_codes import SEVERITIES
from assay.service.metrics.sanity_checks import ACCURACIES, cross_checks

UNATTACKED = "no attack"
# The metric that is the model's size.
PARAMETERS = "parameters"


class LeaderboardGroup(NamedTuple):
    """What jobs have in common that are ranked together.

    `data` names the data set with its parameters, `sha256` is the hash of its content, empty where it is not
    known; `n` of its `available` examples were used (0: not known). `norm` is empty without attack.
    """

    data: str
    sha256: str
    n: int
    available: int
    protocol: str
    norm: str
    epsilon: float
    metric: str

    @property
    def threat(self) -> str:
        """Norm and epsilon as `Linf 8/255` or `L2 0.5`, or `UNATTACKED`."""
        steps = 255 * self.epsilon
        in_steps = self.norm == "Linf" and self.epsilon <= 1 and round(steps) > 0
        if in_steps and abs(steps - round(steps)) < 1e-6:
            return f"{self.norm} {round(steps)}/255"
        return f"{self.norm} {self.epsilon:.4g}" if self.norm else UNATTACKED

    @property
    def whole(self) -> bool:
        """Whether all examples of the data set were used."""
        return self.available == self.n


@dataclass(frozen=True)
class MeasuredJob:
    """A job with its results.

    Attributes:
        job: its id.
        name: given by its user; may be empty.
        model: catalog name.
        seed: of the job.
        weights_sha256: hash of the weights' content; None where it is not known.
        data_sha256: content hash of each data set by `content_label`.
        available: examples of the data of the evaluation at a position.
        evaluations: results by position.
        parameters: of the model; None where the plan of an earlier version did not count them.
    """

    job: str
    name: str
    model: str
    seed: int
    weights_sha256: str | None
    data_sha256: Mapping[str, str]
    available: Mapping[int, int]
    evaluations: Mapping[int, EvaluationResult]
    parameters: int | None = None


@dataclass(frozen=True)
class LeaderboardEntry:
    """A job in a group.

    Attributes:
        metric: the ranked accuracy.
        attack: that left it; empty without attack.
        attacks: all attacks of the job under the threat.
        ensemble: whether one of them is an ensemble of attacks.
        clean: accuracy without attack on the same data; None where it was not measured.
        parameters: of the model, where they were counted.
        passes: forward and backward, of all attacks under the threat.
        seconds: of the same.
        references: published numbers for the ranked metric, and those for `clean`.
        warnings: of the ranked evaluation and of the checks across the job, the gravest first.
    """

    group: LeaderboardGroup
    job: str
    name: str
    model: str
    seed: int
    weights_sha256: str | None
    metric: Metric
    attack: str
    attacks: tuple[str, ...]
    ensemble: bool
    clean: Metric | None
    parameters: float | None
    passes: int
    seconds: float
    references: tuple[Reference, ...]
    clean_references: tuple[Reference, ...]
    warnings: tuple[Warning, ...]

    @cached_property
    def invalid(self) -> bool:
        """Whether a warning says that the number is not what its name says."""
        return any(warning.severity == SEVERITIES[0] for warning in self.warnings)


@dataclass(frozen=True)
class RankedEntry:
    """An entry with its place.

    `rank` is None for an invalid one. `distinct` is False where its interval overlaps that of the first: they
    are not told apart.
    """

    rank: int | None
    distinct: bool
    entry: LeaderboardEntry


def leaderboard_entries(job: MeasuredJob, threat_of: ThreatOf) -> list[LeaderboardEntry]:
    """A job's entries: one for each data set, protocol and threat that it was measured with.

    Args:
        job: with its results.
        threat_of: threat model of an attack by its name.
    """
    found: dict[LeaderboardGroup, list[EvaluationResult]] = {}
    for position, one in job.evaluations.items():
        metric = _accuracy_name(one)
        threat = None if metric is None else _threat(one, threat_of)
        if metric is not None and threat is not None:
            found.setdefault(_group(job, position, one, threat, metric), []).append(one)
    if not found:
        return []
    across = cross_checks(list(job.evaluations.values()), threat_of)
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


def ranked(entries: Iterable[LeaderboardEntry], most: int | None = None) -> list[RankedEntry]:
    """The entries of one group, the highest accuracy first; equal ones share a rank, invalid ones last.

    Args:
        entries: of one group.
        most: so many of the first; None for all.
    """
    ordered = sorted(entries, key=lambda one: (one.invalid, -_value(one.metric), one.model, one.job))[:most]
    first = ordered[0].metric if ordered else None
    found: list[RankedEntry] = []
    for place, one in enumerate(ordered, start=1):
        equal = found[-1] if found and found[-1].entry.metric.value == one.metric.value else None
        rank = None if one.invalid else equal.rank if equal is not None else place
        found.append(RankedEntry(rank, first is None or not _overlap(first, one.metric), one))
    return found


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
    attacked = "epsilon" in one.params or "attack_success_rate" in one.metrics
    return None if attacked or one.breakdown or one.backward_passes else ("", 0.0)


def _group(
    job: MeasuredJob, position: int, one: EvaluationResult, threat: tuple[str, float], metric: str
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
    )


def _unattacked(same: Sequence[EvaluationResult]) -> EvaluationResult:
    """The one with the fewest parameters: others may have changed the inputs."""
    return min(same, key=lambda one: sum(value is not None for value in one.params.values()))


def _lowest(same: Sequence[EvaluationResult], metric: str, threat_of: ThreatOf) -> EvaluationResult:
    """Of equal ones, an ensemble."""
    return min(same, key=lambda one: (_value(one.metrics[metric]), not _is_ensemble(one, threat_of)))


def _is_ensemble(one: EvaluationResult, threat_of: ThreatOf) -> bool:
    threat = threat_of(one.name)
    return threat is not None and threat.search == "ensemble"


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
    own = [warning for one in run for warning in one.warnings] + (list(across) if attacked else [])
    distinct = {(warning.code, warning.message): warning for warning in own}
    clean = None if unattacked is None else unattacked.metrics.get(group.metric)
    clean_references = () if unattacked is None else _references(unattacked, group.metric)
    return LeaderboardEntry(
        group=group,
        job=job.job,
        name=job.name,
        model=job.model,
        seed=job.seed,
        weights_sha256=job.weights_sha256,
        metric=lowest.metrics[group.metric],
        attack=lowest.name if attacked else "",
        attacks=tuple(dict.fromkeys(one.name for one in run)) if attacked else (),
        ensemble=any(_is_ensemble(one, threat_of) for one in run),
        clean=clean,
        parameters=next((size for size in sizes if size is not None), None),
        passes=sum(one.forward_passes + one.backward_passes for one in run),
        seconds=sum(one.seconds for one in run),
        references=_references(lowest, group.metric),
        clean_references=clean_references,
        warnings=tuple(sorted(distinct.values(), key=lambda one: SEVERITIES.index(one.severity))),
    )


def _references(one: EvaluationResult, metric: str) -> tuple[Reference, ...]:
    return tuple(reference for reference in one.reference if reference.metric == metric)


def _value(metric: Metric) -> float:
    assert metric.value is not None, "only accuracies with a value are ranked"
    return metric.value


def _overlap(first: Metric, other: Metric) -> bool:
    if None in (first.ci_low, first.ci_high, other.ci_low, other.ci_high):
        return first.value == other.value
    assert first.ci_low is not None
    assert other.ci_high is not None
    return other.ci_high >= first.ci_low
