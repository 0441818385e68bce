"""The stages of an attack in the `pixel` protocol: each attacks the examples left by those before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.attacks.kernel import (
    Attack,
    Examples,
    Setting,
    State,
    WithFirstGradient,
    concatenate,
    judged,
    select,
)
from assay.attacks.randomness import LibraryStream, Randomness
from assay.attacks.threat import PIXELS, Box
from assay.workers.evaluation.engine.attack.error_bound import ErrorBound
from assay.workers.evaluation.engine.attack.slots import run_batch, run_slots
from assay.workers.evaluation.engine.attack.verification import REASONS, Verification, resume
from assay.workers.evaluation.engine.forward import Passes
from assay.workers.evaluation.engine.ledger import ExampleOutcomes, Ledger
from assay.workers.evaluation.engine.loader import Feed, Loader, Progress, Screening
from assay.workers.evaluation.engine.outcomes import Stage

NATIVE = "native"
"""The backend of kernels whose slots may come back."""
# The demand is then a thousand times the first one; an attack that claims success at every step ends.
MAX_REFUSALS = 10
COMPATIBLE = "compatible"
"""The backend of kernels that draw like the library: on its batches, from its stream of random numbers."""


@dataclass(eq=False)
class PixelRun:
    """Runs stages one after the other over the same examples."""

    loader: Loader
    ledger: Ledger
    progress: Progress
    size: int  # slots
    stages: int  # their number
    eight_bit: bool  # judges adversarial examples rounded to 8 bits as well
    ensemble: bool  # the stages are part of the outcomes
    box: Box | None = PIXELS
    bound: ErrorBound | None = None

    def __post_init__(self) -> None:
        self._over = 0
        self._numbers: dict[str, list[int]] = {}
        correct8 = torch.ones(self.loader.n, dtype=torch.bool)
        self._correct8 = correct8 if self.eight_bit else None
        self._rejected = dict.fromkeys(REASONS, 0)
        # Fields of the present stage.
        self._forward = self.loader.forward
        self._verification: Verification | None = None
        self._given = self._zero = 0
        self._broken: list[Tensor] = []
        self._goes_on = self._final = False
        self._back: list[State] = []
        self._refused = torch.zeros(self.loader.n, dtype=torch.int64)
        self._rescued = 0

    def over(
        self,
        runs: Iterable[tuple[int, Attack, Sequence[Passes]]],
        ids: Sequence[str],
        randomness: Randomness,
        staged: Callable[[Stage], None] | None,
    ) -> ExampleOutcomes | None:
        """Outcomes after all stages; None if the bound was refuted, has given up, and all begins again."""
        for number, attack, forwards in runs:
            for forward in forwards:
                final = forward is forwards[-1]
                told = self.stage(attack, ids, randomness, forward, number=number, final=final)
                if self.bound is not None and self.bound.refuted():
                    self.bound.give_up()
                    return None
                if staged is not None:
                    staged(told)
        return self.close()

    def stage(
        self,
        attack: Attack,
        ids: Sequence[str],
        randomness: Randomness,
        forward: Passes,
        *,
        number: int,
        final: bool,
    ) -> Stage:
        """Attacks all remaining examples through this forward pass, and returns the stage's counts."""
        begun, before = time.monotonic(), self.ledger.cost()
        self._forward = forward
        self._verification = Verification(
            self.loader.exact, ball=attack.ball, box=self.box, size=self.size, eight_bit=self.eight_bit
        )
        self._given = self._zero = 0
        self._broken = []
        self._final = final
        # Libraries and their draws know no slot that comes back.
        self._goes_on = attack.backend == NATIVE
        if attack.backend == COMPATIBLE:
            self._in_batches(attack, ids, randomness.seed)
        else:
            own = randomness.of(self._key(attack.name, number))
            self._refilled(attack, Setting(ids, own, box=self.box, second_judgement=True))
        self._decide(all_of_them=True)
        self.loader.note_stage(attack.name, forward)
        self._over += 1
        self._tell()
        after, broken = self.ledger.cost(), torch.cat([torch.empty(0, dtype=torch.int64), *self._broken])
        stage = Stage(
            name=attack.name,
            n=self._given,
            broken=len(broken),
            forward=after[0] - before[0],
            backward=after[1] - before[1],
            zero_gradient=self._zero if final else 0,
            number=number,
            seconds=time.monotonic() - begun,
        )
        if self.ensemble:
            self.ledger.note_stage(stage, broken)
        return stage

    def close(self) -> ExampleOutcomes:
        """The outcomes of all examples."""
        self.ledger.settle_open()
        noted: dict[str, Any] = {reason: count for reason, count in self._rejected.items() if count}
        noted |= self.loader.noted()
        if self.bound is not None and self.bound.iterates:
            noted["judgement"] = self.bound.evidence()
        if count := int((self._refused > 0).sum()):
            noted |= {"refused": count, "refused_then_broken": self._rescued}
        if self._correct8 is not None:
            self._correct8 &= self.ledger.clean_correct
        self._tell()
        return self.ledger.close(self.loader.classes, noted, self._correct8)

    def _key(self, name: str, number: int) -> str:
        """Key of a stage's draws: its name, as if it were alone; another key when it is repeated."""
        numbers = self._numbers.setdefault(name, [])
        if number not in numbers:
            numbers.append(number)
        again = numbers.index(number)
        return f"{name}/{again}" if again else name

    def _refilled(self, attack: Attack, setting: Setting) -> None:
        rows = self.ledger.open if self._over else None
        first, loader = None, self.loader
        as_measured = loader.attacked if loader.forward is loader.exact else None
        if isinstance(attack, WithFirstGradient) and self._forward is as_measured:
            first = partial(attack.first_objective, setting)
        feed = Feed(self.loader, self.ledger, self._tell, rows, first)
        run_slots(
            attack,
            setting,
            self._forward,
            take=feed.take,
            slots=self.size,
            leave=self._leave,
            tell=self._tell,
            read=self._read,
            returned=self._returned,
        )

    def _returned(self, idle: bool) -> State | None:
        if idle:
            self._decide(all_of_them=True)
        states, self._back = self._back, []
        return concatenate(states) if states else None

    def _in_batches(self, attack: Attack, ids: Sequence[str], seed: int) -> None:
        run = partial(run_batch, leave=self._leave, tell=self._tell, read=self._read)
        for examples in self._batches():
            # The library seeds again for each batch.
            setting = Setting(ids, LibraryStream(seed), box=self.box, second_judgement=True)
            run(attack, setting, self._forward, examples=examples)

    def _batches(self) -> Iterator[Examples]:
        if not self._over:
            feed = Feed(self.loader, self.ledger, self._tell)
            while feed.take(self.size) is not None:
                pass
        left = self.ledger.open
        if len(left):
            feed = Feed(self.loader, self.ledger, self._tell, left)
            while (examples := feed.take(self.size)) is not None:
                yield examples

    def _read(self, leaving: State) -> State:
        if (bound := self._forward.bound) is not None and "unjudged" not in leaving:
            held = (~leaving["broken"]).nonzero().flatten()
            if len(held):
                exact = self.loader.exact(leaving["best"][held])
                bound.learn(leaving["logits"][held], exact)
                leaving["logits"] = leaving["logits"].index_copy(0, held, exact)
        return judged(leaving)

    def _leave(self, leaving: State) -> None:
        self.ledger.note_attack(leaving, final=self._final)
        first = leaving["refused"] == 0
        self._given += int(first.sum())
        self._zero += int((leaving["zero_gradient"].cpu() & first).sum())
        judged = "unjudged" not in leaving
        found = leaving["rank"].cpu() > 0 if judged else leaving["unjudged"]
        if not found.all():
            self._hold(select(leaving, ~found))
        if found.any():
            assert self._verification is not None
            self._verification.add(select(leaving, found))
            self._decide()

    def _hold(self, state: State) -> None:
        self.ledger.hold(state["row"], state, state["best"], state["images"])
        self._pass_on(state["row"])

    def _decide(self, *, all_of_them: bool = False) -> None:
        assert self._verification is not None
        while (checked := self._verification.checked(all_of_them=all_of_them)) is not None:
            state, rows, holds = checked.state, checked.state["row"], checked.holds
            self.ledger.note_pass(rows)
            if checked.correct8 is not None and self._correct8 is not None:
                self.ledger.note_pass(rows[holds])
                self._correct8[rows[holds]] = checked.correct8[holds]
            found = select(state, holds)
            self.ledger.settle(found["row"], found, found["best"], found["images"])
            self._broken.append(found["row"])
            self._rescued += int((found["refused"] > 0).sum())
            if checked.right.any():
                self._hold(select(state, checked.right))
            refused = ~(holds | checked.right)
            again = refused & ~state["done"] & (state["refused"] < MAX_REFUSALS) & self._goes_on
            for reason, which in checked.reasons.items():
                self._rejected[reason] += int((which & ~again).sum()) if self._final else 0
            if again.any():
                self._refused[rows[again]] += 1
                self._back.append(resume(select(state, again), checked.discrepancy[again]))
            if (refused & ~again).any():
                self._reinstate(state, refused & ~again)

    def _reinstate(self, state: State, which: Tensor) -> None:
        """An adversarial example that doesn't count: the example stays right.

        Its outcome is then an earlier stage's, or if unknown its own image without a loss.
        """
        rejected = select(state, which)
        for key in ("loss", "logits"):
            rejected[key] = torch.full_like(rejected[key], torch.nan)
        rejected["prediction"] = rejected["truth"]
        rejected["rank"] = torch.zeros_like(rejected["rank"])
        rejected["nonfinite"] = torch.zeros_like(rejected["nonfinite"])
        images = rejected["images"]
        self.ledger.hold(rejected["row"], rejected, images, images)
        self._pass_on(rejected["row"])

    def _pass_on(self, rows: Tensor) -> None:
        if self._over == self.stages - 1:
            self.ledger.settle_held(rows)

    def _tell(self) -> None:
        waiting = self.loader.n - self.ledger.done
        self.progress(self.ledger.done + waiting * self._over // max(self.stages, 1))


def passes_of(
    loader: Loader, attack: Attack, *, screening: Screening | None, bound: ErrorBound | None = None
) -> list[Passes]:
    """The passes that a stage runs with, one after the other (`Loader.passes`).

    An attack that looks for the smallest perturbation, or that counts its queries, would report what a run
    in bfloat16 found: it has only the run without autocast.
    """
    if not attack.gradient or attack.ball is None:
        return [loader.attacked]
    return loader.passes(screening, bound)
