"""What each attack of an ensemble found: the stages of all shards, as a breakdown of the result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from service.contract.results import StageBreakdown
from workers.metrics.classification import proportion


def stage_breakdown(evidence: Sequence[Mapping[str, Any]], n: int) -> list[StageBreakdown]:
    """One row per stage, in the order in which they were run.

    Args:
        evidence: what each shard reported, in the order of the shards; `stages` lists {"name", "n", "broken",
            "forward", "backward", "seconds"}. A shard leaves out the stages that no example reached.
        n: examples of the evaluation; those that no stage saw were wrong before the attack.
    """
    parts: dict[str, list[Mapping[str, Any]]] = {}
    # The shard with the most stages knows the order of all of them.
    for shard in sorted(evidence, key=lambda shard: -len(shard.get("stages", ()))):
        for stage in shard.get("stages", ()):
            parts.setdefault(stage["name"], []).append(stage)
    return [_summed(name, same, n) for name, same in parts.items()]


def _summed(name: str, same: Sequence[Mapping[str, Any]], n: int) -> StageBreakdown:
    entered, broken, forward, backward = (
        sum(stage[count] for stage in same) for count in ("n", "broken", "forward", "backward")
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
