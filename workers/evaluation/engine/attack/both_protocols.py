"""An attack on the examples of a shard, under the shard's protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor, nn

from assay.attacks.ensemble import Ensemble
from assay.attacks.kernel import Attack
from assay.attacks.randomness import Randomness
from assay.attacks.threat import PIXELS, Box
from assay.workers.evaluation.engine.attack.traces import Traces
from assay.workers.evaluation.engine.gallery.candidates import Candidates
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.loader import Images
from assay.workers.evaluation.engine.outcomes import Stage
from assay.workers.evaluation.engine.protocols import attack_paper, attack_pixel
from assay.workers.evaluation.engine.shard import Shard


def attack_shard(
    attack: Attack | Ensemble,
    shard: Shard,
    inputs: Images,
    randomness: Randomness,
    candidates: Candidates,
    *,
    pixel_model: nn.Module,
    prepare: Callable[[Tensor], Tensor] | None = None,
    box: Box | None = PIXELS,
) -> ExampleOutcomes:
    """Attacks every example; `pixel_model`, `prepare` and `box` are of the protocol `pixel`."""

    def staged(stage: Stage) -> None:
        # Accuracy after the gradient attacks is a first answer, hours before the last stage ends.
        shard.staged(stage.name, stage.n - stage.broken)

    running, subject = shard.running, (inputs, shard.labels, shard.ids)
    traces = Traces(shard.ids, shard.save_traces) if shard.save_traces else None
    if shard.protocol == "paper":
        outcomes = attack_paper(
            attack,
            shard.classifier,
            *subject,
            randomness=randomness,
            keep_adversarial=shard.save_adversarial,
            capture=shard.capture,
            preparing=shard.preparing,
            candidates=candidates,
            traces=traces,
            **running,
        )
    else:
        outcomes = attack_pixel(
            attack,
            pixel_model,
            *subject,
            randomness=randomness,
            keep_adversarial=shard.save_adversarial,
            capture=shard.capture,
            preparing=shard.preparing,
            compiled=shard.compiled,
            screening=shard.screening,
            staged=staged,
            prepare=prepare,
            box=box,
            candidates=candidates,
            traces=traces,
            **running,
        )
    return outcomes if traces is None else replace(outcomes, traces=traces.content())
