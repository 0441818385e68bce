"""A model of words as an exported program gives text by text what its network gives."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from assay.models.layers.token_model import TokenModel
from assay.service.catalog.catalog import load
from assay.service.submission.validate import validate
from assay.workers.data.formats.text import SequenceSet, TextSet
from assay.workers.jobs import check, evaluate, plan
from assay.workers.jobs.failures import BadWeights
from assay.workers.jobs.session import Session
from assay.workers.weights.export import export_program
from assay.workers.weights.programs import read_program
from tests.support.texts import write_wikitext
from tests.support.weights import disturb
from tests.support.word_vectors import write_vectors
from tests.support.wordnet_files import write_wordnet

LENGTH = 12
LM = {"width": 16, "depth": 2, "heads": 2, "hidden": 16, "length": LENGTH, "cutoffs": [8]}
WORDS = (
    "a good film about the old actor who made funny children laugh",
    "bad story for one slow night in that big city they hate",
    "this director wrote scenes with warm heart and really strange ideas here",
    "we watch how quiet mice run to work every minute of darkness",
)
MODELS = {
    "sequence": {"name": "text_classifier", "params": {"backbone": {"name": "lm", "params": LM}}},
    "language": {"name": "lm", "params": LM},
}
DATA = {
    "sequence": {"name": "sst"},
    "language": {"name": "wikitext", "params": {"folder": "wt"}},
}
CACHES = {"pwws": {"wordnet": "wordnet"}, "textfooler": {"vectors": "counter-fitted"}}
EVALUATIONS = {
    "sequence": [
        *({"name": name} for name in ("clean", "top1", "token_noise", "deepwordbug", "pruthi")),
        {"name": "homoglyph_swaps"},
        *({"name": name, "params": params} for name, params in CACHES.items()),
    ],
    "language": [
        {"name": "perplexity"},
        {"name": "perplexity", "params": {"window": "strided", "stride": 5}},
        {"name": "perplexity", "params": {"window": "blocks", "length": 7}},
        {"name": "word_swap", "params": {"rate": 0.5, "window": "blocks"}},
    ],
}
MINE = {"name": "exported", "weights": {"checkpoint": "mine"}}


@dataclass(frozen=True)
class Pair:
    """A network's weights and its program."""

    task: str
    weights: Path
    program: Path
    root: Path


def spec_of(task: str, model: dict[str, Any], **changes: Any) -> dict[str, Any]:
    body = {"kind": "evaluate", "data": DATA[task], "evaluations": EVALUATIONS[task]}
    execution = {"device": "cpu", "batch_size": changes.pop("batch_size", 4)}
    return validate(load(), {**body, "model": model, "execution": execution, **changes}).spec


def write_reviews(root: Path) -> None:
    folder = root / "sst"
    folder.mkdir()
    # As many words as the program takes: with more padding than the network has, the last bits of the logits
    # differ, which decides between words of the same importance.
    halves = [[words[:6], words[6:]] for words in (text.split() for text in WORDS)]
    rows = [f"{' '.join(halves[row % 4][0] + halves[row // 4][1])}\t{row % 2}" for row in range(16)]
    for part in ("train", "dev", "test"):
        (folder / f"sst2.{part}.tsv").write_text("\n".join(rows) + "\n")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    root = tmp_path_factory.mktemp("texts")
    write_reviews(root)
    write_wikitext(root, "wt", train=" ".join(f"w{n}" for n in range(20)), test="w1 w2 w3 w19 w7 w9 " * 8)
    write_wordnet(root / "wordnet")
    write_vectors(root / "counter-fitted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_DATA_ROOT", str(root))
        return {task: made(task, root) for task in MODELS}


def made(task: str, root: Path) -> Pair:
    spec = spec_of(task, MODELS[task])
    session = Session()
    network = cast(TokenModel, session.classifier(spec, device="cpu", weights=None).classifier)
    disturb(network)
    words = cast(TextSet, session.data(spec["data"], "test"))
    if task == "sequence":  # every text is near the border
        network.eval()
        texts = cast(SequenceSet, words).tokens(range(len(words)), LENGTH)
        cast(Any, network.backbone).head.bias.data -= network(texts).median(0).values
    weights, program = root / f"{task}.safetensors", root / f"{task}.pt2"
    save_file(network.state_dict(), weights)
    export_program(
        network,
        program,
        task=task,
        length=LENGTH,
        words=words.channels,
        vocabulary=words.vocabulary.sha256,
    )
    return Pair(task, weights, program, root)


@pytest.fixture(params=sorted(MODELS))
def pair(request: pytest.FixtureRequest, pairs: dict[str, Pair], monkeypatch: pytest.MonkeyPatch) -> Pair:
    found = pairs[request.param]
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(found.root))
    return found


def outcomes(spec: dict[str, Any], weights: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The plan, and the answer of each shard."""
    session = Session()
    request = {"spec": spec, "weights": str(weights), "shard_seconds": 1e9, "sources": {}}
    planned = plan.run(request, session, lambda _: None)["plan"]
    common = {"spec": spec, "plan": planned, "weights": str(weights)}
    return planned, [evaluate.run(common | shard, session, lambda _: None) for shard in planned["shards"]]


@pytest.mark.sampled
@pytest.mark.parametrize("batch_size", [1, 5])
def test_every_evaluation_gives_what_the_network_gives(pair: Pair, batch_size: int) -> None:
    native = {**MODELS[pair.task], "weights": {"checkpoint": "native"}}
    planned, found = outcomes(spec_of(pair.task, MINE, batch_size=batch_size), pair.program)
    _, wanted = outcomes(spec_of(pair.task, native, batch_size=batch_size), pair.weights)
    assert not planned["unstated_vocabulary"]
    assert len(found) == len(wanted) == len(EVALUATIONS[pair.task])
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours["columns"].keys() == theirs["columns"].keys()
        for name, column in theirs["columns"].items():
            # A language model of the catalog has losses without logits, the program has logits.
            near = pair.task == "language" and "nll" in name
            assert ours["columns"][name] == (pytest.approx(column, rel=1e-5) if near else column), name
    if pair.task == "sequence":
        statuses = [{*answer["columns"]["status"]} for answer in found if "status" in answer["columns"]]
        assert len(statuses) == 5
        assert {"succeeded", "failed", "skipped"} <= set().union(*statuses)


def test_the_check_says_what_the_program_takes(pair: Pair) -> None:
    model = {"name": "exported", "params": {}, "weights": {"checkpoint": "c"}}
    answer = check.run({"weights": str(pair.program), "spec": {"model": model}}, Session(), lambda _: None)
    assert answer["error"] is None
    data = cast(TextSet, Session().data(spec_of(pair.task, MINE)["data"], "test"))
    verdict = answer["verdict"]
    assert (verdict["classes"], verdict["channels"]) == (data.classes, data.channels)
    assert verdict["program"] == {
        "image_size": None,
        "dtypes": ["float32", "float64", "bfloat16"],
        "random": False,
        "gradients": False,
        "task": pair.task,
        "length": LENGTH,
        "vocabulary": data.vocabulary.sha256,
        "gradients_compared": True,
        "probabilities": False,
    }


class Words(nn.Module):
    """A small model of texts around a function of itself, the vectors of its words and the mask."""

    def __init__(self, words: int, classes: int, answer: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, 6)
        self.head = nn.Linear(6, classes)
        self.answer = answer

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Any:
        return self.answer(self, self.embedding(ids), mask)


def mean(net: Words, vectors: Tensor, mask: Tensor) -> Any:
    kept = vectors * mask[..., None]
    return {"logits": net.head(kept.sum(1) / mask.sum(1, keepdim=True))}


def exported(pair: Pair, path: Path, answer: Any, **how: Any) -> Path:
    data = cast(TextSet, Session().data(spec_of(pair.task, MINE)["data"], "test"))
    torch.manual_seed(0)
    net = Words(data.channels, data.classes, answer)
    export_program(net, path, task=pair.task, words=data.channels, length=LENGTH, **how)
    return path


@pytest.mark.parametrize("kind", ["bool", "int64"])
@pytest.mark.parametrize("pair", ["sequence"], indirect=True)
def test_a_mask_leaves_padding_out(pair: Pair, kind: str, tmp_path: Path) -> None:
    program = exported(pair, tmp_path / "masked.pt2", mean, mask=kind)
    planned, answers = outcomes(spec_of(pair.task, MINE, evaluations=[{"name": "clean"}]), program)
    model = Session().classifier(spec_of(pair.task, MINE), device="cpu", weights=str(program)).classifier
    alone, padded = model(torch.tensor([[3, 4]])), model(torch.tensor([[3, 4, 0, 0, 0]]))
    assert torch.equal(alone, padded)
    assert not torch.equal(alone, model(torch.tensor([[3, 4, 5]])))
    assert planned["unstated_vocabulary"]
    assert len(answers) == 1


@pytest.mark.parametrize("pair", ["language"], indirect=True)
def test_a_program_that_sees_later_words_is_no_predictor(pair: Pair, tmp_path: Path) -> None:
    def backwards(net: Words, vectors: Tensor, mask: None) -> Tensor:
        logits: Tensor = net.head(vectors + vectors.mean(1, keepdim=True))
        return logits

    program = exported(pair, tmp_path / "sees.pt2", backwards)
    _, answers = outcomes(spec_of(pair.task, MINE), program)
    assert answers[0]["extra"]["evidence"]["leaks_future"]
    _, answers = outcomes(spec_of(pair.task, MINE), pair.program)
    assert "leaks_future" not in answers[0]["extra"]["evidence"]


@pytest.mark.parametrize("pair", ["sequence"], indirect=True)
def test_a_vocabulary_is_written_into_a_file_that_is_there(pair: Pair, tmp_path: Path) -> None:
    """As docs/own-models.md does it."""
    path = exported(pair, tmp_path / "mine.pt2", mean, mask="bool")
    assert read_program(path).vocabulary is None
    stated = json.dumps({"vocabulary": "0" * 64})
    torch.export.save(torch.export.load(path), tmp_path / "stated.pt2", extra_files={"assay.json": stated})
    assert read_program(tmp_path / "stated.pt2").vocabulary == "0" * 64


def test_other_words_are_refused(pair: Pair, tmp_path: Path) -> None:
    def answer(net: Words, vectors: Tensor, mask: None) -> Tensor:
        logits: Tensor = net.head(vectors if pair.task == "language" else vectors.mean(1))
        return logits

    other = exported(pair, tmp_path / "other.pt2", answer, vocabulary="0" * 64)
    with pytest.raises(BadWeights, match="is for another vocabulary than the data's"):
        Session().classifier(spec_of(pair.task, MINE), device="cpu", weights=str(other))
    less = Words(7, 7 if pair.task == "language" else 2, answer)
    export_program(less, tmp_path / "less.pt2", task=pair.task, words=7, length=LENGTH)
    with pytest.raises(BadWeights, match=r"has 7 words, the data \d+"):
        Session().classifier(spec_of(pair.task, MINE), device="cpu", weights=str(tmp_path / "less.pt2"))
    model = Session().classifier(spec_of(pair.task, MINE), device="cpu", weights=str(pair.program)).classifier
    words = model.backbone.program.signature.channels  # type: ignore[union-attr]
    for wrong in (-1, words, 2**40):
        with pytest.raises(ValueError, match=f"ids of tokens must be 0 to {words - 1}"):
            model(torch.tensor([[1, wrong]]))
    with pytest.raises(ValueError, match=r"\(batch, 1 to 12\): got \(1, 13\)"):
        model(torch.ones(1, 13, dtype=torch.int64))


def test_data_for_another_task_are_refused_by_the_worker_too(pair: Pair, pairs: dict[str, Pair]) -> None:
    other = next(task for task in MODELS if task != pair.task)
    with pytest.raises(BadWeights, match=f"is for {other}, the data for {pair.task}"):
        Session().classifier(spec_of(pair.task, MINE), device="cpu", weights=str(pairs[other].program))


def test_the_vocabulary_is_in_the_file(pair: Pair) -> None:
    data = cast(TextSet, Session().data(spec_of(pair.task, MINE)["data"], "test"))
    stated = {"vocabulary": data.vocabulary.sha256, "gradients": "compared"}
    assert json.dumps(stated).encode() in pair.program.read_bytes()
