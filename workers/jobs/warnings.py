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
UNDEFINED = {
    "attack_success_rate": "no example was right before the attack",
    "median_linf": "no example was broken",
    "median_l2": "no example was broken",
}


def of_evaluation(
    plan: Mapping[str, Any],
    evidence: Sequence[Mapping[str, Any]],
    *,
    planned: Mapping[str, int],
    undefined: Sequence[str],
    backend: str,
    pixel_attack: bool,
) -> list[Warning]:
    """The warnings of one row of the results.

    Args:
        plan: the job's plan.
        evidence: counts of each shard, as `Outcomes.evidence` gives them.
        planned: what the plan says about this evaluation: `n` examples of the `available` ones, and of these
            those `seen` in training and the classes `renamed` since, where there are any.
        undefined: names of the metrics that have no value.
        backend: "native", or the library that ran the attack.
        pixel_attack: whether it is an attack under the protocol `pixel`.
    """
    n, available = planned["n"], planned["available"]
    found = [*_counted(evidence, n), *_doubtful(planned)]
    if plan["untrained"]:
        message = "the model's weights are random: it was never trained"
        found.append(Warning(code="untrained_weights", message=message))
    if n < available:
        message = f"{n} of {available} examples: those with the smallest sha256 of data name and example id"
        found.append(Warning(code="subset", message=message, evidence={"n": n, "available": available}))
    if backend != "native":
        message = (
            f"run by {backend}: its iterates are float32, only the last one counts, and its loss is a mean"
            " over the batch, so that very small gradients depend on the batch size"
        )
        size = {"batch_size": plan["batch_size"]}
        found.append(Warning(code="library_backend", message=message, evidence=size))
    if pixel_attack:
        message = (
            "top5 was measured under an attack on top-1 that stops at the first success:"
            " it is an upper bound of accuracy under an attack on top-5"
        )
        found.append(Warning(code="top5_upper_bound", message=message))
    if undefined:
        reasons = "; ".join(f"{name} has no value: {UNDEFINED[name]}" for name in undefined)
        found.append(Warning(code="undefined_metric", message=reasons, evidence={"metrics": [*undefined]}))
    return found


def _doubtful(planned: Mapping[str, int]) -> Iterator[Warning]:
    if seen := planned.get("seen", 0):
        message = f"{seen} of {planned['n']} examples were trained on: accuracy is too high"
        evidence = {"count": seen, "n": planned["n"]}
        yield Warning(code="trained_on_examples", message=message, evidence=evidence)
    if renamed := planned.get("renamed", 0):
        message = (
            f"{renamed} classes have another name than in the data set that the model was trained on;"
            " labels are compared by their number"
        )
        yield Warning(code="class_names_differ", message=message, evidence={"count": renamed})


def _counted(evidence: Sequence[Mapping[str, Any]], n: int) -> Iterator[Warning]:
    for code, text in _EVIDENCE.items():
        count = sum(shard.get(code, 0) for shard in evidence)
        if count:
            yield Warning(code=code, message=text.format(count=count, n=n), evidence={"count": count, "n": n})
