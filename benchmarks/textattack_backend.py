"""The native recipes against TextAttack's own code, text by text, through a service.

    assay serve --state STATE --data-root ROOT
    assay worker --state STATE --data-root ROOT            in an environment with the extra textattack
    python -m benchmarks.textattack_backend [--url URL] [--limit 100] [--job TRAINING]

ROOT has SST-2 in `sst2` (docs/language.md), WordNet in `wordnet` (docs/text-caches.md) and word vectors in
`ppmi-vectors`, which `benchmarks.token_attacks` makes of WikiText-2. A small transformer is trained on SST-2,
or a finished training is named; then two jobs attack the same test sentences.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.service.client import DEFAULT_URL, AssayClient
from benchmarks.token_attacks import say_line

DATA = {"name": "sst", "params": {"folder": "sst2"}}
SIZES = {"width": 64, "depth": 2, "heads": 4, "hidden": 128, "length": 64}
MODEL = {"name": "text_classifier", "params": {"backbone": {"name": "lm", "params": SIZES}}}
TRAINING: dict[str, Any] = {
    "kind": "train",
    "model": MODEL,
    "data": DATA,
    "recipe": {"name": "finetune_text", "params": {"epochs": 4, "learning_rate": 0.001}},
    "execution": {"device": "cpu", "batch_size": 32},
}
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "textfooler": {"vectors": "ppmi-vectors"},
    "pwws": {},
    "deepwordbug": {},
    "pruthi": {},
}
BACKENDS = ("native", "textattack")
Rows = list[dict[str, str]]


def attack(client: AssayClient, training: str, backend: str, limit: int, seed: int) -> list[Rows]:
    """The outcomes of a job, a table for each recipe, in the order of the examples."""
    items = [{"name": name, "params": {**params, "backend": backend}} for name, params in RECIPES.items()]
    model = {**MODEL, "weights": {"job": training}}
    body = {
        "kind": "evaluate",
        "model": model,
        "data": DATA,
        "evaluations": items,
        "limit": limit,
        "seed": seed,
    }
    job = client.wait(client.submit(body).id)
    if job.state != "succeeded":
        raise SystemExit(f"{backend}: {job.error}")
    with tempfile.TemporaryDirectory() as folder:
        names = sorted(a.name for a in client.artifacts(job.id) if a.name.startswith("outcomes-"))
        files = [client.download(job.id, name, Path(folder)) for name in names]
        tables = [list(csv.DictReader(file.read_text().splitlines())) for file in files]
    for row in client.results(job.id).evaluations:
        shown = {name: metric.value for name, metric in row.metrics.items()}
        say_line(f"{backend} {row.name}: {shown}, {row.seconds:.1f} s")
    return tables


def compare(name: str, native: Rows, package: Rows) -> str:
    """A line of a table in Markdown."""
    pairs = list(zip(native, package, strict=True))
    assert all(one["id"] == other["id"] for one, other in pairs)
    right = [(one, other) for one, other in pairs if one["status"] != "skipped"]
    rates = [sum(row["status"] == "succeeded" for row in rows) / len(right) for rows in (native, package)]
    means = [
        sum(int(row["queries"]) for row in rows if row["status"] != "skipped") / len(right)
        for rows in (native, package)
    ]
    columns = ("status", "queries", "changed")
    same = [sum(one[column] == other[column] for one, other in pairs) for column in columns]
    cells = (
        f"`{name}`",
        f"{100 * rates[0]:.1f}",
        f"{100 * rates[1]:.1f}",
        f"{means[0]:.1f}",
        f"{means[1]:.1f}",
        *(f"{count} of {len(pairs)}" for count in same),
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Trains or takes a model, runs both jobs and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", default=DEFAULT_URL)
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--job", help="a finished training on SST-2")
    options = parser.parse_args()
    with AssayClient(options.url) as client:
        training = options.job or client.wait(client.submit(TRAINING).id).id
        say_line(f"training {training}: {client.results(training).evaluations[0].metrics['top1'].value:.3f}")
        found = [attack(client, training, backend, options.limit, options.seed) for backend in BACKENDS]
        say_line(
            "| recipe | broken, % | package | queries | package | same status | same queries | same words |"
        )
        say_line("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for name, native, package in zip(RECIPES, *found, strict=True):
            say_line(compare(name, native, package))
            for one, other in zip(native, package, strict=True):
                if name in ("textfooler", "pwws") and one["status"] != other["status"]:
                    say_line(f"    {one['id']}: {one} against {other}")


if __name__ == "__main__":
    main()
