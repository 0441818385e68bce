"""Token-gradient attacks on real text: `python -m benchmarks.token_attacks --data ROOT --state DIR`.

ROOT is a data root with `sst` and `wikitext-2`. Two small models are trained by Assay's own recipes, each
once, and kept in DIR: a classifier of SST-2 and a causal model of WikiText-2. Every attack of a table gets
the same examples, in the engine, in one run.

"drawn blindly" is the same search with random numbers for gradients: as many queries, no guide. `textfooler`
needs word vectors: the published ones are not on every machine, so ROOT/ppmi-vectors is written, from the
words' neighbours in WikiText-2 (Levy and Goldberg 2014, "Neural Word Embedding as Implicit Matrix
Factorization"). `pwws` runs where ROOT/wordnet has WordNet's files. Recipes stop at their first success, with
one more word a step: within a share they succeed where they changed no more. Queries are texts put to the
model, passes these and the gradients, forward and backward; means are over the texts that were right.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy.sparse import coo_matrix, diags
from scipy.sparse.linalg import svds

from assay.attacks.words.search import gradient_swaps
from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.gradient_swaps import Found, Queries, Slopes, Victim
from assay.service.catalog.catalog import load
from assay.service.contract.results import Metric
from assay.service.metrics.statistics.estimates import mean, proportion
from assay.service.metrics.tables.forced_continuation import forced_continuation_metrics
from assay.service.metrics.tables.word_swap import word_swap_metrics
from assay.service.submission.validate import validate
from assay.workers import catalog
from assay.workers.data.formats.sampling import evaluation_order
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.engine.text.token_attack import TokenAttack
from assay.workers.jobs import train
from assay.workers.jobs.evaluate import shard_of
from assay.workers.jobs.session import Session

SIZE = {"width": 64, "depth": 2, "heads": 4, "hidden": 128, "length": 64, "initialization": "scaled"}
LM = {"name": "lm", "params": {**SIZE, "cutoffs": [1000, 8000]}}
CLASSIFIER = {"name": "text_classifier", "params": {"backbone": {"name": "lm", "params": SIZE}}}
TRAININGS: Mapping[str, dict[str, Any]] = {
    "classifier": {
        "model": CLASSIFIER,
        "data": {"name": "sst", "params": {"classes": 2}},
        "recipe": {"name": "finetune_text", "params": {"epochs": 3, "learning_rate": 1e-3}},
        "execution": {"device": "cpu", "batch_size": 32},
    },
    "lm": {
        "model": LM,
        "data": {"name": "wikitext", "params": {"folder": "wikitext-2"}},
        "recipe": {"name": "small_lm", "params": {"epochs": 1, "learning_rate": 3e-3}},
        "execution": {"device": "cpu", "batch_size": 32},
    },
}
SHARES = (0.1, 0.25)
TARGETS = ("season", ". The first", "he was born in London .")
# Of the words' neighbours: how far, how rare, and the length of the vectors.
NEAR, LEAST, WIDTH = 4, 5, 100
TEXTS = 64


def say(*cells: object) -> None:
    """Writes a row of a table."""
    sys.stdout.write("| " + " | ".join(map(str, cells)) + " |\n")
    sys.stdout.flush()


def say_line(text: str) -> None:
    """Writes a line."""
    sys.stdout.write(f"\n{text}\n")


def head(*cells: str) -> None:
    """Writes the head of a table."""
    sys.stdout.write("\n")
    say(*cells)
    say(*["---"] * len(cells))


def shown(metric: Metric, scale: float = 1, digits: int = 1) -> str:
    """A metric with its interval."""
    if metric.value is None:
        return "-"
    value = f"{scale * metric.value:.{digits}f}"
    if metric.ci_low is None or metric.ci_high is None:
        return value
    return f"{value} [{scale * metric.ci_low:.{digits}f}, {scale * metric.ci_high:.{digits}f}]"


def trained(name: str, state: Path) -> Path:
    """Weights of a model; it is trained unless they are there."""
    folder = state / name
    weights = folder / "weights.safetensors"
    if not weights.exists():
        folder.mkdir(parents=True, exist_ok=True)
        begun, spec = time.process_time(), validate(load(), {"kind": "train", **TRAININGS[name]}).spec
        request: Any = {
            "spec": spec, "weights": None, "folder": folder, "job": name, "checkpoint_seconds": 600,
            "cores": 1,
        }  # fmt: skip
        train.run(request, Session(), lambda _: None)
        say_line(f"{name} trained in {time.process_time() - begun:.0f} CPU s")
    return weights


def shard(name: str, state: Path, examples: int) -> Shard:
    """The first examples in the order of sampling, and the trained model."""
    body = {
        **TRAININGS[name],
        "kind": "evaluate",
        "evaluations": [{"name": "top1" if name != "lm" else "perplexity"}],
    }
    del body["recipe"]
    spec = validate(load(), body).spec
    session = Session()
    data = session.data(spec["data"], "test")
    loaded = session.classifier(spec, device="cpu", weights=str(trained(name, state)))
    return shard_of(spec, loaded, data, evaluation_order(data.name, data.ids, examples), batch_size=64)


def run(name: str, of: Shard, **params: Any) -> dict[str, list[Any]]:
    """The outcome columns of an evaluation."""
    columns: dict[str, list[Any]] = catalog.build("evaluation", name, params)().measure(of).columns()
    return columns


@contextmanager
def blindly() -> Iterator[None]:
    """GCG whose gradients are random numbers, drawn anew for each text."""
    search = gradient_swaps.gcg

    def blind(victim: Victim, draws: Draws, *given: int) -> gradient_swaps.GuidedSearch:
        made = torch.Generator().manual_seed(draws.below(2**31))
        guided, answer = search(victim, draws, *given), None
        while True:
            try:
                question = guided.send(answer)
            except StopIteration as end:
                found: Found = end.value
                return found
            if isinstance(question, Slopes):
                answer = torch.randn(*question.texts.shape, victim.vectors.shape[1], generator=made)
            else:
                answer = yield question

    with mock.patch.object(gradient_swaps, "gcg", blind):
        yield


def at_random(victim: Victim, draws: Draws) -> gradient_swaps.GuidedSearch:
    """Texts in which as many words as may be are swapped at random, until one is wrong: no search at all."""
    for queries in range(1, TEXTS + 1):
        text, places = victim.tokens.clone(), list(victim.free)
        for _ in range(min(victim.most, len(places))):
            place = places.pop(draws.below(len(places)))
            text[place] = victim.allowed[draws.below(len(victim.allowed))]
        (heard,) = yield Queries(text[None])
        if heard.broken:
            return Found(text, queries, 0)
    return Found(victim.tokens, TEXTS, 0)


def write_vectors(root: Path) -> None:
    """Vectors of words by their neighbours: positive pointwise mutual information, singular vectors."""
    folder = root / "ppmi-vectors"
    if folder.exists():
        return
    words = (root / "wikitext-2" / "wiki.train.tokens").read_text(encoding="utf-8").lower().split()
    counts = Counter(words)
    known = {word: place for place, word in enumerate(w for w, n in counts.items() if n >= LEAST)}
    ids = np.array([known[word] for word in words if word in known])
    firsts = np.concatenate([ids[:-gap] for gap in range(1, NEAR + 1)])
    seconds = np.concatenate([ids[gap:] for gap in range(1, NEAR + 1)])
    pairs = coo_matrix((np.ones(len(firsts)), (firsts, seconds)), shape=(len(known), len(known))).tocsr()
    pairs = (pairs + pairs.T).tocoo()
    total = pairs.sum()
    often = np.asarray(pairs.sum(1)).ravel()
    shared = np.log(pairs.data * total / (often[pairs.row] * often[pairs.col]))
    positive = coo_matrix((np.maximum(shared, 0), (pairs.row, pairs.col)), shape=pairs.shape).tocsr()
    left, values, _ = svds(positive, WIDTH, random_state=0)
    vectors = left @ diags(np.sqrt(values)).toarray()
    folder.mkdir()
    lines = (
        f"{word} {' '.join(f'{value:.5f}' for value in vectors[place])}\n" for word, place in known.items()
    )
    (folder / "counter-fitted-vectors.txt").write_text("".join(lines), encoding="utf-8")


def classifier(root: Path, state: Path, examples: int) -> None:
    """Attacks on the classifier of SST-2."""
    of = shard("classifier", state, examples)
    write_vectors(root)
    right = run("top1", of)["correct"]
    accuracy = proportion(sum(right), len(right), higher_is_better=True)
    say_line(f"accuracy {shown(accuracy, 100)} %, n = {len(right)}")
    head(
        "attack",
        "share of words, at most",
        "broken of the right ones, %",
        "queries",
        "passes",
        "words changed, %",
    )
    for share in SHARES:
        guided = {"max_share": share}
        report("gcg", share, run("gcg", of, **guided))
        with blindly():
            report("gcg, drawn blindly", share, run("gcg", of, **guided))
        swaps = TokenAttack("random", at_random, share)
        report(f"{TEXTS} random texts", share, swaps.measure(of).columns())
        report("hotflip", share, run("hotflip", of, **guided))
        for least in (0.5, 0.8):
            columns = run("gcg", of, min_cosine=least, **guided)
            report(f"gcg, min_cosine {least}", share, columns)
    recipes = {"textfooler": {"vectors": "ppmi-vectors"}, "deepwordbug": {}, "pwws": {"wordnet": "wordnet"}}
    for name, params in recipes.items():
        if name == "pwws" and not (root / "wordnet").exists():
            say_line("pwws was not run: ROOT has no folder wordnet")
            continue
        columns = run(name, of, **params)
        for share in (*SHARES, 1.0):
            report(name, share, columns)


def report(title: str, share: float, columns: Mapping[str, Sequence[Any]]) -> None:
    """A row: the successes within a share of the words, and the cost of the whole search."""
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    right = [row for row in rows if row["status"] != "skipped"]
    broken = [
        row
        for row in right
        if row["status"] == "succeeded" and row["changed"] <= max(1, int(share * row["words"]))
    ]
    changed = [row["changed"] / row["words"] for row in broken]
    say(
        title,
        share,
        shown(proportion(len(broken), len(right), higher_is_better=False), 100),
        shown(mean([row["queries"] for row in right], "queries"), digits=0),
        shown(mean([row["forward"] + row["backward"] for row in right], "passes"), digits=0),
        f"{100 * float(np.mean(changed)):.1f}" if changed else "-",
    )


def language(state: Path, documents: int) -> None:
    """Swaps against the causal model, and prompts that make it say a target."""
    of = shard("lm", state, 1)
    sizes = np.diff(of.text.starts)
    of = replace(of, order=np.argsort(sizes, kind="stable")[:documents].tolist())
    say_line(f"the {documents} shortest articles, {sizes[of.order].sum()} words")
    head("swaps", "swapped words, %", "perplexity of the others before", "after", "passes a window")
    budget: dict[str, Any] = {"max_share": 0.1, "steps": 6, "tried": 16}
    found = run("gradient_word_swap", of, **budget)
    swap("gradient_word_swap, gcg", found, of)
    with blindly():
        swap("the same, drawn blindly", run("gradient_word_swap", of, **budget), of)
    one = {"search": "hotflip", "max_share": 0.1, "steps": 6, "candidates": 16}
    swap("gradient_word_swap, hotflip", run("gradient_word_swap", of, **one), of)
    eligible = sum(run("word_swap", of, rate=0.0, window="blocks")["eligible"])
    rate = sum(found["swapped"]) / eligible
    for word in ("AAA", "<unk>"):
        changed = {"name": "fixed_word", "params": {"word": word}}
        swap(f"word_swap, {word}", run("word_swap", of, rate=rate, window="blocks", words=changed), of)


def swap(title: str, columns: Mapping[str, Sequence[Any]], of: Shard) -> None:
    """A row of the swaps against the causal model."""
    metrics = word_swap_metrics(columns)
    windows = sum(-(-tokens // of.image_size) for tokens in columns["tokens"])
    passes = sum(columns["forward"]) + sum(columns["backward"])
    before, after = (metrics[name] for name in ("perplexity_unswapped_before", "perplexity_unswapped"))
    say(
        title,
        shown(metrics["swapped_words"], 100),
        shown(before, digits=0),
        shown(after, digits=0),
        f"{passes / windows:.0f}",
    )


def targets(state: Path, documents: int) -> None:
    """Prompts that make the causal model say a target."""
    of = shard("lm", state, documents)
    head(
        "target",
        "search",
        "share",
        "said before, %",
        "after, %",
        "perplexity before",
        "after",
        "queries",
        "passes",
    )
    for target in TARGETS:
        for share, title in ((0.25, "gcg"), (1.0, "gcg"), (1.0, "drawn blindly")):
            params = {"target": target, "max_share": share, "prompt": 32, "steps": 15, "tried": 48}
            if title == "gcg":
                columns = run("forced_continuation", of, **params)
            else:
                with blindly():
                    columns = run("forced_continuation", of, **params)
            metrics = forced_continuation_metrics(columns)
            passes = np.mean(columns["forward"]) + np.mean(columns["backward"])
            say(
                target,
                title,
                share,
                shown(metrics["target_hit_rate_before"], 100),
                shown(metrics["target_hit_rate"], 100),
                f"{metrics['target_perplexity_before'].value:,.0f}",
                shown(metrics["target_perplexity"]),
                shown(metrics["queries"], digits=0),
                f"{passes:.0f}",
            )


def main() -> None:
    """Trains what is missing, and prints three tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.token_attacks", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=150)
    parser.add_argument("--documents", type=int, default=15)
    parser.add_argument("--prompts", type=int, default=40)
    options = parser.parse_args()
    os.environ["ASSAY_DATA_ROOT"] = str(options.data)
    torch.set_num_threads(1)
    for part in (
        partial(classifier, options.data, options.state, options.texts),
        partial(language, options.state, options.documents),
        partial(targets, options.state, options.prompts),
    ):
        begun = time.process_time()
        part()
        say_line(f"{time.process_time() - begun:.0f} CPU s")


if __name__ == "__main__":
    main()
