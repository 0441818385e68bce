"""Attacks on text classifiers and word swaps as jobs: planned, run in shards, merged and compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.gallery import Gallery, GalleryText
from assay.service.contract.problems import path_text
from assay.service.metrics.table import joined
from assay.service.metrics.tables.forced_continuation import ForcedContinuation, forced_continuation_metrics
from assay.service.metrics.tables.perplexity import Perplexity
from assay.service.metrics.tables.text_attack import TextAttack, text_attack_metrics
from assay.service.metrics.tables.word_swap import WordSwap, word_swap_metrics
from assay.service.submission.estimate import BACKWARD_COST
from assay.service.submission.validate import validate
from assay.workers import catalog
from assay.workers.data.formats.dataset import MissingData
from assay.workers.jobs import evaluate, plan
from assay.workers.jobs.session import Session
from tests.support.texts import write_sst, write_wikitext
from tests.support.word_vectors import write_vectors
from tests.support.wordnet_files import write_wordnet

LM = {"width": 16, "depth": 1, "heads": 2, "hidden": 16, "length": 8}
CLASSIFIER = {"name": "text_classifier", "params": {"backbone": {"name": "lm", "params": LM}}}
RECIPES = ("deepwordbug", "pruthi", "homoglyph_swaps", "pwws", "textfooler")
GUIDED = ("hotflip", "gcg")


@pytest.fixture(autouse=True)
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_sst(tmp_path)
    write_wikitext(tmp_path, "wt", train="a b c d e", test="a b c d e " * 8)
    write_wordnet(tmp_path / "wordnet")
    write_vectors(tmp_path / "counter-fitted")
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(tmp_path))
    return tmp_path


def spec(*evaluations: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    body = {
        "kind": "evaluate",
        "model": CLASSIFIER,
        "data": {"name": "sst"},
        "evaluations": list(evaluations),
        "execution": {"device": "cpu", "batch_size": 4},
        "save_adversarial": True,
    }
    return validate(load(), body | fields).spec


def run(wanted: dict[str, Any], folder: Path, shard_seconds: float = 1e9) -> list[dict[str, Any]]:
    """The answers of every shard."""
    folder.mkdir(exist_ok=True)
    session, request = Session(), {"spec": wanted, "weights": None, "folder": str(folder)}
    made = plan.run(request | {"shard_seconds": shard_seconds}, session, lambda _: None)["plan"]
    return [
        evaluate.run(request | {"plan": made} | shard, session, lambda _: None) for shard in made["shards"]
    ]


def table(answers: list[dict[str, Any]]) -> dict[str, list[Any]]:
    names = answers[0]["columns"]
    kinds = {"status": TextAttack, "hit_before": ForcedContinuation, "swapped": WordSwap}
    kind = next((found for column, found in kinds.items() if column in names), Perplexity)
    return joined(kind.columns, [answer["columns"] for answer in answers])


@pytest.mark.parametrize("name", [*RECIPES, *GUIDED])
def test_a_recipe_attacks_every_example_once(tmp_path: Path, name: str) -> None:
    answers = run(spec({"name": name}), tmp_path / "job")
    columns = table(answers)
    assert tuple(columns) == tuple(column.name for column in TextAttack.columns if not column.optional)
    metrics = text_attack_metrics(columns)
    assert metrics["accuracy_under_attack"].value is not None
    assert metrics["accuracy"].value is not None
    assert metrics["accuracy_under_attack"].value <= metrics["accuracy"].value
    assert sum(columns["forward"]) == sum(answer["forward_passes"] for answer in answers)
    (found,) = answers[0]["extra"]["artifacts"]
    assert found["name"].startswith(f"adversarial-000-{name}-")
    lines = (tmp_path / "job" / found["name"]).read_text().splitlines()
    broken = [columns["id"][row] for row, status in enumerate(columns["status"]) if status == "succeeded"]
    assert sorted(json.loads(line)["id"] for line in lines) == broken
    right = [columns["id"][row] for row, status in enumerate(columns["status"]) if status != "skipped"]
    shown = gallery_of(answers[0], tmp_path / "job")
    assert sorted(item.id for item in shown.items if item.succeeded) == broken
    assert {item.id for item in shown.items} == set(right)
    for item in shown.items:
        assert isinstance(item, GalleryText)
        assert item.succeeded <= any(token.changed for token in item.perturbed)


def gallery_of(answer: dict[str, Any], folder: Path) -> Gallery:
    return Gallery.model_validate_json((folder / answer["extra"]["gallery"]["name"]).read_bytes())


@pytest.mark.parametrize("name", ["deepwordbug", *GUIDED])
def test_shards_give_what_one_gives(tmp_path: Path, name: str) -> None:
    wanted = spec({"name": name}, execution={"device": "cpu", "batch_size": 1})
    whole = table(run(wanted, tmp_path / "a"))
    parts = run(wanted, tmp_path / "b", shard_seconds=1e-9)
    assert len(parts) > 1
    apart = table(parts)
    assert apart.pop("loss") == pytest.approx(whole.pop("loss"), rel=1e-5)
    assert apart == whole


@pytest.mark.parametrize("name", GUIDED)
def test_swaps_of_words_are_refused_for_data_of_bytes(name: str) -> None:
    data, model = {"name": "lra_text"}, {"name": "sequence_transformer", "params": {"length": 64}}
    with pytest.raises(InvalidSpec) as caught:
        spec({"name": name}, data=data, model=model)
    assert any("swaps whole words" in detail.message for detail in caught.value.details)


def test_the_plan_fails_without_wordnet(tmp_path: Path) -> None:
    wanted = spec({"name": "clean"}, {"name": "pwws", "params": {"wordnet": "sst"}})
    with pytest.raises(MissingData, match=r"index\.noun.*docs/text-caches\.md"):
        run(wanted, tmp_path / "job")


def test_the_plan_fails_without_word_vectors(tmp_path: Path) -> None:
    wanted = spec({"name": "clean"}, {"name": "textfooler", "params": {"vectors": "sst"}})
    with pytest.raises(MissingData, match=r"counter-fitted-vectors\.txt.*docs/text-caches\.md"):
        run(wanted, tmp_path / "job")


def test_a_word_swap_is_planned_and_measured(tmp_path: Path) -> None:
    swap = {"name": "word_swap", "params": {"rate": 0.5, "window": "blocks"}}
    body = {"model": {"name": "lm", "params": LM}, "data": {"name": "wikitext", "params": {"folder": "wt"}}}
    answers = run(
        spec(swap, {"name": "perplexity", "params": {"window": "blocks"}}, **body), tmp_path / "job"
    )
    columns = table([answer for answer in answers if "swapped" in answer["columns"]])
    plain = table([answer for answer in answers if "swapped" not in answer["columns"]])
    assert tuple(columns) == tuple(column.name for column in WordSwap.columns)
    assert columns["tokens"] == plain["tokens"]
    assert columns["unknown_before"] == plain["unknown"]
    metrics = word_swap_metrics(columns)
    assert 0.2 < (metrics["swapped_words"].value or 0) < 0.8
    assert metrics["perplexity"].value != metrics["perplexity_unswapped"].value
    evidence = answers[0]["extra"]["evidence"]
    assert evidence["swapped_unknown"] == evidence["swapped"] == sum(columns["swapped"])
    shown = gallery_of(next(one for one in answers if "swapped" in one["columns"]), tmp_path / "job")
    for item in shown.items:
        assert isinstance(item, GalleryText)
        assert [token.changed for token in item.clean] == [token.changed for token in item.perturbed]
        pairs = zip(item.clean, item.perturbed, strict=True)
        assert all(old.changed or old.text == new.text for old, new in pairs)
        assert any(token.loss is not None for token in item.perturbed)


LANGUAGE = {"model": {"name": "lm", "params": LM}, "data": {"name": "wikitext", "params": {"folder": "wt"}}}


def forced(target: str, **params: Any) -> dict[str, Any]:
    return {"name": "forced_continuation", "params": {"target": target, **params}}


def test_a_forced_continuation_is_planned_and_measured(tmp_path: Path) -> None:
    wanted = spec(forced("c d", steps=3, tried=4), {"name": "perplexity"}, limit=2, **LANGUAGE)
    answers = run(wanted, tmp_path / "job")
    columns = table([answer for answer in answers if "hit" in answer["columns"]])
    assert tuple(columns) == tuple(column.name for column in ForcedContinuation.columns)
    assert (columns["tokens"], columns["words"]) == ([2, 2], [7, 7])
    assert forced_continuation_metrics(columns)["target_perplexity"].value is not None
    session, request = Session(), {"spec": wanted, "weights": None, "folder": str(tmp_path)}
    made = plan.run(request | {"shard_seconds": 1e9}, session, lambda _: None)["plan"]
    prompts, sliding = (shard["cost"] for shard in made["shards"])
    passes = catalog.passes("forced_continuation", wanted["evaluations"][0]["params"])
    # A prompt is one window; the perplexity of a document has one for each of its words.
    window = sliding / 2 / session.data(wanted["data"], "test").mean_tokens
    assert prompts == pytest.approx(2 * window * (passes.forward + BACKWARD_COST * passes.backward))


def test_the_plan_fails_where_the_model_cannot_say_the_target(tmp_path: Path) -> None:
    """Words are known to the worker that reads the data; nothing has been measured yet."""
    for target, message in (
        ("a zebra", r"target has words that are not among the \d+ of 'wikitext': 'zebra'"),
        ("a " * 9, "target has 9 words, allowed are at most 8"),
    ):
        session = Session()
        request = {"spec": spec(forced(target), **LANGUAGE), "weights": None, "folder": str(tmp_path)}
        with pytest.raises(ValueError, match=message):
            plan.run(request | {"shard_seconds": 1e9}, session, lambda _: None)


def test_a_prompt_longer_than_the_model_and_no_target_are_refused_at_submission() -> None:
    def details(item: dict[str, Any]) -> dict[str, str]:
        with pytest.raises(InvalidSpec) as caught:
            spec(item, **LANGUAGE)
        return {path_text(detail.loc): detail.message for detail in caught.value.details}

    assert "prompt must not be larger" in details(forced("a", prompt=9))["evaluations[0].params"]
    missing = details({"name": "forced_continuation"})
    assert missing == {"evaluations[0].params.target": "is required"}
    assert "evaluations[0].params.target" in details(forced(""))
