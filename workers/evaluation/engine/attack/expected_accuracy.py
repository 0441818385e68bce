"""Attacks on models that answer at random: the accuracy to expect, over fresh draws of the model.

Such a model has no adversarial examples; it answers an image rightly with some probability. Each stage of an
attack runs to its end on all examples, and gives the iterate with the fewest right answers among its passes
(`attacks/expectation.py`). That iterate was chosen for its luck as well, so draws of their own judge it:

    choice    K draws of the model at the unattacked image and at the result of each stage; the image with
              the lowest share of right answers counts (at equal shares the one with the highest loss)
    final     K other draws at each of them; draws at the image that counts are the outcome

The mean of the final shares over the examples is an unbiased estimate of the expected accuracy at the images
that count. The draws are keyed by the job's seed and the first example of a batch, and are the same for every
attack of a job. Only draws of the model that differ from example to example are independent between them.

An example that no choice draw answers rightly is not attacked any further. All passes are without autocast.

B = batch, K = classes in shapes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.attacks.expectation import Expectation, lower
from assay.attacks.judgement import judge
from assay.attacks.kernel import Attack, Examples, Forward, Setting, State, concatenate
from assay.attacks.randomness import Randomness
from assay.attacks.threat import Box, as_column
from assay.workers.evaluation.engine.attack.slots import run_batch
from assay.workers.evaluation.engine.attack.verification import out_of_ball, out_of_box
from assay.workers.evaluation.engine.ledger import ExampleOutcomes, Ledger
from assay.workers.evaluation.engine.loader import Loader, Progress
from assay.workers.evaluation.engine.outcomes import Stage
from assay.workers.evaluation.engine.probe import keyed_answers


@dataclass(frozen=True)
class Drawn:
    """Answers of several draws to a batch."""

    share: Tensor  # Share of the draws that are right, float64 (B,)
    loss: Tensor  # Mean cross-entropy, float64 (B,)
    logits: Tensor  # Mean logits, (B, K)
    first: Tensor  # Logits of the first draw, (B, K)

    def replaced(self, chosen: Tensor, other: Drawn) -> Drawn:
        """The other answers where chosen, (B,), else these."""
        pairs = zip(vars(other).values(), vars(self).values(), strict=True)
        return Drawn(*(torch.where(as_column(chosen, new), new, old) for new, old in pairs))


@dataclass
class _Counts:
    n: int = 0
    forward: int = 0
    backward: int = 0
    zero_gradient: int = 0
    seconds: float = 0.0
    expected: float = 0.0


class _Estimating:
    """The attack with the keys that have its iterates judged by all passes."""

    def __init__(self, attack: Attack) -> None:
        self._attack = attack

    def start(self, setting: Setting, examples: Examples) -> State:
        state = self._attack.start(setting, examples)
        unknown = torch.full_like(state["objective"], torch.nan)
        return state | {"accuracy": unknown, "lowest": unknown}

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        self._attack.step(setting, model, state)


@dataclass(eq=False)
class ExpectedRun:
    """Runs stages over examples, batch by batch, and estimates expected accuracy."""

    loader: Loader
    ledger: Ledger
    progress: Progress
    ids: Sequence[str]
    randomness: Randomness
    device: torch.device
    expectation: Expectation
    box: Box | None

    def __post_init__(self) -> None:
        self._rejected = {"out_of_ball": 0, "out_of_box": 0}
        self._expected = torch.zeros(self.loader.n, dtype=torch.float64)
        self._clean = torch.zeros(self.loader.n, dtype=torch.float64)

    def run(self, stages: Sequence[Attack]) -> ExampleOutcomes:
        """Attacks all examples with all stages."""
        counts = [_Counts() for _ in stages]
        for rows in self.loader.batches():
            self._attack(rows, stages, counts)
            self.progress(self.ledger.done)
        if len(stages) > 1:
            for number, (stage, counted) in enumerate(zip(stages, counts, strict=True)):
                none = torch.empty(0, dtype=torch.int64)
                self.ledger.note_stage(Stage(stage.name, number=number, broken=0, **vars(counted)), none)
        noted = {reason: count for reason, count in self._rejected.items() if count} | self.loader.noted()
        outcomes = self.ledger.close(self.loader.classes, noted)
        return replace(outcomes, expected=self._expected, clean_expected=self._clean)

    def _attack(self, rows: Tensor, stages: Sequence[Attack], counts: Sequence[_Counts]) -> None:
        images, truth = self.loader.images(rows), self.loader.labels_of(rows)
        choice, final = self._judged(rows, images, truth)
        self._clean[rows] = final.share.cpu()
        self.ledger.note_clean(rows, judge(final.first, truth), logits=final.first)
        best = images
        for number, (stage, counted) in enumerate(zip(stages, counts, strict=True)):
            begun, before = time.monotonic(), self.ledger.cost()
            attacked = (choice.share > 0).nonzero().flatten()
            if len(attacked):
                given = (rows[attacked.cpu()], images[attacked], truth[attacked], truth[attacked])
                found = self._found(
                    stage, stages[:number], Examples(*given, choice.logits[attacked]), counted
                )
                found = best.index_copy(0, attacked, found)
                now, then = self._judged(rows, found, truth)
                better = lower(now.share, now.loss, choice.share, choice.loss)
                better = better & self._allowed(stage, images, found)
                best = torch.where(as_column(better, found), found, best)
                choice, final = choice.replaced(better, now), final.replaced(better, then)
            after = self.ledger.cost()
            counted.forward += after[0] - before[0]
            counted.backward += after[1] - before[1]
            counted.seconds += time.monotonic() - begun
            counted.expected += float(final.share.sum())
        self._expected[rows] = final.share.cpu()
        values = judge(final.first, truth)._asdict() | {"loss": final.loss, "logits": final.first}
        self.ledger.settle(rows, values, best, images)

    def _found(
        self, stage: Attack, earlier: Sequence[Attack], examples: Examples, counted: _Counts
    ) -> Tensor:
        again = sum(other.name == stage.name for other in earlier)
        own = self.randomness.of(f"{stage.name}/{again}" if again else stage.name)
        setting = Setting(self.ids, own, box=self.box, second_judgement=True)
        left: list[State] = []
        run_batch(
            _Estimating(stage),
            setting,
            self.loader.attacked,
            examples=examples,
            leave=left.append,
            tell=lambda: None,
            read=lambda state: state,
        )
        state = concatenate(left)
        self.ledger.note_attack(state)
        counted.n += len(examples.rows)
        counted.zero_gradient += int(state["zero_gradient"].sum())
        place = {row: place for place, row in enumerate(state["row"].tolist())}
        order = torch.tensor([place[row] for row in examples.rows.tolist()], device=examples.images.device)
        return state["best"][order]

    def _allowed(self, stage: Attack, images: Tensor, found: Tensor) -> Tensor:
        """Which images are within the ball and the box, bool (B,); counts the others."""
        outside = {
            "out_of_ball": out_of_ball(found - images, stage.ball),
            "out_of_box": out_of_box(found, self.box),
        }
        for reason, which in outside.items():
            self._rejected[reason] += int(which.sum())
        return ~torch.stack(list(outside.values())).any(0)

    def _judged(self, rows: Tensor, images: Tensor, truth: Tensor) -> tuple[Drawn, Drawn]:
        choice, final = (self._drawn(rows, images, truth, purpose) for purpose in ("choice", "final"))
        return choice, final

    def _drawn(self, rows: Tensor, images: Tensor, truth: Tensor, purpose: str) -> Drawn:
        key = (self.randomness.seed, f"expected/{purpose}", self.ids[int(rows[0])])
        with keyed_answers(*key, self.device):
            drawn = [self.loader.exact(images) for _ in range(self.expectation.draws)]
        verdicts = [judge(logits, truth) for logits in drawn]
        self.loader.classes = drawn[0].shape[1]
        self.ledger.note_pass(rows, count=self.expectation.draws)
        return Drawn(
            share=torch.stack([verdict.rank == 0 for verdict in verdicts]).double().mean(0),
            loss=torch.stack([verdict.loss for verdict in verdicts]).mean(0),
            logits=torch.stack(drawn).mean(0),
            first=drawn[0],
        )
