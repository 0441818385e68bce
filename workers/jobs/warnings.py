"""What the reader of a result must know about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from service.contract.results import Warning

_EVIDENCE = {
    "zero_gradient": "the gradient at the first step was exactly zero for {count} of {n} examples:"
    " gradients may be masked",
    "nonfinite_gradient": "the gradient at the first step was not finite for {count} of {n} examples",
    "nonfinite": "the logits were not finite for {count} of {n} examples; they count as wrong",
}


def of_evaluation(
    plan: Mapping[str, Any],
    evidence: Sequence[Mapping[str, int]],
    *,
    n: int,
    available: int,
    backend: str,
    pixel_attack: bool,
) -> list[Warning]:
    """The warnings of one row of the results.

    Args:
        plan: the job's plan.
        evidence: counts of each shard, as `Outcomes.evidence` gives them.
        n: examples that were measured.
        available: examples that the data set has.
        backend: "native", or the library that ran the attack.
        pixel_attack: whether it is an attack under the protocol `pixel`.
    """
    found = list(_counted(evidence, n))
    if plan["untrained"]:
        message = "the model's weights are random: it was never trained"
        found.append(Warning(code="untrained_weights", message=message))
    if n < available:
        message = f"{n} of {available} examples: those with the smallest sha256 of data name and example id"
        found.append(Warning(code="subset", message=message, evidence={"n": n, "available": available}))
    if backend != "native":
        message = f"run by {backend}: it draws random numbers per batch, so results depend on the batch size"
        size = {"batch_size": plan["batch_size"]}
        found.append(Warning(code="library_backend", message=message, evidence=size))
    if pixel_attack:
        message = (
            "top5 was measured under an attack on top-1 that stops at the first success:"
            " it is an upper bound of accuracy under an attack on top-5"
        )
        found.append(Warning(code="top5_upper_bound", message=message))
    return found


def _counted(evidence: Sequence[Mapping[str, int]], n: int) -> Iterator[Warning]:
    for code, text in _EVIDENCE.items():
        count = sum(shard.get(code, 0) for shard in evidence)
        if count:
            yield Warning(code=code, message=text.format(count=count, n=n), evidence={"count": count, "n": n})
