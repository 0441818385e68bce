"""Warnings about the model behind a row: answers like guesses, answers that are all alike, lost gradients.

For the last: Athalye et al. 2018, "Obfuscated Gradients Give a False Sense of Security".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Any

from assay.service.catalog.catalog import load
from assay.service.contract.records import Evidence
from assay.service.contract.results import Warning
from assay.service.contract.stored_specs import Params
from assay.service.contract.threat import Knowledge
from assay.service.contract.warning_codes import Severity
from assay.service.metrics.answers import Answers

CAUSES = (
    "likely causes: another order of the classes, labels that begin at 1, another normalisation, pixels of 0"
    " to 255 in place of 0 to 1, channels in the order blue, green, red"
)


def of_answers(
    answers: Answers | None, classes: int | None, *, guesses: bool, noun: str
) -> Iterator[Warning]:
    """Warnings about the unattacked answers; the metrics of attacked examples are then invalid."""
    if answers is None or not answers.total:
        return
    severity: Severity = "invalid" if answers.attacked else "caution"
    share, chance = answers.right / answers.total, 1 / (classes or len(answers.labels))
    evidence = {"accuracy": share, "chance": chance, "n": answers.examples}
    if not guesses and answers.no_better_than(chance):
        message = (
            f"unattacked {noun} are right at {100 * share:.3g} %, a guess among the classes at"
            f" {100 * chance:.3g} %: accuracy under attack says nothing about this model; {CAUSES}"
        )
        yield Warning(code="below_chance", severity=severity, message=message, evidence=evidence)
    elif not guesses and answers.includes(chance):
        low, high = (100 * end for end in answers.bounds)
        message = (
            f"unattacked {noun} are right at {100 * share:.3g} %, 95 % interval [{low:.3g}, {high:.3g}],"
            f" which includes a guess among the classes, {100 * chance:.3g} %: nothing shows yet that this"
            f" model knows the classes; measure more {noun}, or look at its training and its pixels"
        )
        yield Warning(code="chance_not_excluded", message=message, evidence=evidence)
    if (only := answers.only_held) is not None and answers.constant is None:
        held = answers.held or {}
        others = sum(held.values()) - held[only], answers.total - answers.labels[only]
        message = (
            f"under the attack hold {held[only]} of the {answers.labels[only]} {noun} of class {only} and"
            f" {others[0]} of the {others[1]} others: the accuracy is what a constant answer has, and no"
            " robustness"
        )
        found = {"class": only, "held": held[only], "of": answers.labels[only], "others": others[0]}
        yield Warning(code="one_class_under_attack", message=message, evidence=found)
    if (constant := answers.constant) is not None:
        predicted, labelled = (
            100 * counts.get(constant, 0) / answers.total for counts in (answers.predictions, answers.labels)
        )
        message = (
            f"{predicted:.3g} % of the answers to unattacked {noun} are class {constant}, which"
            f" {labelled:.3g} % of the labels are: a model that always answers alike looks robust; {CAUSES}"
        )
        shares: dict[str, Any] = {"class": constant, "predicted": predicted / 100, "labelled": labelled / 100}
        yield Warning(code="constant_prediction", severity=severity, message=message, evidence=shares)


def of_gradients(
    evidence: Sequence[Evidence],
    attack: str,
    attacks: Sequence[str],
    noun: str,
    params: Params = MappingProxyType({}),
) -> Iterator[Warning]:
    """Warnings about gradients that the first shard did not find, found too small, or lost to rounding."""
    found = evidence[0].get("first_gradients") if evidence else None
    threat = load().threat_of(attack)
    if found is None or threat is None:
        return
    bypassed = any(
        (known := load().threat_of(name)) and known.knowledge == Knowledge.TRANSFER for name in attacks
    )
    without = found["zero"] == found["examples"]
    if without and threat.knowledge == Knowledge.BLACK_BOX and not bypassed:
        message = (
            f"the model has no gradients (the first {found['examples']} {noun}), and attacks that need none"
            " are all that can break it here: the accuracy is an upper bound, no robustness; bpda follows the"
            " gradients of a model without the part that hides them"
        )
        yield Warning(code="gradient_free_only", message=message, evidence=dict(found))
    follows = threat.knowledge in (Knowledge.WHITE_BOX, Knowledge.BLACK_BOX)
    if follows and not without and 2 * found["tiny"] > found["examples"]:
        message = (
            f"for {found['tiny']} of the first {found['examples']} {noun} the logits change far more under"
            " small noise than their gradients say: attacks that follow gradients miss what breaks the model,"
            " and the accuracy is an upper bound; bpda follows the gradients of a model without the part that"
            " hides them"
        )
        yield Warning(code="tiny_gradients", message=message, evidence=dict(found))
    loss = params.get("loss", (load().find("attack", attack).facts or {}).get("loss"))
    if loss == "ce" and 2 * found.get("saturated", 0) > found["examples"]:
        message = (
            f"the softmax of the answer rounds to 1 for {found['saturated']} of the first {found['examples']}"
            f" {noun}: the cross-entropy has no derivative by that logit, its gradient points elsewhere, and"
            " accuracy is too high; attack with a loss of the logits (loss=margin, apgd_dlr, autoattack)"
        )
        yield Warning(code="saturated_loss", message=message, evidence=dict(found))
