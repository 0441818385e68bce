"""What each attack of an ensemble found: the stages of all shards, as a breakdown of the result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from assay.service.contract.records import Evidence, StageEvidence
from assay.service.contract.results import Metric, StageBreakdown
from assay.service.metrics.classification import proportion

# A custom ensemble may name a stage twice: its number tells them apart.
Key = tuple[int | None, str]


def stage_breakdown(evidence: Sequence[Evidence], n: int) -> list[StageBreakdown]:
    """One row per stage, in the order in which they were run.

    Args:
        evidence: what each shard reported; `stages` lists {"name", "n", "broken", "forward", "backward",
            "seconds"}. A shard may leave out the last stages, and name one twice (screening in low precision
            first): the second time got what the first had left.
        n: examples of the evaluation; those that no stage saw were wrong before the attack.
    """
    parts: dict[Key, list[StageEvidence]] = {}
    entered: dict[Key, int] = {}
    # The shard with the most stages knows the order of all of them.
    for shard in sorted(evidence, key=lambda shard: -len(shard.get("stages", ()))):
        seen: set[Key] = set()
        for stage in shard.get("stages", ()):
            name = (stage.get("number"), stage["name"])
            parts.setdefault(name, []).append(stage)
            entered[name] = entered.get(name, 0) + (0 if name in seen else stage["n"])
            seen.add(name)
    return [_summed(key[1], same, entered[key], n) for key, same in parts.items()]


def candidate_breakdown(
    evidence: Sequence[Evidence], alone: Mapping[str, dict[str, Metric]]
) -> list[StageBreakdown]:
    """One row per candidate of an attack on a segmentation model: the unattacked images, then each loss.

    Args:
        evidence: what each shard reported, as for `stage_breakdown`.
        alone: the metrics of each candidate, shown of every image.
    """
    rows = []
    for name, metrics in alone.items():
        same = [stage for shard in evidence for stage in shard["stages"] if stage["name"] == name]
        n, broken, forward, backward = (
            sum(stage[count] for stage in same) for count in ("n", "broken", "forward", "backward")
        )
        rows.append(
            StageBreakdown(
                stage=name,
                metrics=metrics,
                n=n,
                broken=broken,
                forward_passes=forward,
                backward_passes=backward,
                seconds=math.fsum(stage["seconds"] for stage in same),
            )
        )
    return rows


def _summed(name: str, same: Sequence[StageEvidence], entered: int, n: int) -> StageBreakdown:
    broken, forward, backward = (
        sum(stage[count] for stage in same) for count in ("broken", "forward", "backward")
    )
    return StageBreakdown(
        stage=name,
        metrics={"top1": proportion(entered - broken, n, higher_is_better=True)},
        n=entered,
        broken=broken,
        forward_passes=forward,
        backward_passes=backward,
        seconds=math.fsum(stage["seconds"] for stage in same),
    )
