"""Many searches at once, against a model in plain Python."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from assay.attacks.words.search.draws import Draws
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.evaluation.deepwordbug import deepwordbug
from assay.workers.evaluation.engine.text import attack as text_attack
from assay.workers.evaluation.engine.text.attack import TextAttack
from assay.workers.evaluation.engine.text.outcomes import TextOutcomes
from assay.workers.evaluation.homoglyph_swaps import homoglyph_swaps
from assay.workers.evaluation.pruthi import pruthi
from assay.workers.evaluation.pwws import pwws
from assay.workers.evaluation.textfooler import textfooler
from tests.support.sentences import SENTENCES
from tests.support.word_models import probabilities
from tests.support.word_vectors import write_vectors
from tests.support.wordnet_files import write_wordnet

TEXTS = [text for text, _ in SENTENCES]
LABELS = torch.tensor([label for _, label in SENTENCES])
IDS = [str(number) for number in range(len(SENTENCES))]
VECTORS = json.loads((Path(__file__).resolve().parents[4] / "vectors" / "textattack.json").read_text("utf-8"))
SEED = 3


class Model:
    """Notes the batches that it is asked about."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> Tensor:
        self.batches.append(list(texts))
        shares = [probabilities(text) for text in texts]
        return torch.tensor([[math.log(share) for share in row] for row in shares], dtype=torch.float64)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("root")
    write_wordnet(folder / "wordnet")
    write_vectors(folder / "counter-fitted")
    return folder


def made(name: str, root: Path) -> TextAttack:
    builders = {"deepwordbug": deepwordbug, "pruthi": pruthi, "homoglyph_swaps": homoglyph_swaps}
    caches = {"pwws": pwws, "textfooler": textfooler}
    return TextAttack(caches[name]().open(root)) if name in caches else builders[name]()


def run(
    attack: TextAttack, batch_size: int, rows: Sequence[int] = range(len(IDS))
) -> tuple[TextOutcomes, Model]:
    model = Model()
    texts, ids = [TEXTS[row] for row in rows], [IDS[row] for row in rows]
    return attack.run(model, texts, LABELS[list(rows)], ids, seed=SEED, batch_size=batch_size), model


@pytest.mark.parametrize("name", sorted(VECTORS["recipes"]))
def test_together_every_example_gets_what_textattack_finds_alone(root: Path, name: str) -> None:
    outcomes, model = run(made(name, root), batch_size=8)
    wanted = VECTORS["recipes"][name]
    assert [row.text for row in outcomes.rows] == [row["text"] for row in wanted]
    assert [row.queries for row in outcomes.rows] == [row["queries"] for row in wanted]
    assert [row.status for row in outcomes.rows] == [row["status"] for row in wanted]
    assert sorted(text for batch in model.batches for text in batch) == sorted(
        text for row in wanted for text in row["asked"]
    )
    assert [row.passes for row in outcomes.rows] == [len(row["asked"]) for row in wanted]


def test_questions_of_many_examples_go_to_the_model_together(root: Path) -> None:
    together, alone = run(made("deepwordbug", root), 16)[1], run(made("deepwordbug", root), 1)[1]
    assert max(map(len, together.batches)) > 5 * max(map(len, alone.batches))
    assert 5 * len(together.batches) < len(alone.batches)


def test_no_more_texts_than_a_bound_are_asked_about_together(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(made("deepwordbug", root), 16)
    monkeypatch.setattr(text_attack, "MAX_ASKED", 10)
    outcomes, model = run(made("deepwordbug", root), 16)
    assert max(map(len, model.batches)) == 10
    assert outcomes == whole[0]


def test_an_outcome_depends_on_no_neighbour(root: Path) -> None:
    whole = run(made("deepwordbug", root), 16)[0].rows
    for rows in ((3, 4, 5), (19, 0)):
        assert run(made("deepwordbug", root), 2, rows)[0].rows == tuple(whole[row] for row in rows)


def test_progress_counts_examples(root: Path) -> None:
    seen: list[int] = []
    attack = made("pruthi", root)
    attack.run(Model(), TEXTS, LABELS, IDS, seed=SEED, batch_size=4, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == len(IDS)


def test_columns_tell_skipped_from_failed(root: Path) -> None:
    columns = run(made("deepwordbug", root), 8)[0].columns()
    rows = zip(columns["status"], columns["clean_correct"], columns["correct"], strict=True)
    assert set(rows) == {("skipped", False, False), ("succeeded", True, False), ("failed", True, True)}
    skipped = [row for row, status in enumerate(columns["status"]) if status == "skipped"]
    assert [(columns["queries"][row], columns["changed"][row]) for row in skipped] == [(1, 0), (1, 0)]


def test_adversarial_texts_are_lines_of_json(root: Path) -> None:
    outcomes, _ = run(made("homoglyph_swaps", root), 8)
    lines = [json.loads(line) for line in outcomes.adversarial().decode().splitlines()]
    assert [line["id"] for line in lines] == [row.id for row in outcomes.rows if row.status == "succeeded"]
    for line in lines:
        shares = probabilities(line["text"])
        assert shares.index(max(shares)) == line["prediction"] != line["label"]
        assert line["original"] == TEXTS[int(line["id"])]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_wrong(value: float) -> None:
    def model(texts: Sequence[str]) -> Tensor:
        return torch.tensor([[0.0, value] if "x" in text else [1.0, 0.0] for text in texts])

    labels = torch.tensor([0, 0])
    found = deepwordbug().run(model, ["one two", "x"], labels, ["a", "b"], seed=0, batch_size=4)
    assert found.rows[1].status == "skipped"
    assert found.rows[1].prediction == -1
    assert found.columns()["loss"][1] is None
    assert found.evidence()["nonfinite"] >= 1


def test_a_missing_wordnet_says_what_to_do(tmp_path: Path, root: Path) -> None:
    for attack, given in ((pwws(), None), (pwws(), tmp_path), (pwws(wordnet="elsewhere"), root)):
        with pytest.raises(MissingData, match=r"docs/text-caches\.md"):
            attack.check(given)
    (tmp_path / "wordnet").mkdir()
    with pytest.raises(MissingData, match=r"index\.noun, data\.noun.* not found\. docs/text-caches\.md"):
        pwws().check(tmp_path)
    with pytest.raises(ValueError, match=r"must not contain"):
        pwws(wordnet="../wordnet").check(root)


def test_a_broken_wordnet_is_named(tmp_path: Path) -> None:
    folder = write_wordnet(tmp_path / "wordnet")
    (folder / "index.verb").write_text("nothing of it\n")
    with pytest.raises(CorruptData, match=r"index\.verb is not an index of WordNet"):
        pwws().check(tmp_path)


def test_missing_word_vectors_say_what_to_do(tmp_path: Path, root: Path) -> None:
    wrong = textfooler(vectors="counter-fited")
    for attack, given in ((textfooler(), None), (textfooler(), tmp_path), (wrong, root)):
        with pytest.raises(MissingData, match=r"docs/text-caches\.md"):
            attack.check(given)
    with pytest.raises(MissingData, match=r"counter-fitted-vectors\.txt .*not found\. docs/text-caches\.md"):
        textfooler(vectors="wordnet").check(root)
    with pytest.raises(ValueError, match=r"must not contain"):
        textfooler(vectors="../counter-fitted").check(root)


def test_broken_word_vectors_are_named_and_read_again_once_they_are_mended(tmp_path: Path) -> None:
    file = tmp_path / "counter-fitted" / "counter-fitted-vectors.txt"
    file.parent.mkdir()
    file.write_text("a 1 2\nb 1\n")
    with pytest.raises(CorruptData, match=r"line 2 has 1 numbers, line 1 has 2.*docs/text-caches\.md"):
        textfooler().check(tmp_path)
    for text in ("a 1 2\nb 1 2\n", "a 1 2\nc 1 2.5\n"):
        file.write_text(text)
        (change,) = textfooler().open(tmp_path).changes
        assert change.candidates("a", Draws()) == [text[6]]


def test_the_numbers_of_textfooler_are_its_parameters(root: Path) -> None:
    texts = ["a film"]
    asked = {
        (neighbours, least): TextAttack(textfooler(neighbours=neighbours, min_similarity=least).open(root))
        .run(
            lambda texts: torch.tensor([[1.0, 0.0]] * len(texts)),
            texts,
            LABELS[:1] * 0,
            ["a"],
            seed=0,
            batch_size=8,
        )
        .rows[0]
        .queries
        for neighbours, least in ((50, 0.5), (7, 0.5), (50, 1.0), (50, 0.0))
    }
    # The text, the text without the word, and what the word may become.
    assert asked == {(50, 0.5): 52, (7, 0.5): 9, (50, 1.0): 2, (50, 0.0): 52}


def test_a_text_of_signs_alone_has_nothing_to_change() -> None:
    found = deepwordbug().run(
        lambda texts: torch.tensor([[1.0, 0.0]] * len(texts)),
        ["...", ""],
        LABELS[:2] * 0,
        ["a", "b"],
        seed=0,
        batch_size=2,
    )
    assert [(row.status, row.queries, row.words, row.changed) for row in found.rows] == [
        ("failed", 1, 0, 0)
    ] * 2
