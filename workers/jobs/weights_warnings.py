"""Warnings about a model as it was brought: its weights, outputs and gradients, and its join to the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from assay.service.catalog.catalog import load
from assay.service.contract.records import Evidence, ModelJoin, Plan
from assay.service.contract.results import Warning
from assay.service.contract.stored_specs import Params
from assay.service.contract.threat import Knowledge

# Of `probabilities`, also at the export.
RETURNED = (
    "the model returns probabilities, not logits (a softmax, a sigmoid of each class): losses of logits"
    " saturate, and accuracies under attack are too high; export it without them, or return the logarithm of"
    " a mean of softmaxes (loss=margin helps while no sigmoid saturates)"
)


def of_weights(
    plan: Plan, evidence: Sequence[Evidence], name: str, params: Params | None = None
) -> Iterator[Warning]:
    """The warnings of a row, by the name and the parameters of its evaluation or attack."""
    if plan["untrained"]:
        message = "the model's weights are random: it was never trained"
        yield Warning(code="untrained_weights", message=message)
    if assumed := plan.get("assumed_normalization"):  # plans of earlier versions do not say
        message = (
            f"nothing says with which mean and standard deviation the weights were trained; the mean and"
            f" deviation of the data set {assumed['data']!r} were used; if these differ every number is wrong"
        )
        yield Warning(code="foreign_normalization", message=message, evidence=dict(assumed))
    if plan.get("unstated_vocabulary"):
        message = (
            "the program does not say for which vocabulary it was made: it has as many words as the data's,"
            " and if they have other ids every number is wrong. Only its file can state it: the sha256"
            " of the words, as vocabulary in extra/assay.json (export_program(..., vocabulary=...))"
        )
        yield Warning(code="unstated_vocabulary", message=message)
    if joined := plan.get("joined"):
        yield from _of_join(joined)
    yield from _of_gradients(plan, name, params or {})
    if asked := sum(shard.get("probabilities", 0) for shard in evidence):
        yield Warning(code="probabilities", message=RETURNED, evidence={"count": asked})


def _of_gradients(plan: Plan, name: str, params: Params) -> Iterator[Warning]:
    threat = load().threat_of(name)
    if threat is None or threat.knowledge is Knowledge.NOISE:
        return
    others = [job for _, job in load().find_evaluation(name).jobs(params)]
    uncompared = [job for job in plan.get("sources_not_compared", []) if job in others]
    if uncompared or (plan.get("gradients_not_compared") and not threat.without_gradients):
        of = f" of {', '.join(uncompared)}" if uncompared else ""
        message = (
            f"nothing says that the gradients of the program{of} are its module's: an export loses the"
            " backward of an autograd.Function (straight-through estimators) and hooks on gradients, and"
            " attacks are then too weak; export the module with export_program or `assay evaluate`, which"
            " compare them"
        )
        evidence = {"sources": uncompared} if uncompared else {}
        yield Warning(code="gradients_not_compared", message=message, evidence=evidence)


def _of_join(joined: ModelJoin) -> Iterator[Warning]:
    evidence = {"labels": joined["labels"][:10]}
    if joined["labels_by"] == "number":
        message = (
            "the model's labels have other names than the data's classes: logit k was taken for class k. If"
            " their order differs, every number is wrong; the names are in the evidence"
        )
        yield Warning(code="labels_by_number", message=message, evidence=evidence)
    elif joined["labels_by"] == "name":
        message = "the model's logits were put in the order of the data's classes by their names"
        yield Warning(code="labels_by_name", message=message, evidence=evidence)
    if joined["own_tokenizer"]:
        message = (
            "the texts were read by the model's own tokenizer: where words are counted as read, they are its"
            " tokens, and a perplexity per token cannot be compared with another tokenizer's"
        )
        yield Warning(code="own_tokenizer", message=message)
