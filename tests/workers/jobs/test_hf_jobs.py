"""Pulled Hugging Face models as jobs, from submission to metrics: the numbers of transformers itself."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch.nn import functional

from assay.attacks.words.fixed_word import fixed_word
from assay.attacks.words.search.word_swap import WordSwap
from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.weights.pulled import parse_reference
from assay.service.metrics.table import Context, joined
from assay.service.metrics.tables.perplexity import Perplexity, perplexity_metrics
from assay.service.metrics.tables.text_attack import TextAttack
from assay.service.metrics.tables.word_swap import WordSwap as WordSwapTable
from assay.service.submission.validate import validate
from assay.workers.data.document_table import document_table
from assay.workers.data.formats.own_tokens import TokenizedDocuments, document_text
from assay.workers.data.wikitext import wikitext
from assay.workers.jobs import evaluate, plan
from assay.workers.jobs.session import Session
from assay.workers.weights.pulled import keep, name_commit
from tests.support import hf_models
from tests.support.tables import encoded, write_table
from tests.support.texts import write_wikitext
from tests.support.word_vectors import write_vectors
from tests.support.wordnet_files import write_wordnet

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODELS = {
    "bert": ("hf_text_classifier", hf_models.bert),
    "gpt2": ("hf_causal_lm", hf_models.gpt2),
    "vit": ("hf_image_classifier", hf_models.vit),
}
DIGITS = [str(digit) for digit in range(10)]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root and a weights folder with what `assay pull` would have left there."""
    data, weights = tmp_path / "data", tmp_path / "weights"
    for name, (_, folder) in MODELS.items():
        staged = weights / ".partial" / name
        shutil.copytree(folder(), staged)
        reference = f"hf:org/{name}@{COMMIT}"
        keep(staged, weights, parse_reference(reference), revision=COMMIT, license="mit", config={})
        name_commit(weights, f"org/{name}", "main", COMMIT)
    data.mkdir()
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(data))
    monkeypatch.setenv("ASSAY_WEIGHTS_ROOT", str(weights))
    return data


def body(
    model: str, data: Mapping[str, Any], *evaluations: Mapping[str, Any], **fields: Any
) -> dict[str, Any]:
    params = {"repository": f"org/{model}", **fields.pop("params", {})}
    return {
        "kind": "evaluate",
        "model": {"name": MODELS[model][0], "params": params, "weights": {"pulled": True}},
        "data": data,
        "evaluations": list(evaluations),
        "execution": {"device": "cpu", "batch_size": fields.pop("batch_size", 4)},
        "save_adversarial": True,
        **fields,
    }


def run(
    wanted: Mapping[str, Any], folder: Path, shard_seconds: float = 1e9
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The plan and the answers of every shard."""
    folder.mkdir(exist_ok=True)
    spec = validate(load(), wanted).spec
    session, request = Session(), {"spec": spec, "weights": None, "folder": str(folder)}
    made = plan.run(request | {"shard_seconds": shard_seconds}, session, lambda _: None)["plan"]
    return made, [
        evaluate.run(request | {"plan": made} | one, session, lambda _: None) for one in made["shards"]
    ]


def write_reviews(root: Path, count: int = 12) -> tuple[list[str], list[int]]:
    """Texts whose labels are the model's answers, but for each sixth."""
    texts, _ = hf_models.reviews(count, seed=5)
    pipe = transformers.pipeline("text-classification", model=str(hf_models.bert()))
    answers = [hf_models.LABELS.index(one["label"]) for one in pipe(texts, truncation=True)]
    labels = [answer if number % 6 else 1 - answer for number, answer in enumerate(answers)]
    rows = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
    write_table(root / "reviews" / "test.parquet", rows, classes=hf_models.LABELS)
    return texts, labels


REVIEWS = {"name": "text_table", "params": {"folder": "reviews"}}


@pytest.mark.costly
def test_accuracy_on_texts_is_that_of_the_pipeline_example_by_example(root: Path, tmp_path: Path) -> None:
    texts, labels = write_reviews(root)
    made, (answer,) = run(body("bert", REVIEWS, {"name": "clean"}), tmp_path / "job")
    pipe = transformers.pipeline("text-classification", model=str(hf_models.bert()))
    theirs = [hf_models.LABELS.index(one["label"]) for one in pipe(texts, truncation=True)]
    assert answer["columns"]["prediction"] == theirs
    assert answer["columns"]["correct"] == [one == label for one, label in zip(theirs, labels, strict=True)]
    assert made["joined"] == {"labels_by": "name", "labels": ["negative", "positive"], "own_tokenizer": True}
    assert not made["untrained"]


@pytest.mark.costly
def test_accuracy_on_images_is_that_of_the_pipeline_example_by_example(root: Path, tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    images = [draws.integers(0, 256, (24, 24, 3), dtype=np.uint8) for _ in range(30)]
    pipe = transformers.pipeline("image-classification", model=str(hf_models.vit()))
    theirs = [int(one[0]["label"]) for one in pipe([Image.fromarray(one) for one in images])]
    labels = [answer if number % 6 else (answer + 1) % 10 for number, answer in enumerate(theirs)]
    rows = [{"image": encoded(one), "label": label} for one, label in zip(images, labels, strict=True)]
    write_table(root / "pictures" / "test.parquet", rows, classes=DIGITS)
    data = {"name": "image_table", "params": {"folder": "pictures"}}
    attack = {"name": "pgd", "params": {"epsilon": "8/255", "steps": 3}}
    made, (clean, attacked) = run(body("vit", data, {"name": "clean"}, attack), tmp_path / "job")
    assert clean["columns"]["prediction"] == theirs
    assert sum(clean["columns"]["correct"]) == 25
    assert len({*theirs}) > 2
    assert made["image_size"] == 24
    assert sum(attacked["columns"]["correct"]) < 10
    assert attacked["extra"]["evidence"].get("zero_gradient", 0) == 0


RECIPES = ("textfooler", "pwws", "deepwordbug", "pruthi", "homoglyph_swaps")


@pytest.mark.costly
def test_word_attacks_flip_what_the_pipeline_reads_at_any_batch_size(root: Path, tmp_path: Path) -> None:
    _, labels = write_reviews(root)
    write_wordnet(root / "wordnet")
    write_vectors(root / "counter-fitted")
    evaluations = [{"name": name} for name in RECIPES]
    columns, files = [], []
    for size, seconds in ((4, 1e9), (7, 1e-9)):
        folder = tmp_path / f"job{size}"
        wanted = body("bert", REVIEWS, *evaluations, batch_size=size)
        made, answers = run(wanted, folder, seconds)
        tables = [
            joined(
                TextAttack.columns,
                [
                    one["columns"]
                    for one, shard in zip(answers, made["shards"], strict=True)
                    if shard["evaluation"] == number
                ],
            )
            for number in range(len(RECIPES))
        ]
        columns.append(
            [
                {key: table[key] for key in ("id", "prediction", "status", "queries", "changed")}
                for table in tables
            ]
        )
        found = [
            json.loads(line)
            for path in sorted(folder.glob("*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        files.append(sorted((one["id"], one["text"], one["prediction"]) for one in found))
    assert columns[0] == columns[1]
    assert files[0] == files[1]
    assert all("skipped" in table["status"] for table in columns[0])
    assert len(files[0]) > 20
    pipe = transformers.pipeline("text-classification", model=str(hf_models.bert()))
    again = pipe([text for _, text, _ in files[0]], truncation=True)
    truth = {f"test/{number:07d}": label for number, label in enumerate(labels)}
    for (example, text, prediction), theirs in zip(files[0], again, strict=True):
        assert hf_models.LABELS.index(theirs["label"]) == prediction != truth[example], text


def write_documents(root: Path) -> list[str]:
    texts = [" ".join(hf_models.reviews(8, seed=seed)[0]) for seed in range(4)]
    texts.insert(2, "")
    write_table(root / "documents" / "test.jsonl", [{"text": text} for text in texts])
    return texts


DOCUMENTS = {"name": "document_table", "params": {"folder": "documents"}}


@pytest.mark.costly
@torch.no_grad()
@pytest.mark.parametrize("stride", [1, 8, 32])
def test_perplexity_is_that_of_transformers(stride: int, root: Path, tmp_path: Path) -> None:
    texts = write_documents(root)
    model = transformers.AutoModelForCausalLM.from_pretrained(hf_models.gpt2()).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(hf_models.gpt2())
    whole = "".join(f"{text}\n\n" for text in texts)
    numbers = torch.tensor(tokenizer(whole)["input_ids"])
    total, scored, length = 0.0, 1, 32
    while scored < len(numbers):  # the last `stride` targets of each window, all of the first one
        stop = min(scored + (length if scored == 1 else stride), len(numbers))
        start = (
            max(0, stop - 1 - length)
            if scored > 1 and stop < len(numbers)
            else (scored - 1 - length + stride if scored > 1 else 0)
        )
        logits = model(numbers[None, start : stop - 1]).logits[0, scored - stop :]
        total += float(functional.cross_entropy(logits.double(), numbers[scored:stop], reduction="sum"))
        scored = stop
    window = {"window": "strided", "stride": stride}
    made, answers = run(
        body("gpt2", DOCUMENTS, {"name": "perplexity", "params": window}), tmp_path / "job", 1e-9
    )
    rows = joined(Perplexity.columns, [one["columns"] for one in answers])
    assert len(answers) == len(texts)
    assert sum(rows["tokens"]) == len(numbers) - 1
    assert math.fsum(rows["nll"]) == pytest.approx(total, rel=1e-6)
    assert rows["words"] == [len(text.split()) for text in texts]
    assert rows["unknown"] == [0] * len(texts)
    found = Perplexity().summarise(rows, Context()).metrics
    assert found["perplexity"].value == pytest.approx(math.exp(total / (len(numbers) - 1)), rel=1e-6)
    words = sum(len(text.split()) for text in texts)
    assert found["perplexity_per_word"].value == pytest.approx(math.exp(total / words), rel=1e-6)
    assert made["joined"] == {"labels_by": None, "labels": [], "own_tokenizer": True}


def test_swapped_words_are_tokenised_anew_and_kept_ones_are_the_same_tokens(
    root: Path, tmp_path: Path
) -> None:
    write_documents(root)
    swap = {"name": "word_swap", "params": {"rate": 0.3, "window": "blocks"}}
    plain = {"name": "perplexity", "params": {"window": "blocks"}}
    _, (swapped, before) = run(body("gpt2", DOCUMENTS, swap, plain), tmp_path / "job")
    rows = swapped["columns"]
    kept = [tokens - changed for tokens, changed in zip(rows["tokens"], rows["swapped"], strict=True)]
    assert 0 < sum(kept) < sum(rows["tokens"])
    metrics = WordSwapTable().summarise(rows, Context()).metrics
    assert metrics["perplexity_unswapped_before"].value != metrics["perplexity_unswapped"].value
    _, (none,) = run(
        body("gpt2", DOCUMENTS, {**swap, "params": {"rate": 0.0, "window": "blocks"}}), tmp_path / "none"
    )
    same = none["columns"]
    assert same["kept_nll_before"] == same["kept_nll"] == same["nll"] == before["columns"]["nll"]
    assert same["tokens"] == before["columns"]["tokens"]


def test_documents_of_words_are_read_as_lines(root: Path) -> None:
    write_wikitext(root, "wt", train="a b", test="a b\nc d\n")
    data = wikitext(root, "test", folder="wt")
    words = data.words(0)
    lines = document_text(data, 0).split("\n")
    assert len(lines) - 1 == words.count("<eos>")
    assert [word for line in lines for word in line.split()] == [word for word in words if word != "<eos>"]
    tokenizer = load_tokenizer()
    view = TokenizedDocuments(data, tokenizer)
    assert view.starts[-1] == len(view.stream())
    assert view.channels == view.classes == len(view.vocabulary)
    write_documents(root)
    documents = TokenizedDocuments(document_table(root, "test", folder="documents"), tokenizer)
    text = "".join(documents.texts)
    spans = tokenizer.stream(text).spans.tolist()
    for number, (start, stop) in enumerate(zip(documents.starts, documents.starts[1:], strict=False)):
        own = "".join(text[a:b] for a, b in spans[start:stop])
        assert own == documents.texts[number]
    assert WordSwap(0.5, fixed_word(), 0)(documents.words(0), "x").eligible > 0


def load_tokenizer() -> Any:
    model, _ = hf_models.built("hf_causal_lm")
    return model.tokenizer


CASES: Sequence[tuple[str, dict[str, Any], str]] = [
    ("hotflip", REVIEWS, "tokens of a model with a tokenizer of its own are pieces of words"),
    ("gcg", REVIEWS, "tokens of a model with a tokenizer of its own are pieces of words"),
    ("gradient_word_swap", DOCUMENTS, "tokens of a model with a tokenizer of its own are pieces of words"),
]


@pytest.mark.parametrize(("name", "data", "message"), CASES)
def test_attacks_on_whole_words_are_refused_with_the_reason(
    name: str, data: dict[str, Any], message: str
) -> None:
    model = "bert" if data is REVIEWS else "gpt2"
    with pytest.raises(InvalidSpec) as refusal:
        validate(load(), body(model, data, {"name": name}))
    assert any(message in detail.message for detail in refusal.value.details)


def test_a_model_without_its_files_or_for_training_is_refused() -> None:
    wanted = body("bert", REVIEWS, {"name": "clean"})
    wanted["model"]["weights"] = None
    with pytest.raises(InvalidSpec) as refusal:
        validate(load(), wanted)
    (detail,) = refusal.value.details
    assert (detail.loc, detail.allowed) == (["model", "weights"], '{"pulled": true}')
    training = {
        "kind": "train",
        "model": {"name": "hf_text_classifier", "params": {"repository": "org/bert"}},
        "data": REVIEWS,
        "recipe": {"name": "finetune_text"},
    }
    with pytest.raises(InvalidSpec) as refusal:
        validate(load(), training)
    assert [detail.loc for detail in refusal.value.details] == [["model", "name"]]


def test_data_with_other_classes_name_both_numbers(root: Path, tmp_path: Path) -> None:
    write_table(root / "reviews" / "test.csv", [{"text": "a", "label": number} for number in range(3)])
    with pytest.raises(
        ValueError, match=r"the model has 2 classes \(negative, positive\), the data set has 3"
    ):
        run(body("bert", REVIEWS, {"name": "clean"}), tmp_path / "job")


@pytest.mark.parametrize(
    ("label", "said"),
    [
        (
            "possitive",
            r"the data set has 3: .*; 'possitive' has 1 row: .*test\.csv row 3 \(the first is 0\)$",
        ),
        ("", r"test\.csv row 3 \(the first is 0\): column 'label' is '', none of the 2 classes"),
    ],
)
def test_a_misspelt_label_is_found(root: Path, tmp_path: Path, label: str, said: str) -> None:
    names = ["negative", "positive", "positive", label, "negative"]
    write_table(root / "reviews" / "test.csv", [{"text": "a", "label": name} for name in names])
    with pytest.raises(ValueError, match=said):
        run(body("bert", REVIEWS, {"name": "clean"}), tmp_path / "job")


def test_perplexity_per_word_needs_the_words() -> None:
    rows = {"id": ["a"], "nll": [2.0], "tokens": [4], "unknown": [0], "forward": [1], "backward": [0]}
    assert set(Perplexity().summarise(rows, Context()).metrics) == {"perplexity"}
    assert perplexity_metrics(rows)["perplexity"].value == pytest.approx(math.exp(0.5))
