"""Every attention mechanism, trained and attacked on time series over seeds, through a running service.

    python -m benchmarks.mechanisms --write docs/mechanisms.jobs.json      the list of jobs of one seed
    python -m benchmarks.mechanisms --url http://127.0.0.1:8000 [--seeds 3] [--sets motions ...]

The second trains and attacks with each seed, and prints a table: mean over seeds, with the 95 % interval of
Student's t. The sets of the UEA archive are files below the service's ASSAY_DATA_ROOT.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.service.catalog.catalog import load
from assay.service.client import DEFAULT_URL, AssayClient

# For each set its data, the length of its longest series, and epochs that suffice.
SETS: Mapping[str, tuple[Mapping[str, Any], int, int]] = {
    "motions": ({"name": "motions"}, 48, 15),
    "JapaneseVowels": ({"name": "uea", "params": {"dataset": "JapaneseVowels"}}, 29, 15),
    "BasicMotions": ({"name": "uea", "params": {"dataset": "BasicMotions"}}, 100, 60),
}
SIZE = {"width": 32, "depth": 2, "heads": 4, "hidden": 64}
EPSILON = 0.1
# Quantiles of Student's t for a two-sided 95 % interval, by degrees of freedom.
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
# Settings that differ from a mechanism's defaults here, and why: S has the length of the series.
LENGTH_OF = {"scaled_learned": "patches"}
# Conv2D needs an image; RPC's unmasked form and its causal one are both here.
LEFT_OUT = ("conv2d_attention",)


def mechanisms() -> list[str]:
    """Names of the attention mechanisms of the catalog that take time series."""
    return [name for name in load().names("attention") if name not in LEFT_OUT]


def pair(mechanism: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The training of a mechanism on a set, and its evaluation without the weights."""
    data, length, epochs = SETS[name]
    attention: dict[str, Any] = {"name": mechanism}
    if mechanism in LENGTH_OF:
        attention["params"] = {LENGTH_OF[mechanism]: length}
    model = {"name": "series_transformer", "params": {**SIZE, "length": length, "attention": attention}}
    execution = {"device": "cpu", "batch_size": 32}
    train = {
        "kind": "train",
        "name": f"train {mechanism} on {name}",
        "data": data,
        "model": model,
        "recipe": {"name": "small_series", "params": {"epochs": epochs}},
        "execution": execution,
    }
    evaluate = {
        "kind": "evaluate",
        "name": f"{mechanism} on {name}",
        "data": data,
        "model": {"name": "series_transformer"},
        "evaluations": [
            {"name": "clean"},
            {"name": "series_noise"},
            {"name": "pgd", "params": {"epsilon": EPSILON, "steps": 20}},
        ],
        "execution": {**execution, "batch_size": 100},
    }
    return train, evaluate


def job_list(names: Sequence[str]) -> dict[str, Any]:
    """A list for `assay submit`: every mechanism on these sets."""
    jobs = []
    for name in names:
        for mechanism in mechanisms():
            train, evaluate = pair(mechanism, name)
            weights = {"job": f"@{train['name']}"}
            jobs += [train, {**evaluate, "model": {**evaluate["model"], "weights": weights}}]
    return {"jobs": jobs}


def submit(client: AssayClient, names: Sequence[str], seeds: int) -> dict[tuple[str, str], list[str]]:
    """Submits everything; the evaluations' ids by mechanism and set."""
    ids: dict[tuple[str, str], list[str]] = defaultdict(list)
    for seed in range(seeds):
        for name in names:
            for mechanism in mechanisms():
                train, evaluate = pair(mechanism, name)
                source = client.submit({**train, "seed": seed}).id
                model = {**evaluate["model"], "weights": {"job": source}}
                ids[mechanism, name].append(client.submit({**evaluate, "model": model, "seed": seed}).id)
    return ids


def interval(values: Sequence[float]) -> str:
    """Mean and 95 % interval over seeds, in percent."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{100 * mean:.1f}"
    half = STUDENT[len(values) - 1] * statistics.stdev(values) / len(values) ** 0.5
    return f"{100 * mean:.1f} ± {100 * half:.1f}"


def rows(client: AssayClient, ids: Mapping[tuple[str, str], Sequence[str]]) -> Iterator[str]:
    """Lines of the table, as the jobs end."""
    names = list(dict.fromkeys(name for _, name in ids))
    columns = [f"{name}: {what}" for name in names for what in ("clean", "noise", "PGD")]
    yield "| attention | " + " | ".join(columns) + " |"
    yield "| --- |" + " --- |" * len(columns)
    for mechanism in mechanisms():
        cells = []
        for name in names:
            found: dict[str, list[float]] = defaultdict(list)
            for job in ids[mechanism, name]:
                if client.wait(job).state != "succeeded":
                    raise SystemExit(f"{mechanism} on {name}: {client.job(job).error}")
                for evaluation in client.results(job).evaluations:
                    value = evaluation.metrics["top1"].value
                    if value is None:
                        raise SystemExit(f"{mechanism} on {name}: {evaluation.name} has no number")
                    found[evaluation.name].append(value)
            cells += [interval(found[what]) for what in ("clean", "series_noise", "pgd")]
        yield f"| `{mechanism}` | " + " | ".join(cells) + " |"


def main() -> None:
    """Writes the list of jobs, or runs it over seeds and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mechanisms", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--url", default=DEFAULT_URL)
    parser.add_argument("--seeds", type=int, default=3, choices=range(1, len(STUDENT) + 2))
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    options = parser.parse_args()
    if options.write is not None:
        jobs = ",\n".join(f"    {json.dumps(job)}" for job in job_list(options.sets)["jobs"])
        options.write.write_text(f'{{\n  "jobs": [\n{jobs}\n  ]\n}}\n')
        return
    with AssayClient(options.url) as client:
        for line in rows(client, submit(client, options.sets, options.seeds)):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
