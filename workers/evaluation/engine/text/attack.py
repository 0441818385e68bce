"""Runs a recipe against a text classifier: many searches at once, with batched queries.

Each example's search is a generator (`attacks/words/search/greedy.py`) that asks about some texts and waits.
For each example the questions and their order are as in a run alone. Within an example a text is put to the
model once, as in TextAttack, and counted as a query each time it comes up. A model's own tokenizer often
reads two candidates as the same tokens, such as an unknown one: they are put to the model once, too, so that
rounding never decides between them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from assay.attacks.expectation import SINGLE, Expectation, share_right
from assay.attacks.judgement import judge
from assay.attacks.kernel import frozen
from assay.attacks.words.search.greedy import Answer
from assay.attacks.words.search.recipe import Finding, Recipe, Session
from assay.attacks.words.search.text import Text
from assay.workers.evaluation.engine.gallery.candidates import answers, safely
from assay.workers.evaluation.engine.gallery.texts import attacked_texts
from assay.workers.evaluation.engine.loader import Progress
from assay.workers.evaluation.engine.probe import keyed_answers
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.engine.text.outcomes import Status, TextOutcomes, TextRow
from assay.workers.evaluation.engine.text.reader import Reader, reading

Ask = Callable[[Sequence[str]], Tensor]
"""The model: texts to logits (B, classes), on any device."""
# Texts put to the model at a time, in as many passes as it needs for them.
MAX_ASKED = 16384
# Passes per example of `expected_rows`, in `PASSES`.
JUDGING = "2 * params.model_draws * (params.eot > 1)"
# A text is mostly right where more than this share of the draws is.
MOSTLY = 0.5


def rule_of_texts(name: str) -> tuple[str, str]:
    """The rule of an attack, by its name, that the data have texts."""
    return "data.sentences == True", f"{name} changes words of texts: the data have none"


@dataclass(frozen=True)
class JudgedText:
    """The model's answer to one text."""

    answer: Answer
    prediction: int
    loss: float
    nonfinite: bool
    confidence: float | None


@dataclass
class _Running:
    """One example whose search is not over."""

    session: Session  # its search
    wanted: list[Text]  # the texts that it waits for
    known: dict[str, JudgedText] = field(default_factory=dict)  # the model's answer to each text so far
    # the same by what the model reads of a text
    read: dict[Hashable, JudgedText] = field(default_factory=dict)

    def questions(self) -> list[str]:
        """The texts not yet seen by the model, each once."""
        return list(dict.fromkeys(text.text for text in self.wanted if text.text not in self.known))


@dataclass(frozen=True)
class TextAttack:
    """A recipe, ready to run: the evaluation of a text attack."""

    recipe: Recipe
    # Passes at each text. Where there are several, fresh draws judge the text that the search ends with, and
    # the unchanged one
    expectation: Expectation = SINGLE

    def measure(self, shard: Shard) -> TextOutcomes:
        """Attacks every text of the shard."""
        reader, data = reader_of(shard), shard.sentences
        with torch.no_grad(), frozen(shard.classifier):
            found = self.run(
                reader,
                [data.sentences[index] for index in shard.order],
                shard.labels,
                shard.ids,
                seed=shard.seed,
                batch_size=shard.batch_size,
                progress=shard.progress,
                read=reader.read if hasattr(data, "tokenizer") and self.expectation.passes == 1 else str,
            )
            if self.expectation.expected:
                rows = expected_rows(
                    reader, found.rows, self.expectation.draws, shard.seed, shard.device, shard.batch_size
                )
                found = replace(found, rows=rows)
        return with_notes(found, shard, reader)

    def run(
        self,
        ask: Ask,
        sentences: Sequence[str],
        labels: Tensor,
        ids: Sequence[str],
        *,
        seed: int,
        batch_size: int,
        progress: Progress | None = None,
        read: Callable[[str], Hashable] = str,
    ) -> TextOutcomes:
        """Attack some examples.

        `ask`: the model, in evaluation mode; `sentences`: (n,); `labels`: int64 (n,), on the CPU; `ids`:
        example ids, which the draws are keyed by, (n,); `batch_size`: examples in hand at a time; `read`:
        what the model reads of a text: of texts for which it is the same only one is asked about.
        """
        running: dict[int, _Running] = {}
        rows: dict[int, TextRow] = {}
        begun = 0
        if self.recipe.ahead is not None:
            self.recipe.ahead(sentences)
        while len(rows) < len(ids):
            while len(running) < batch_size and begun < len(ids):
                session = self.recipe.attack(sentences[begun], ids[begun], seed)
                running[begun] = _Running(session, next(session))
                begun += 1
            self._answer(ask, running, labels, read)
            for number in list(running):
                finding = _go_on(running[number])
                if finding is not None:
                    row = _row(finding, ids[number], int(labels[number]), running.pop(number))
                    rows[number] = replace(row, passes=row.passes * self.expectation.passes)
            if progress is not None:
                progress(len(rows))
        return TextOutcomes(tuple(rows[number] for number in range(len(ids))))

    def _answer(
        self, ask: Ask, running: dict[int, _Running], labels: Tensor, read: Callable[[str], Hashable]
    ) -> None:
        passes = self.expectation.passes
        opened = [(number, text) for number in sorted(running) for text in running[number].questions()]
        keys = {question: read(question[1]) for question in opened}
        new: dict[tuple[int, Hashable], str] = {}
        for number, text in opened:
            if keys[number, text] not in running[number].read:
                new.setdefault((number, keys[number, text]), text)
        questions = [(number, text) for (number, _), text in new.items()]
        for start in range(0, len(questions), MAX_ASKED):
            batch = questions[start : start + MAX_ASKED]
            truth = labels[[number for number, _ in batch]]
            texts = [text for _, text in batch]
            found = judged(torch.stack([ask(texts) for _ in range(passes)]), truth)
            for (number, text), one in zip(batch, found, strict=True):
                running[number].read[keys[number, text]] = one
        for number, text in opened:
            running[number].known[text] = running[number].read[keys[number, text]]


@dataclass(frozen=True)
class FolderTextAttack:
    """A recipe that reads a folder of the data root, opened once the root is known."""

    open: Callable[[Path | None], Recipe]
    expectation: Expectation = SINGLE

    def check(self, root: Path | None) -> None:
        """Reads the folder, and raises what `open` raises."""
        self.open(root)

    def measure(self, shard: Shard) -> TextOutcomes:
        """Attacks every text of the shard; raises what `open` raises."""
        return TextAttack(self.open(shard.root), self.expectation).measure(shard)


def reader_of(shard: Shard) -> Reader:
    """The shard's classifier as a function of sentences."""
    return Reader(
        shard.classifier,
        shard.sentences.cut,
        longest=shard.image_size,
        rows=shard.batch_size,
        device=shard.device,
        autocast=shard.dtype == "bfloat16",
    )


def with_notes(found: TextOutcomes, shard: Shard, reader: Reader) -> TextOutcomes:
    """Outcomes with the evidence of what the model read, and the gallery."""
    data = shard.sentences
    read = reading([data.sentences[index] for index in shard.order], data.encode, shard.image_size)
    notes = {**found.notes, **read, **reader.limit.noted()}
    gallery = safely(lambda: attacked_texts(found.rows, shard.ranks))
    return replace(found, notes=notes, keep_adversarial=shard.save_adversarial, gallery=gallery)


def judged(drawn: Tensor, labels: Tensor) -> list[JudgedText]:
    """Judges texts by the logits of P passes, (P, B, classes), and labels (B,).

    The score is 1 minus the softmax of the true class in float64, and 1 where logits are not finite: these
    count as wrong. Score and loss are means over the passes, the prediction is by the mean logits, and a
    text is broken where no pass is right.
    """
    values = drawn.detach().double().cpu()
    verdicts = [judge(logits, labels) for logits in values]
    scores = torch.stack(
        [
            (1 - logits.softmax(1).gather(1, labels[:, None])[:, 0]).masked_fill(verdict.nonfinite, 1.0)
            for logits, verdict in zip(values, verdicts, strict=True)
        ]
    ).mean(0)
    broken = torch.stack([verdict.rank != 0 for verdict in verdicts]).all(0)
    losses = torch.stack([verdict.loss for verdict in verdicts]).mean(0)
    mean = values.mean(0)
    whole = judge(mean, labels)
    columns = (scores, broken, whole.prediction, losses, whole.nonfinite)
    rows = zip(*(part.tolist() for part in columns), answers(mean), strict=True)
    return [
        JudgedText(Answer(score, wrong), prediction, loss, nonfinite, answer.confidence)
        for score, wrong, prediction, loss, nonfinite, answer in rows
    ]


def expected_rows(
    ask: Ask, rows: Sequence[TextRow], draws: int, seed: int, device: torch.device, batch_size: int
) -> tuple[TextRow, ...]:
    """The rows with the share of fresh draws of the model that are right, before and after the attack.

    The model is in evaluation mode; draws are keyed by the job's seed and the first text of a batch.
    """
    found: list[TextRow] = []
    for start in range(0, len(rows), batch_size):
        batch = rows[start : start + batch_size]
        labels = torch.tensor([row.label for row in batch])
        shares = []
        for texts in ([row.original for row in batch], [row.text for row in batch]):
            with keyed_answers(seed, "expected/final", batch[0].id, device):
                drawn = [ask(texts).detach().double().cpu() for _ in range(draws)]
            shares.append(share_right(torch.stack(drawn), labels).tolist())
        for row, before, after in zip(batch, *shares, strict=True):
            attacked: Status = "succeeded" if after <= MOSTLY else "failed"
            status: Status = attacked if before > MOSTLY else "skipped"
            passes = row.passes + 2 * draws
            found.append(replace(row, status=status, passes=passes, clean_expected=before, expected=after))
    return tuple(found)


def _go_on(example: _Running) -> Finding | None:
    while True:
        try:
            answers = [example.known[text.text].answer for text in example.wanted]
            example.wanted = example.session.send(answers)
        except StopIteration as end:
            finding: Finding = end.value
            return finding
        if example.questions():
            return None


def _row(finding: Finding, example: str, label: int, done: _Running) -> TextRow:
    known = done.known
    last = known[finding.text.text]
    status: Status = "skipped" if finding.skipped else "succeeded" if last.answer.broken else "failed"
    return TextRow(
        id=example,
        label=label,
        prediction=last.prediction,
        status=status,
        loss=last.loss,
        queries=finding.queries,
        passes=len(done.read),
        words=len(finding.original.words),
        changed=finding.changed,
        nonfinite=last.nonfinite,
        original=finding.original.text,
        text=finding.text.text,
        clean_confidence=known[finding.original.text].confidence,
        confidence=last.confidence,
    )
